"""Implements the inbox, turns, nodes and principals. Each method is one transaction or one
snapshot."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import msgspec

from perdure.domain.ids import (
    MessageId,
    NodeId,
    PrincipalId,
    SessionId,
    TurnId,
)
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import (
    AnyEvent,
    Recorded,
)
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.people.menu import PLAIN, Menu
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.prompt.prefix import NOTHING_ASKED, KeptText, RequestOrigin
from perdure.domain.turn.announcing import Drain
from perdure.domain.turn.recovery import Policy
from perdure.domain.turn.spent import NOTHING_SPENT, Spent
from perdure.ports.agents.delegations import WorkOrder
from perdure.ports.people.places import PostedCall, TurnPosting
from perdure.ports.people.principals import LONGEST, Principal, TokenView
from perdure.ports.records.history import Page
from perdure.ports.turns.inbox import Reception
from perdure.ports.turns.turns import (
    Claimed,
    Resumed,
    Settled,
    Settlement,
    TextPiece,
    TurnLease,
    Unfinished,
)
from perdure.store.drivers.dialect import Written
from perdure.store.drivers.driver import Driver
from perdure.store.known_texts import KnownTexts
from perdure.store.mint import Mint
from perdure.store.operations import nodes
from perdure.store.operations.accepting import accept, postings
from perdure.store.operations.people import principals, speakers
from perdure.store.operations.reading import search
from perdure.store.operations.turn_context import Fresh, Stamp
from perdure.store.operations.turns import claiming, recovery, turns, waiting
from perdure.store.statement import Op

# One in so many settlements also indexes the turns that wait: indexing each turn by itself would
# cost much more.
INDEX_EVERY: Final = 32


class StoredInbox:
    """Implements `Inbox`: accepts, amends and stops."""

    def __init__(
        self, driver: Driver, mint: Mint, node: NodeId, *, quota: Quota = NO_QUOTA
    ) -> None:
        self._quota = quota
        self._driver = driver
        self._mint = mint
        self._node = node

    async def accept(self, update: Update, *, queue_max: int, menu: Menu = PLAIN) -> Accepted:
        return (await self._accept(update, menu, queue_max, may_begin=False)).accepted

    async def accept_and_start(
        self, update: Update, *, queue_max: int, menu: Menu = PLAIN
    ) -> Reception:
        return await self._accept(update, menu, queue_max, may_begin=True)

    async def _accept(
        self, update: Update, menu: Menu, queue_max: int, *, may_begin: bool
    ) -> Reception:
        """Accept an update. Its ids are made before the transaction: if the driver runs the
        transaction again, it uses the same ids."""
        fresh = Fresh(turn=TurnId(self._mint.id("trn")), message=MessageId(self._mint.id("msg")))
        return await self._driver.write(
            partial(
                accept.accept,
                self._driver.dialect,
                update,
                fresh,
                self._mint.stamp(self._node),
                menu=menu,
                queue_max=queue_max,
                may_begin=may_begin,
                quota=self._quota,
            )
        )

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(turns.amend, turn, text, stamp, by=by))

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(turns.stop, turn, stamp, by=by))


class StoredTurns:
    """Implements `Turns`: claims turns, and writes for their runners under their leases."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node
        self._unindexed = 0
        self._kept = KnownTexts()

    async def claim(self, *, limit: int, shares: FairShares = EQUAL) -> list[Claimed]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(claiming.claim, stamp, limit=limit, shares=shares))

    async def next_claim_ms(self, *, shares: FairShares = EQUAL) -> int | None:
        at = self._mint.now_ms()
        return await self._driver.read(partial(claiming.next_claim, at=at, shares=shares))

    async def flush(self, pieces: Sequence[TextPiece], *, beats: bool = False) -> list[TurnLease]:
        """Write pieces of growing text, and with `beats` renew the node's lease in the same commit.
        Returns the leases that were lost; their pieces were not written."""
        new = self._kept.unknown([text for piece in pieces for text in piece.origin.texts])
        flush = partial(turns.flush, self._driver.dialect, pieces, new)
        if beats:
            flush = partial(self._flush_and_beat, pieces, new, at=self._mint.now_ms())
        written = await self._driver.write(flush)
        # Only after the commit: otherwise a failed write would leave a text missing that later
        # turns take for stored.
        self._kept.learn(new)
        leases = [piece.lease for piece in pieces]
        return [lease for lease in leases if (lease.turn, lease.attempt) not in written]

    def _flush_and_beat(
        self, pieces: Sequence[TextPiece], new: Sequence[KeptText], *, at: int
    ) -> Op[set[Written]]:
        """Write pieces and renew the node's lease. The result of the heartbeat is not used: each
        piece is judged by its own lease."""
        written = yield from turns.flush(self._driver.dialect, pieces, new)
        yield from nodes.beat(self._driver.dialect, self._node, at=at)
        return written

    async def append(
        self,
        lease: TurnLease,
        events: Sequence[AnyEvent],
        *,
        piece: TextPiece | None = None,
        origin: RequestOrigin = NOTHING_ASKED,
    ) -> list[Recorded]:
        new = self._kept.unknown(origin.texts)
        append = partial(
            turns.append,
            self._driver.dialect,
            lease,
            events,
            piece=piece,
            origin=msgspec.structs.replace(origin, texts=new),
            stamp=self._mint.stamp(self._node),
        )
        recorded = await self._driver.write(append)
        self._kept.learn(new)
        return recorded

    async def take_steers(self, lease: TurnLease) -> list[Recorded]:
        at = self._mint.now_ms()
        return await self._driver.write(partial(turns.take_steers, lease, at=at))

    async def tell(self, lease: TurnLease, text: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(turns.tell, lease, text, stamp))

    async def tell_still(self, lease: TurnLease, text: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(turns.tell_still, lease, text, stamp))

    async def settle(self, lease: TurnLease, settlement: Settlement) -> Settled:
        """Settle a turn. Every `INDEX_EVERY` settlements, also index the turns that wait for it."""
        stamp = self._mint.stamp(self._node)
        new = self._kept.unknown(settlement.asked.texts)
        asked = msgspec.structs.replace(settlement.asked, texts=new)
        final = msgspec.structs.replace(settlement, asked=asked)
        settle = partial(turns.settle, lease, final, stamp)
        self._unindexed += 1
        if self._unindexed >= INDEX_EVERY:
            self._unindexed = 0
            settle = partial(self._settle_and_index, lease, final, stamp)
        settled = await self._driver.write(settle)
        self._kept.learn(new)
        return settled

    def _settle_and_index(
        self, lease: TurnLease, settlement: Settlement, stamp: Stamp
    ) -> Op[Settled]:
        """Settle a turn and index waiting turns, in one transaction."""
        settled = yield from turns.settle(lease, settlement, stamp)
        yield from search.index_waiting(self._driver.dialect, limit=4 * INDEX_EVERY)
        return settled

    async def wait(
        self,
        lease: TurnLease,
        questions: Sequence[AnswerAwaited],
        work: Sequence[WorkOrder] = (),
        *,
        spent: Spent = NOTHING_SPENT,
        live_max: int = 0,
    ) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        wait = partial(waiting.wait, lease, questions, work, spent, stamp, live_max=live_max)
        return await self._driver.write(wait)

    async def post(
        self, lease: TurnLease, posting: TurnPosting, *, why: str, queue_max: int
    ) -> PostedCall:
        fresh = Fresh(turn=TurnId(self._mint.id("trn")), message=MessageId(self._mint.id("msg")))
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(postings.post, lease, posting, fresh, stamp, why=why, queue_max=queue_max)
        )

    async def interrupt(
        self,
        lease: TurnLease,
        reason: Interruption,
        *,
        attempts_max: int,
        asked: NodeRequest = NodeRequest.NOTHING,
        spent: Spent = NOTHING_SPENT,
    ) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(
                recovery.interrupt,
                lease,
                recovery.Cut(reason, asked, spent),
                stamp,
                attempts_max=attempts_max,
            )
        )

    async def unfinished(self, *, after: TurnId | None, limit: int) -> list[Unfinished]:
        return await self._driver.read(partial(speakers.unfinished, after=after, limit=limit))

    async def turn_away(self, turn: TurnId, reason: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(turns.turn_away, turn, reason, stamp))


