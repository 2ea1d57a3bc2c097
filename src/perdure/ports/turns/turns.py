"""The turn runner's writes. Each carries the lease's epoch and fails once it is stale."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import (
    ConversationId,
    MediaId,
    MessageId,
    PrincipalId,
    QuestionId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.events import (
    AnswerAwaited,
    AnyEvent,
    Attachment,
    Recorded,
    ToolCall,
    Usage,
)
from perdure.domain.journal.reach import AT_ONCE, Reach
from perdure.domain.outcomes import Interruption, NodeRequest, Outcome
from perdure.domain.people.access import Speaker
from perdure.domain.people.memory import Memory
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.turn.announcing import Drain
from perdure.domain.turn.recovery import Policy, Telling


class TurnLease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to run one turn: every write of the runner carries it."""

    session: SessionId
    turn: TurnId
    epoch: int
    attempt: int


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is ours now, with all the runner needs to begin.

    `events` are the turn's own so far; `parent` is the head it stands on; `telling` is what the
    model has to be told of interruptions; `view` changes whenever the same turns are told in
    another way; `prefix` is what the last request began with; `memories` is what is kept about
    the person, for here and for everywhere; `has_title` is the session's. `principal` is the
    sender, `address` where the answer goes; `is_shared`: several people read it there. `speaker` is
    for the decision who may speak, to be asked before it begins; None where that was decided with
    the message that has just come. `is_listed` is the conversation's: nobody comes back to one that
    stands in no list.
    """

    lease: TurnLease
    conversation: ConversationId
    principal: PrincipalId
    address: Address
    parent: TurnId | None
    is_shared: bool = False
    events: tuple[Recorded, ...]
    telling: Telling = Telling()
    view: str = ""
    prefix: str = ""
    memories: tuple[Memory, ...] = ()
    has_title: bool = True
    is_listed: bool = True
    speaker: Speaker | None = None


class Unfinished(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is not settled, and whom it is for."""

    turn: TurnId
    speaker: Speaker


class TextPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Text of the running message, from `start` (in code points) on. The first one tells the
    `origin` of the request that it answers."""

    lease: TurnLease
    message: MessageId
    start: int
    text: str
    origin: RequestOrigin = NOTHING_ASKED


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ends: the final message if there is one, the outcome, the reply's parts.
    `context_tokens` is how much the model reads to know everything up to here; `is_reserved`: the
    turn may hold room in a budget; `origin`: `SENT` where nobody was asked; `reach`: what it took
    to get an answer; `note` is told to people behind it, where no part of the reply does. `asked`
    is the origin of the last request."""

    outcome: Outcome
    reason: str
    detail: str = ""
    agent: str = ""
    usage: Usage = Usage()
    message: MessageId | None = None
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    acknowledgements: tuple[AnyEvent, ...] = ()
    parts: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    files: tuple[MediaId, ...] = ()
    context_tokens: int = 0
    asked: RequestOrigin = NOTHING_ASKED
    prefix_break: str = ""
    cost: int = 0
    is_reserved: bool = False
    origin: str = ""
    reach: Reach = AT_ONCE
    note: str = ""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """`has_more`: the session's next turn can be claimed now."""

    recorded: list[Recorded]
    has_more: bool


