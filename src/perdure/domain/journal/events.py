"""The facts a session's journal holds.

Each event is immutable, in the past tense, and carries its format version as `v`. Bodies are JSON;
`domain/journal/codec.py` reads every version ever written. Notes for the model are not here, and
nothing here can hold one.
"""

from typing import Final

import msgspec

from perdure.domain.content.forwards import Passage
from perdure.domain.content.stickers import Sticker
from perdure.domain.ids import (
    CallId,
    ConversationId,
    MediaId,
    MessageId,
    NodeId,
    PrincipalId,
    QuestionId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.options import NONE, Options
from perdure.domain.journal.reach import AT_ONCE, Reach
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest, Outcome, Repeat


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that came with a message: stored here (`media`), still elsewhere (`url`), or on the
    platform it came by (`reference`), until it was fetched. `is_voice`: it was spoken to us, and
    took so many `seconds`, as far as that is known. `text` is what it says, where that could be
    found out; `problem` is why it could not. Of a `sticker`, `text` is what it shows."""

    media: MediaId | None = None
    url: str | None = None
    mime: str = ""
    name: str = ""
    reference: str = ""
    size: int = 0
    is_voice: bool = False
    text: str = ""
    problem: str = ""
    seconds: int = 0
    sticker: Sticker | None = None


class SenderTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What only the platform knows of a sender, as it told when the message came: the `roles` that
    let them in, and whether they are a bot. Kept so that it can be asked again who may speak."""

    roles: tuple[str, ...] = ()
    is_bot: bool = False


NO_TRAITS: Final = SenderTraits()


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as the model asked for it. `arguments` is the JSON text exactly as it came."""

    id: CallId
    name: str
    arguments: str
    repeat: Repeat = Repeat.ONCE


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    model_calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        names = self.__struct_fields__
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


class Event(msgspec.Struct, frozen=True, kw_only=True):
    v: int = 1


class Worded(Event, frozen=True, kw_only=True):
    """A message of a person's, or what they make of it later. `passed_on` are the passages of the
    text that they did not write; older journals name none, also of what was passed on."""

    turn: TurnId
    message: MessageId
    text: str
    passed_on: tuple[Passage, ...] = ()


class SessionOpened(Event, frozen=True, kw_only=True):
    """`head` is the turn it stands at from the beginning: of `parent`, by reference. `kind` names
    the errand it was opened for; it is empty where people talk."""

    by: PrincipalId
    reason: str
    parent: SessionId | None = None
    head: TurnId | None = None
    kind: str = ""


class SessionClosed(Event, frozen=True, kw_only=True):
    """The conversation went on in another session; this one stays readable and resumable."""

    by: PrincipalId
    reason: str
    successor: SessionId


class SessionResumed(Event, frozen=True, kw_only=True):
    """This session is the live one again, with a clean slate."""

    by: PrincipalId


class TurnQueued(Worded, frozen=True, kw_only=True):
    """A user's message was accepted and its turn waits for a slot.

    `instructions`, `context`, `tools` and `options` serve calls that bring their own: a system
    message for this call only, the earlier messages of a call without a conversation, the caller's
    tools (these two as the JSON text that came), and how the model is to be asked. `origin` is the
    turn it repeats or the errand whose result it brings; `answer` is that result, or what was sent
    here from elsewhere (`SENT`), said without asking a model; `finish` is why the model ended it;
    `files` come with it. `by` is its sender, the session's own principal if None; `sender` is what
    the platform calls them in a group; `via` is the conversation it was said in, where that is
    linked to this one; `traits` are the sender's. `continues` is the turn that was cut and goes on.
    """

    kind: TurnKind = TurnKind.MESSAGE
    agent: str = ""
    attachments: tuple[Attachment, ...] = ()
    instructions: str = ""
    context: str = ""
    tools: str = ""
    options: Options = NONE
    persona: str = ""
    origin: TurnId | None = None
    answer: str = ""
    finish: str = ""
    by: PrincipalId | None = None
    sender: str = ""
    via: ConversationId | None = None
    files: tuple[Attachment, ...] = ()
    traits: SenderTraits = NO_TRAITS
    continues: TurnId | None = None


class TurnStarted(Event, frozen=True, kw_only=True):
    turn: TurnId
    attempt: int
    parent: TurnId | None
    node: NodeId


class AssistantSaid(Event, frozen=True, kw_only=True):
    """One assistant message, and the files that were given with it. `is_interrupted`: it is what
    had been shown when the attempt ended. `origin` is `SENT` where no model has said it."""

    turn: TurnId
    attempt: int
    message: MessageId
    text: str
    calls: tuple[ToolCall, ...] = ()
    is_interrupted: bool = False
    attachments: tuple[Attachment, ...] = ()
    origin: str = ""


class ToolStarted(Event, frozen=True, kw_only=True):
    turn: TurnId
    call: CallId


class ToolFinished(Event, frozen=True, kw_only=True):
    turn: TurnId
    call: CallId
    ending: CallEnding
    result: str


class AttemptInterrupted(Event, frozen=True, kw_only=True):
    """`tail` names the trailing batch of tool results that the interruption covers, or is empty;
    `alive_at` is when the owner was last known to be at work; `asked` is what its end was for."""

    turn: TurnId
    attempt: int
    reason: Interruption
    tail: str = ""
    alive_at: int = 0
    asked: NodeRequest = NodeRequest.NOTHING


class AnswerAwaited(Event, frozen=True, kw_only=True):
    """The turn waits for somebody to answer a question, with no owner until then. `call` is the
    tool call that the question is about, `choices` are the words that answer it, and `deadline` is
    the instant at which the wait ends without an answer; 0 for none."""

    turn: TurnId
    attempt: int
    question: QuestionId
    text: str
    choices: tuple[str, ...] = ()
    call: CallId | None = None
    deadline: int = 0


class AnswerReceived(Event, frozen=True, kw_only=True):
    """A question was answered, and its turn goes on where it was. `by` is None where nobody has
    answered in time; `answer` is empty then."""

    turn: TurnId
    question: QuestionId
    answer: str = ""
    by: PrincipalId | None = None


class InterruptionAcknowledged(Event, frozen=True, kw_only=True):
    """The model has been told of the interruption journalled at `interruption` in the journal of
    `session`. Older journals name no session: there it is the one that holds this event."""

    turn: TurnId
    interruption: int
    tail: str = ""
    session: SessionId | None = None


class SteerAccepted(Worded, frozen=True, kw_only=True):
    """A message for the turn that runs. It stands where it is taken; if it never is, it becomes a
    turn of its own, which is answered in the conversation `via`, if it came from a linked one."""

    attachments: tuple[Attachment, ...] = ()
    by: PrincipalId | None = None
    sender: str = ""
    via: ConversationId | None = None
    traits: SenderTraits = NO_TRAITS


class SteerTaken(Worded, frozen=True, kw_only=True):
    attachments: tuple[Attachment, ...] = ()
    sender: str = ""


class TurnAmended(Worded, frozen=True, kw_only=True):
    """A message was rewritten by its author: before it ran, or long after."""


class NoticePosted(Event, frozen=True, kw_only=True):
    """Something the gateway itself tells the people; the model never sees it. `about` is the turn
    it speaks of, `choices` the words that answer it."""

    message: MessageId
    text: str
    about: TurnId | None = None
    choices: tuple[str, ...] = ()


class TurnRequeued(Event, frozen=True, kw_only=True):
    turn: TurnId
    reason: Interruption


class TurnMoved(Event, frozen=True, kw_only=True):
    """A turn that only waited goes on in another session, for this one is left: whatever was
    written of it here stands there again."""

    turn: TurnId
    to: SessionId


class TurnSettled(Event, frozen=True, kw_only=True):
    """`prefix_break` says why the request did not begin with the bytes of the one before it, and
    is empty where it did. `cost` is in millionths of the currency that prices are given in.
    `reach` says what it took to get an answer from an agent."""

    turn: TurnId
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    agent: str = ""
    usage: Usage = Usage()
    cost: int = 0
    prefix_break: str = ""
    reach: Reach = AT_ONCE


class CommandTaken(Event, frozen=True, kw_only=True):
    """`turn` is the one that the command queued or spoke to."""

    command: str
    arguments: str
    by: PrincipalId
    message: MessageId
    reply: str
    turn: TurnId | None = None


class HeadMoved(Event, frozen=True, kw_only=True):
    """The session stands at another turn. `redo` are the heads to go back to, the next one last;
    the next turn that starts forgets them."""

    by: PrincipalId
    reason: str
    head: TurnId | None
    redo: tuple[TurnId, ...] = ()


class TitleSet(Event, frozen=True, kw_only=True):
    """`by` is None for a title that was found from the first exchange."""

    title: str
    by: PrincipalId | None = None


class Compacted(Event, frozen=True, kw_only=True):
    """For the model, everything up to and including the turn `upto` is represented by `summary`,
    as long as that turn is on the chain. Nothing is rewritten."""

    upto: TurnId
    message: MessageId
    summary: str
    turns: int
    tokens_before: int
    tokens_after: int
    errand: TurnId
    cost: int = 0


class CompactionFailed(Event, frozen=True, kw_only=True):
    errand: TurnId
    reason: str


class CompactionDropped(Event, frozen=True, kw_only=True):
    """The summary made by `compaction` represents nothing any more."""

    by: PrincipalId
    upto: TurnId
    compaction: MessageId


class MessageJoined(Worded, frozen=True, kw_only=True):
    """A message that was sent as one with those of a turn that still waits."""

    attachments: tuple[Attachment, ...] = ()


class MediaFetched(Event, frozen=True, kw_only=True):
    """The attachment number `index` of a message is here, and was read as far as it can be."""

    turn: TurnId
    message: MessageId
    index: int
    media: MediaId
    mime: str
    name: str
    size: int
    text: str = ""
    problem: str = ""
    seconds: int = 0


class MediaLost(Event, frozen=True, kw_only=True):
    """The attachment number `index` of a message could not be brought here; nobody tries again."""

    turn: TurnId
    message: MessageId
    index: int
    reason: str


class StickerDescribed(Event, frozen=True, kw_only=True):
    """The turn was told what the sticker shows that is the attachment number `index` of a message;
    `words` is empty where nobody could find out in time."""

    turn: TurnId
    message: MessageId
    index: int
    words: str


TurnEvent = (
    TurnStarted | AttemptInterrupted | AnswerAwaited | AnswerReceived | TurnRequeued | TurnSettled
)
AnyEvent = (
    SessionOpened
    | SessionClosed
    | SessionResumed
    | TurnQueued
    | TurnStarted
    | AssistantSaid
    | ToolStarted
    | ToolFinished
    | AttemptInterrupted
    | AnswerAwaited
    | AnswerReceived
    | InterruptionAcknowledged
    | SteerAccepted
    | SteerTaken
    | TurnAmended
    | NoticePosted
    | TurnRequeued
    | TurnMoved
    | TurnSettled
    | CommandTaken
    | HeadMoved
    | TitleSet
    | Compacted
    | CompactionFailed
    | CompactionDropped
    | MessageJoined
    | MediaFetched
    | MediaLost
    | StickerDescribed
)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An event where it stands in a session's journal."""

    session: SessionId
    seq: int
    at: int
    event: AnyEvent

    @property
    def turn(self) -> TurnId | None:
        return getattr(self.event, "turn", None)

    @property
    def key(self) -> tuple[SessionId, int]:
        """Identify the event among those of all journals: numbers repeat between sessions."""
        return self.session, self.seq