class StoredNodes:
    """Implements `Nodes`: the life of this process, and recovery of turns whose process is gone."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    @property
    def lease_s(self) -> float | None:
        """Return how long a lease lasts without a heartbeat; None if the store has one owner and
        needs none."""
        return None if self._driver.dialect.is_exclusive else nodes.LEASE_MS / 1000

    async def join(self, *, name: str) -> bool:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(nodes.join, self._driver.dialect, self._node, name, at=at)
        )

    async def beat(self) -> bool:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(nodes.beat, self._driver.dialect, self._node, at=at)
        )

    async def reap(self, *, attempts_max: int, limit: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(
                recovery.reap, self._driver.dialect, stamp, attempts_max=attempts_max, limit=limit
            )
        )

    async def reclaim(self, *, known: Sequence[TurnId], attempts_max: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(recovery.reclaim, stamp, known=known, attempts_max=attempts_max)
        )

    async def resume(self, policy: Policy, *, limit: int) -> Resumed:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(recovery.resume, policy, stamp, limit=limit))

    async def announce(self, policy: Policy, drain: Drain) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(recovery.announce, policy, drain, stamp))

    async def greet(self, *, tells_homes: bool = False) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        dialect = self._driver.dialect
        return await self._driver.write(
            partial(nodes.greet, dialect, stamp, tells_homes=tells_homes)
        )

    async def leave(
        self,
        *,
        restart_session: SessionId | None = None,
        asked: NodeRequest = NodeRequest.STOP,
    ) -> None:
        at = self._mint.now_ms()
        await self._driver.write(
            partial(nodes.leave, self._node, at=at, restart_session=restart_session, asked=asked)
        )


class StoredPrincipals:
    """Implements `Principals`: who there is, and the tokens that stand for them."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def ensure(self, name: str, *, role: str) -> Principal:
        principal = PrincipalId(self._mint.id("prn"))
        at = self._mint.now_ms()
        return await self._driver.write(partial(principals.ensure, principal, name, role, at=at))

    async def appoint(self, name: str, *, role: str) -> Principal:
        principal = PrincipalId(self._mint.id("prn"))
        at = self._mint.now_ms()
        return await self._driver.write(partial(principals.appoint, principal, name, role, at=at))

    async def platforms_operators(self, names: Collection[str]) -> None:
        await self._driver.write(partial(principals.platforms_operators, names))

    async def by_token(self, token: str) -> Principal | None:
        return await self._driver.read(partial(principals.by_token, token))

    async def grant(self, principal: PrincipalId, token: str) -> TokenView:
        token_id, at = self._mint.id("tok"), self._mint.now_ms()
        return await self._driver.write(
            partial(principals.grant, token_id, principal, token, at=at)
        )

    async def revoke(self, which: str) -> TokenView:
        return await self._driver.write(partial(principals.revoke, which, at=self._mint.now_ms()))

    async def tokens(self, page: Page = LONGEST) -> list[TokenView]:
        return await self._driver.read(partial(principals.tokens, page))
