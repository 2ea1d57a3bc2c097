"""Reading what is stored."""

from typing import Final, Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import (
    ConversationId,
    MessageId,
    PrincipalId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.records import (
    AnswerSoFar,
    PartView,
    SessionRecord,
    SessionView,
    ToldTurn,
    TurnView,
)
from perdure.domain.journal.transcript import RunningText
from perdure.domain.turn.rebuilding import StoredRequest
from perdure.domain.turn.standing import SessionStanding
from perdure.domain.turn.watching import Move

# What is read at one time, in bytes as they are stored. A page ends before it would be longer, and
# holds one thing at least.
PAGE_BYTES: Final = 1024 * 1024


class ConversationView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a conversation is linked to another (`linked`), everything but its id, its name and
    its last activity is that one's."""

    id: ConversationId
    name: str
    address: Address
    principal: PrincipalId
    generation: int
    standing: SessionStanding
    title: str
    at: int
    linked: ConversationId | None = None
    linked_name: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One instant of a conversation: where its live journal ends, what is being written, and which
    messages of the turn under way are already final."""

    view: ConversationView
    last_seq: int
    running: RunningText | None
    said: tuple[MessageId, ...] = ()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that holds the words. `cursor` is where the next page begins; of a long text only
    the part around the first of the words is given."""

    cursor: int
    conversation: str
    session: SessionId
    turn: TurnId | None
    message: MessageId
    role: str
    text: str
    at: int


class ArrivalRecord(msgspec.Struct, frozen=True, kw_only=True):
    adapter: str
    account: str
    external_id: str
    kind: str
    at: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole chain of one message: update, turn, attempts, calls, parts, receipts. Without a
    turn it is a command with its `reply`, or was `refused`, for that reason, or is kept among the
    parts as a letter that could not be read. `partial` is what was shown of the message that is
    being written. `left` says why a turn that has begun does not stand any more. Of a long text
    there is the beginning, with a mark that says where all of it is
    (`domain/journal/in_short.py`)."""

    turn: TurnView | None
    conversation: str
    updates: tuple[ArrivalRecord, ...]
    events: tuple[Recorded, ...] = ()
    parts: tuple[PartView, ...] = ()
    command: str = ""
    reply: str = ""
    refused: str = ""
    partial: RunningText | None = None
    left: str = ""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    queued: int
    running: int
    interrupted: int
    outbox_pending: int
    outbox_parked: int
    # By adapter: what waits to be sent, or is being sent.
    outbox_depths: tuple[tuple[str, int], ...] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """`after`: the cursor a previous page ended with; None begins at the newest. Calls without a
    conversation are sessions too, shown only `with_unlisted`."""

    after: tuple[int, str] | None = None
    limit: int = 50
    with_unlisted: bool = False


class Conversations(Protocol):
    """What a person sees. `principal` None reads everything (operators); what is said in a shared
    place is nobody's own, so only they read it.

    Guarantees: each answer is one snapshot. `find` takes the name of a conversation of the
    principal's over HTTP, or the address of one on a platform, which is theirs or, with `sees_all`,
    anybody's. `moves` are those that led to a generation behind `after`, up to `upto`, in order.
    `chain` is the turns from `head` back through their
    parents, oldest first, each with its events, at most `limit` turns, none beyond `until`, and
    no more than `PAGE_BYTES` hold: the oldest one's parent tells whether there are more.
    `window` is the same as the model is told it: it begins with the newest summary on the chain.
    `turn_on_chain` is the turn on the chain of `head` that a transcript's entry belongs to.
    `exchange` is what a turn was asked and has answered: its events without what was said to it
    while it ran and without what its calls have found, however many there were. It is empty where
    there is no such turn.
    Requires: nothing.
    Raises: `NotFound` for what is not there or not the caller's.
    After a crash: nothing is kept.
    """

    async def find(
        self, name: str, *, principal: PrincipalId, sees_all: bool = False
    ) -> Snapshot: ...

    async def snapshot(self, conversation: ConversationId) -> Snapshot: ...

    async def moves(
        self, conversation: ConversationId, *, after: int, upto: int, limit: int
    ) -> list[Move]: ...

    async def recent(self, *, principal: PrincipalId, page: Page) -> list[ConversationView]: ...

    async def chain(
        self, head: TurnId, *, limit: int, until: TurnId | None = None
    ) -> list[list[Recorded]]: ...

    async def window(self, head: TurnId, *, limit: int) -> list[list[Recorded]]: ...

    async def turn_on_chain(self, head: TurnId, entry: str) -> TurnId: ...

    async def exchange(self, turn: TurnId) -> list[Recorded]: ...


class Archive(Protocol):
    """Sessions, turns and journals, live and closed. The parts of the contract are as above.
    `running` is what was shown of the message that is being written there, or was when its writer
    died. `answer` is what came of the message that this adapter took under an id, or was refused;
    None where it never came. `journal` is at most `limit` entries and no more than `PAGE_BYTES`
    hold; it is empty behind the last one. `told`, bounded alike, is the newest turns of a session,
    or the newest before one of them, oldest first: those that stand, as `Conversations.chain` gives
    them from where it stands now, and `with_left` also those of its own that were undone or asked
    again since. A turn that is longer than a page comes alone and in pieces, the last one first;
    the next one is `before_seq`, where the last piece of the turn `before` began."""

    async def turn(self, turn: TurnId, *, principal: PrincipalId | None) -> TurnView: ...

    async def sessions(self, *, principal: PrincipalId | None, page: Page) -> list[SessionView]: ...

    async def session(
        self, session: SessionId, *, principal: PrincipalId | None
    ) -> SessionView: ...

    async def journal(self, session: SessionId, *, after: int, limit: int) -> list[Recorded]: ...

    async def running(self, session: SessionId) -> RunningText | None: ...

    async def told(
        self,
        session: SessionId,
        *,
        before: TurnId | None = None,
        before_seq: int = 0,
        limit: int,
        with_left: bool = False,
    ) -> list[ToldTurn]: ...

    async def answer(self, external_id: str, *, adapter: str) -> AnswerSoFar | None: ...

    async def search(
        self, query: str, *, principal: PrincipalId | None, before: int | None, limit: int
    ) -> list[Hit]: ...


class Index(Protocol):
    """The full-text index of what was said.

    Guarantees: `catch_up` indexes some of the turns that are over and wait for it, in one
    transaction of bounded length, and says whether there may be more.
    Requires: nothing.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: what was not indexed still waits.
    """

    async def catch_up(self) -> bool: ...


class Diagnostics(Protocol):
    """For operators: what happened to one message, how much waits, is everything sound.
    `integrity` is what `Audit.integrity` finds, in all tables. `asked` is what is stored of the
    last request of a turn; it raises `NotFound` where that is nothing, and says why."""

    async def explain(self, any_id: str, *, principal: PrincipalId | None) -> Explanation: ...

    async def asked(self, turn: TurnId) -> StoredRequest: ...

    async def counts(self) -> Counts: ...

    async def record(self, session: SessionId) -> SessionRecord: ...

    async def parked(self, *, limit: int) -> list[PartView]: ...

    async def integrity(self) -> list[str]: ...