class Turns(Protocol):
    """Takes queued turns and records what their runners do.

    Guarantees: one running turn per session; `claim` gives each queued turn to one node, in arrival
    order per session and per person, whatever the clock says. Where more wait than there is room
    for, the next is always of the person with the fewest by `shares`, and among those of who came
    first; nobody gets more than `shares.most`. `next_claim_ms` says from when on there is one for
    such shares, 0 if there is one now; what `flush`,
    `append` and `settle` return from is durable; pieces of one `flush` are independent, and the
    answer names those that were stale; with `beats` a `flush` is a heartbeat of this node too,
    unless its lease has run out, which only `Nodes.beat` tells; `take_steers` puts waiting steers
    into the turn; `tell` tells the people of the turn's conversation something that the model never
    sees. The last `origin` that came with any of these is kept with the turn, whoever ends it.
    `unfinished` are the turns that are not settled, on whichever node, in the order of their
    ids behind `after`.
    `wait` ends the attempt with a question: the turn has no owner until `answer` puts it back in
    line, where it goes on; only the first answer counts.
    `turn_away` ends one whose person may not speak any more: stopped if it is at work, else
    refused; nothing happens to one that has ended.
    Requires: a lease from `claim`; pieces of a message in order and without gaps.
    Raises: `Fenced` when the lease is stale; `Conflict` when the question was answered before, or
    its turn is over; `Transient` when nothing was written; `Ambiguous` when
    that is unknown.
    After a crash: the reaper finds the turn still running and ends the attempt.
    """

    async def claim(self, *, limit: int, shares: FairShares = EQUAL) -> list[Claimed]: ...

    async def next_claim_ms(self, *, shares: FairShares = EQUAL) -> int | None: ...

    async def flush(
        self, pieces: Sequence[TextPiece], *, beats: bool = False
    ) -> list[TurnLease]: ...

    async def append(
        self,
        lease: TurnLease,
        events: Sequence[AnyEvent],
        *,
        piece: TextPiece | None = None,
        origin: RequestOrigin = NOTHING_ASKED,
    ) -> list[Recorded]: ...

    async def take_steers(self, lease: TurnLease) -> list[Recorded]: ...

    async def tell(self, lease: TurnLease, text: str) -> list[Recorded]: ...

    async def settle(self, lease: TurnLease, settlement: Settlement) -> Settled: ...

    async def interrupt(
        self,
        lease: TurnLease,
        reason: Interruption,
        *,
        attempts_max: int,
        asked: NodeRequest = NodeRequest.NOTHING,
    ) -> list[Recorded]: ...

    async def wait(self, lease: TurnLease, question: AnswerAwaited) -> list[Recorded]: ...

    async def answer(
        self, turn: TurnId, question: QuestionId, answer: str, *, by: PrincipalId | None
    ) -> list[Recorded]: ...

    async def unfinished(self, *, after: TurnId | None, limit: int) -> list[Unfinished]: ...

    async def turn_away(self, turn: TurnId, reason: str) -> list[Recorded]: ...


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """`is_holding_back`: suspects wait for the one that is at work. Look again when it is done, and
    at `look_again_ms`, when it has lived long enough to be no suspect any more."""

    recorded: list[Recorded]
    is_holding_back: bool
    look_again_ms: int | None = None


class Nodes(Protocol):
    """This process among those that share the store.

    Guarantees: `join` makes this node known; `beat` renews its lease and is False once it ran out;
    `reap` ends the attempts of turns whose owner is gone (after the last allowed one the turn is
    given up and its session suspended; what waits goes on in another), `reclaim` those of turns
    that are ours by the rows but not known to us (a claim whose answer was lost), `resume` applies
    the policy to interrupted turns: queues them again, asks, or leaves them; what it leaves because
    it has become too old is told, once; `announce` tells each conversation this node works for what
    the drain means to it, `greet` those who asked for the restart that is now done; all return what
    they appended. `lease_s` is how long a lease lasts that nobody renews; None where holding the
    store is the lease.
    Requires: `join` before anything else.
    Raises: `Transient`.
    After a crash: the next node's `reap` does it all again, from the rows.
    """

    @property
    def lease_s(self) -> float | None: ...

    async def join(self, *, name: str) -> bool: ...

    async def beat(self) -> bool: ...

    async def reap(self, *, attempts_max: int, limit: int) -> list[Recorded]: ...

    async def reclaim(self, *, known: Sequence[TurnId], attempts_max: int) -> list[Recorded]: ...

    async def resume(self, policy: Policy, *, limit: int) -> Resumed: ...

    async def announce(self, policy: Policy, drain: Drain) -> list[Recorded]: ...

    async def greet(self) -> list[Recorded]: ...

    async def leave(self, *, restart_session: SessionId | None = None) -> None: ...
