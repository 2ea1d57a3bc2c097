"""What comes in from outside, and what became of it."""

import hashlib
from enum import StrEnum

import msgspec

from perdure.domain.address import Address
from perdure.domain.content.forwards import Passage
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import NO_TRAITS, Attachment, Recorded, SenderTraits
from perdure.domain.journal.options import NONE, Options
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy


class UpdateEffect(StrEnum):
    """What accepting a message did, so that people are told what happened, not what was meant."""

    QUEUED = "queued"
    JOINED = "joined"
    SUPERSEDED = "superseded"
    STEERED = "steered"
    CONTINUED = "continued"
    DROPPED = "dropped"
    COMMANDED = "commanded"
    AMENDED = "amended"
    CANCELLED = "cancelled"
    IGNORED = "ignored"
    RESTARTING = "restarting"


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """One message from a platform or a program, validated at the edge.

    (adapter, account, external id, kind) is its identity: the same one again is the same update.
    Of an edit or a deletion, `target` is the external id of the message it speaks of, and its own
    external id is the event's: a message may be edited more than once. `sender` names them where
    several people talk; `place_kind` and `label` are what the platform tells of the place;
    what has the same `album` was sent as one. `passed_on` are the passages of the text that
    somebody else has written; where there are any, nothing in it is an order to the gateway.
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

    @property
    def is_forwarded(self) -> bool:
        return bool(self.passed_on)

    @property
    def takes_commands(self) -> bool:
        """Whether a slash may begin a command. In calls that are a conversation of their own, and
        in what somebody else has written, it is only a slash."""
        is_said = self.kind == UpdateKind.MESSAGE or (
            self.kind == UpdateKind.CALL and self.is_listed
        )
        return is_said and not self.is_forwarded

    def digest(self) -> str:
        """Tells a repeat of the same message from a different one under the same id. A platform
        may sign the reference of the same file anew each time."""
        files = [_compared(each) for each in self.attachments]
        said = [self.text, files, self.agent]
        brought = [self.instructions, self.context, self.tools]
        asked = [self.options] if self.options != NONE else []
        body = msgspec.json.encode([*said, *brought, *asked, self.target])
        return hashlib.sha256(body).hexdigest()


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The update is committed. `is_duplicate`: it had been before, and these are its ids. `ended`
    are turns that this message ended; `command` and `reply` are set where it was a command; `moved`
    are other conversations that go on in another session now."""

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
    recorded: tuple[Recorded, ...] = ()
    moved: tuple[tuple[ConversationId, SessionId], ...] = ()


def _compared(attachment: Attachment) -> object:
    """What counts of a file when two messages are compared. A file that is no sticker is written as
    it was before stickers were told apart, so that a repeat is known again after an upgrade."""
    compared = msgspec.to_builtins(msgspec.structs.replace(attachment, reference=""))
    if attachment.sticker is None:
        del compared["sticker"]
    return compared
