"""Describes what comes in from outside, and what accepting it did."""

import hashlib
from enum import StrEnum

import msgspec

from perdure.domain.address import GROUP, Address
from perdure.domain.content.forwards import Passage
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.arrivals import Press
from perdure.domain.journal.events import NO_TRAITS, Attachment, Recorded, SenderTraits
from perdure.domain.journal.model.options import NONE, Options
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy
from perdure.domain.tools.callers import CallerResult


class UpdateEffect(StrEnum):
    """Says what accepting an update did, so that people are told what happened, not what was
    intended."""

    QUEUED = "queued"
    JOINED = "joined"
    SUPERSEDED = "superseded"
    STEERED = "steered"
    CONTINUED = "continued"
    DROPPED = "dropped"
    COMMANDED = "commanded"
    ANSWERED = "answered"
    AMENDED = "amended"
    CANCELLED = "cancelled"
    IGNORED = "ignored"
    RESTARTING = "restarting"


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one message from a platform or a program, validated at the edge.

    (adapter, account, external id, kind) is its identity: an update with the same identity is
    the same update. For an edit or a deletion, `target` is the external id of the message that
    it is about, and its own external id is that of the edit or deletion, because a message may
    be edited more than once. `sender` is the person's name where several people talk.
    `place_kind` and `label` are what the platform says about the place. Updates with the same
    `album` were sent as one. `passed_on` are the passages of the text that somebody else has
    written; if there are any, no part of the text is a command to the gateway. `caller` is the
    principal's name over HTTP. `press` is the press of a button under a question, and `reply_to`
    the external id of the message that it replies to. `said` are the person's own words if the
    text quotes that message too. `results` are those of the caller's own tools, which the turn
    before has called. `overhears`: its turn is told what was said in the place before, not to
    the bot. With `begins_thread` the message begins its thread, so that was said in the place
    itself. `place_agent` and `place_persona` count where people have chosen none.
    `may_be_silent`: its agent may decide that it needs no answer. `is_open_place`: everybody may
    speak in the place, so not everybody may stop or reset there. Messages of a person that come
    within `collect_ms` are one message; with 0 none are. The answer is also said in the
    conversation `deliver_to`.
    """

    address: Address
    external_id: str
    kind: UpdateKind
    principal: PrincipalId
    text: str
    busy: Busy = Busy.QUEUE
    attachments: tuple[Attachment, ...] = ()
    agent: str = ""
    instructions: str = ""
    context: str = ""
    tools: str = ""
    options: Options = NONE
    is_listed: bool = True
    target: str = ""
    sender: str = ""
    place_kind: str = ""
    label: str = ""
    album: str = ""
    passed_on: tuple[Passage, ...] = ()
    traits: SenderTraits = NO_TRAITS
    caller: str = ""
    press: Press | None = None
    reply_to: str = ""
    said: str = ""
    results: tuple[CallerResult, ...] = ()
    overhears: bool = False
    begins_thread: bool = False
    place_agent: str = ""
    place_persona: str = ""
    may_be_silent: bool = False
    is_open_place: bool = False
    collect_ms: int = 0
    deliver_to: ConversationId | None = None

    @property
    def is_shared(self) -> bool:
        """Tell whether several people of a group share the conversation."""
        return self.place_kind == GROUP and not self.address.person

    @property
    def heard_in(self) -> Address:
        """Return the thread in which people have talked before this message."""
        thread = "" if self.begins_thread else self.address.thread
        return msgspec.structs.replace(self.address, thread=thread)

    @property
    def own_words(self) -> str:
        """Return what the person has said, without what it quotes."""
        return self.said or self.text

    @property
    def is_forwarded(self) -> bool:
        return bool(self.passed_on)

    @property
    def takes_commands(self) -> bool:
        """Tell whether a slash may begin a command. It may not in calls that are a conversation of
        their own, in texts that somebody else has written, and beside results of tool calls."""
        is_said = self.kind == UpdateKind.MESSAGE or (
            self.kind == UpdateKind.CALL and self.is_listed
        )
        return is_said and not self.is_forwarded and not self.results

    def digest(self) -> str:
        """Return a hash that tells a repeat of the same message from a different message under the
        same id. It leaves out the references of files, because a platform may sign the same file
        anew each time."""
        files = [_compared(each) for each in self.attachments]
        said = [self.text, files, self.agent]
        # What a place's settings tell the agent is no part of what a person has said.
        own = self.instructions if self.kind is UpdateKind.CALL else ""
        brought = [own, self.context, self.tools]
        asked = [self.options] if self.options != NONE else []
        pressed = [self.press] if self.press is not None else []
        answered = [self.results] if self.results else []
        body = msgspec.json.encode([*said, *brought, *asked, *pressed, *answered, self.target])
        return hashlib.sha256(body).hexdigest()


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """Says that the update is committed, and what came of it. `is_duplicate`: it was committed
    before, and these are its ids from then. `ended` are turns that this message ended. `command`
    and `reply` are set if it was a command, and `choices` are commands that the reply offers.
    `moved` are other conversations that go on in another session now."""

    conversation: ConversationId
    session: SessionId
    turn: TurnId | None
    message: MessageId
    is_duplicate: bool = False
    queue_position: int = 0
    effect: UpdateEffect = UpdateEffect.QUEUED
    ended: tuple[TurnId, ...] = ()
    command: str = ""
    reply: str = ""
    choices: tuple[str, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    moved: tuple[tuple[ConversationId, SessionId], ...] = ()


def _compared(attachment: Attachment) -> object:
    """Return what counts of a file when two messages are compared. It is written as before stickers
    and unfit pictures had fields of their own, so that a repeat is recognized after an upgrade."""
    compared = msgspec.to_builtins(msgspec.structs.replace(attachment, reference=""))
    del compared["is_unfit"], compared["shown"]
    if attachment.sticker is None:
        del compared["sticker"]
    return compared
