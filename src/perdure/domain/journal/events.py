"""Defines the events that a session's journal holds.

Each event is an immutable fact, named in the past tense, with its format version in `v`. Bodies are
JSON; `domain/journal/codec.py` reads every version ever written. Notes for the model, which exist
in one request only, are not events, and no event can hold one.
"""

from typing import Final

import msgspec

from perdure.domain.content.forwards import Passage
from perdure.domain.content.overheard import Overheard
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
from perdure.domain.journal.event import Event
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.domain.journal.model.options import NONE, Options
from perdure.domain.journal.model.reach import AT_ONCE, Reach
from perdure.domain.journal.model.thoughts import Thoughts
from perdure.domain.journal.model.timings import UNTIMED, Timings
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.question_events import EffectMarked, WaitEvent
from perdure.domain.journal.session_events import (
    CommandTaken,
    Compacted,
    CompactionDropped,
    CompactionFailed,
    HeadMoved,
    RoomSought,
    SessionClosed,
    SessionOpened,
    SessionResumed,
    TitleSet,
    WindowExceeded,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest, Outcome, Repeat


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file of a message: stored here (`media`), at a `url`, or still on the platform it
    came by (`reference`). `is_voice`: it is a voice message, which lasts `seconds` if that is
    known. `text` is the file's text, if it could be read; `problem` is why it could not. For a
    `sticker`, `text` is what it shows. A picture that models do not take as it is `is_unfit` at
    first; then `shown` is the digest of the bytes that they are shown instead."""

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
    is_unfit: bool = False
    shown: str = ""


class SenderTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds what only the platform knows about a sender, at the time of the message: the `roles`
    that let them in, and if they are a bot. With it, access can be checked again later. `language`
    is the tag of the language that they use there, such as `de`, if it is known."""

    roles: tuple[str, ...] = ()
    is_bot: bool = False
    language: str = ""


NO_TRAITS: Final = SenderTraits()


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a tool call as the model asked for it. `arguments` is the JSON text exactly as it
    came. `is_callers`: the tool was brought by the program that asks, which also runs it.
    `is_agents`: an external agent has run a tool of its own, and tells of it."""

    id: CallId
    name: str
    arguments: str
    repeat: Repeat = Repeat.ONCE
    is_callers: bool = False
    is_agents: bool = False


class Worded(Event, frozen=True, kw_only=True):
    """Holds the text of a person's message, or of their edit. `passed_on` are the forwarded
    passages in it; older journals name none, even where there are some."""

    turn: TurnId
    message: MessageId
    text: str
    passed_on: tuple[Passage, ...] = ()


class TurnQueued(Worded, frozen=True, kw_only=True):
    """Records that a message was accepted and that its turn waits for a slot.

    Calls may bring their own request: `instructions` are a system message for this call only,
    `context` holds the earlier messages of a call without a conversation, `tools` are the caller's
    tools (both as the JSON text that came), and `options` say how to ask the model. `origin` is the
    turn that this one repeats, or the errand whose result it brings. `answer` is that result, or a
    text that was sent here from elsewhere (`SENT`); it is said without asking a model. `finish`
    says why the model ended the result early, and `files` come with it. `by` is the sender, or None
    for the session's own principal; `sender` is their name in a group, and `traits` are theirs.
    `via` is the conversation in which the message was written, if that is linked to this one.
    `continues` is the turn that was cut and goes on in this one. If `agent` cannot write a summary,
    the agent `stand_in` does. `effort` is how much the model is to reason, as it was chosen where
    the message came from; a word in `options` goes before it. `overheard` is what others said in
    the place before, not to the bot; it is told to the model alone. `may_be_silent`: nothing is
    posted if the answer is exactly `[SILENT]`. The answer is sent on to the conversation
    `deliver_to`; `sent_from` is the platform from which it was sent on to here. `ordered_by` is the
    turn in which an agent has sent this text here, or has given this work to another agent; `depth`
    counts the agents above that one.
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
    stand_in: str = ""
    effort: str = ""
    overheard: tuple[Overheard, ...] = ()
    may_be_silent: bool = False
    deliver_to: ConversationId | None = None
    sent_from: str = ""
    ordered_by: TurnId | None = None
    depth: int = 0

    @property
    def asking(self) -> Options:
        """Return how the model is asked."""
        return self.options.with_effort(self.effort)


class TurnStarted(Event, frozen=True, kw_only=True):
    """Records that a node began an attempt of a turn. `parent` is the turn before it on the
    chain."""

    turn: TurnId
    attempt: int
    parent: TurnId | None
    node: NodeId


class PromptExpanded(Event, frozen=True, kw_only=True):
    """Records the text of a tool server's prompt `name`, by which the person has begun the turn's
    `message`. The model is told it below the message."""

    turn: TurnId
    message: MessageId
    name: str
    text: str


class AssistantSaid(Event, frozen=True, kw_only=True):
    """Records an assistant message with its files. `is_interrupted`: it is the text that had been
    shown when the attempt ended. `origin` is `SENT` if no model said it. `thoughts` led to the
    calls, and are given back to the same model within the turn; people never see them."""

    turn: TurnId
    attempt: int
    message: MessageId
    text: str
    calls: tuple[ToolCall, ...] = ()
    is_interrupted: bool = False
    attachments: tuple[Attachment, ...] = ()
    origin: str = ""
    thoughts: Thoughts | None = None


class ToolStarted(Event, frozen=True, kw_only=True):
    """Records that a tool call begins. `why` says what has allowed it: the policy, a rule, a grant,
    or the answer to a question."""

    turn: TurnId
    call: CallId
    why: str = ""


class ToolFinished(Event, frozen=True, kw_only=True):
    """Records how a tool call ended. A long result is kept as the file `whole`, of `size`
    characters, and `result` is its beginning. `attachments` are files that the tool has made.

    `is_callers`: the program that asks has run its own tool `name`, and has sent the result with
    the message of this turn. The call itself is in an earlier turn.
    """

    turn: TurnId
    call: CallId
    ending: CallEnding
    result: str
    attachments: tuple[Attachment, ...] = ()
    whole: MediaId | None = None
    size: int = 0
    is_callers: bool = False
    name: str = ""


class AttemptInterrupted(Event, frozen=True, kw_only=True):
    """Records that an attempt ended before its turn. `tail` identifies the tool results at the
    turn's end that the interruption covers, or is empty; `alive_at` is when the owner was last
    known to be at work; `asked` is what the node was asked for when it cut the attempt short.
    `usage` and `cost` are those of its finished model calls, if they are known."""

    turn: TurnId
    attempt: int
    reason: Interruption
    tail: str = ""
    alive_at: int = 0
    asked: NodeRequest = NodeRequest.NOTHING
    usage: Usage = Usage()
    cost: int = 0


class InterruptionAcknowledged(Event, frozen=True, kw_only=True):
    """Records that the model was told of the interruption whose seq in the journal of `session` is
    `interruption`. Older journals name no session; then it is the session of this event."""

    turn: TurnId
    interruption: int
    tail: str = ""
    session: SessionId | None = None


class SteerAccepted(Worded, frozen=True, kw_only=True):
    """Records a message for the running turn. It takes effect where it is taken. If it never is, it
    becomes a turn of its own, answered in the linked conversation `via` it came from."""

    attachments: tuple[Attachment, ...] = ()
    by: PrincipalId | None = None
    sender: str = ""
    via: ConversationId | None = None
    traits: SenderTraits = NO_TRAITS


class SteerTaken(Worded, frozen=True, kw_only=True):
    """Records that the running turn took a message that was sent to it."""

    attachments: tuple[Attachment, ...] = ()
    sender: str = ""


class TurnAmended(Worded, frozen=True, kw_only=True):
    """Records that the author of a message edited it, before its turn ran or long after."""


class NoticePosted(Event, frozen=True, kw_only=True):
    """Records what the gateway itself told the people; the model never sees it. `about` is the turn
    that it is about, `choices` are the words that answer it, and `question` is the question of an
    agent that it asks."""

    message: MessageId
    text: str
    about: TurnId | None = None
    choices: tuple[str, ...] = ()
    question: QuestionId | None = None


class TurnRequeued(Event, frozen=True, kw_only=True):
    turn: TurnId
    reason: Interruption


class TurnMoved(Event, frozen=True, kw_only=True):
    """Records that a waiting turn continues in another session, because this one was given up. The
    turn's events are written again in that session's journal."""

    turn: TurnId
    to: SessionId


class TurnSettled(Event, frozen=True, kw_only=True):
    """Records that a turn ended. `prefix_break` says why the request did not begin with the bytes
    of the one before it, and is empty if it did. `cost` is in millionths of the prices' currency,
    and `reach` what it took to get an answer. `agent_session` is the agent's own session, if it
    keeps one; `agent_state` is what it has newly told of it, `timings` where its time went."""

    turn: TurnId
    outcome: Outcome
    reason: str = ""
    detail: str = ""
    agent: str = ""
    usage: Usage = Usage()
    cost: int = 0
    prefix_break: str = ""
    reach: Reach = AT_ONCE
    agent_session: str = ""
    timings: Timings = UNTIMED
    agent_state: AgentState = UNTOLD


class MessageJoined(Worded, frozen=True, kw_only=True):
    """Records another message of the same album, which joined the waiting turn of the first."""

    attachments: tuple[Attachment, ...] = ()


class MediaFetched(Event, frozen=True, kw_only=True):
    """Records that attachment number `index` of a message was fetched, and read as far as
    possible. `shown` is the digest of the picture that models are shown instead, if any."""

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
    shown: str = ""


class MediaLost(Event, frozen=True, kw_only=True):
    """Records that attachment number `index` of a message could not be fetched and was given up."""

    turn: TurnId
    message: MessageId
    index: int
    reason: str


class StickerDescribed(Event, frozen=True, kw_only=True):
    """Records what the sticker shows that is attachment number `index` of a message. `words` is
    empty if nobody could find out in time."""

    turn: TurnId
    message: MessageId
    index: int
    words: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Names what requests leave out: the whole turn, or if `part` is given, this message or tool
    result of it, or if `index` is given too, this attachment of the message. `amended` is the
    number of the message's last edit at that time, or of the turn's last edit: a later edit brings
    back what was left out."""

    turn: TurnId | None = None
    part: str = ""
    index: int | None = None
    amended: int = 0


class ContentLeftOut(Event, frozen=True, kw_only=True):
    """Records that a model's server has refused a request of `turn` because of its content. As long
    as that turn is on the chain, the requests after it leave out `what` was refused."""

    turn: TurnId
    what: tuple[LeftOut, ...]


TurnEvent = TurnStarted | AttemptInterrupted | WaitEvent | TurnRequeued | TurnSettled
AnyEvent = (
    SessionOpened
    | SessionClosed
    | SessionResumed
    | TurnQueued
    | TurnStarted
    | PromptExpanded
    | AssistantSaid
    | ToolStarted
    | ToolFinished
    | AttemptInterrupted
    | WaitEvent
    | EffectMarked
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
    | ContentLeftOut
    | WindowExceeded
    | RoomSought
)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an event and its place in a session's journal: its number `seq`, and the time `at`."""

    session: SessionId
    seq: int
    at: int
    event: AnyEvent

    @property
    def turn(self) -> TurnId | None:
        return getattr(self.event, "turn", None)

    @property
    def key(self) -> tuple[SessionId, int]:
        """Return what identifies the event among all journals: the numbers repeat between
        sessions."""
        return self.session, self.seq
