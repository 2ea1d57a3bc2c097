"""The writing ports, each method one transaction of `operations/`."""

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from perdure.domain.announcing import Drain
from perdure.domain.delivery import PartState
from perdure.domain.events import AnyEvent, Recorded
from perdure.domain.ids import (
    MessageId,
    NodeId,
    PartId,
    PrincipalId,
    SessionId,
    TurnId,
)
from perdure.domain.menu import PLAIN, Menu
from perdure.domain.outcomes import Asked, Interruption
from perdure.domain.recovery import Policy
from perdure.domain.updates import Accepted, Update
from perdure.ports.history import Page
from perdure.ports.inbox import Reception
from perdure.ports.outbox import Bubble, Part
from perdure.ports.principals import LONGEST, Principal, TokenView
from perdure.ports.turns import (
    Claimed,
    Lease,
    Piece,
    Resumed,
    Settled,
    Settlement,
    Unfinished,
)
from perdure.store.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations import (
    accept,
    nodes,
    outbox,
    principals,
    recovery,
    replies,
    search,
    speakers,
    turns,
)
from perdure.store.operations.setting import Fresh, Stamp
from perdure.store.statement import Op

INDEX_EVERY: Final = 32


class StoredInbox:
    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
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
            )
        )

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(turns.amend, self._driver.dialect, turn, text, stamp, by=by)
        )

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(turns.stop, self._driver.dialect, turn, stamp, by=by)
        )


class StoredTurns:
    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node
        self._unindexed = 0

    async def claim(self, *, limit: int) -> list[Claimed]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(turns.claim, self._driver.dialect, stamp, limit=limit)
        )

    async def next_claim_ms(self) -> int | None:
        return await self._driver.read(turns.next_claim)

    async def flush(self, pieces: Sequence[Piece]) -> list[Lease]:
        written = await self._driver.write(partial(self._driver.dialect.flush, pieces))
        leases = [piece.lease for piece in pieces]
        return [lease for lease in leases if (lease.turn, lease.attempt) not in written]

    async def append(
        self, lease: Lease, events: Sequence[AnyEvent], *, piece: Piece | None = None
    ) -> list[Recorded]:
        return await self._driver.write(
            partial(
                turns.append,
                self._driver.dialect,
                lease,
                events,
                piece=piece,
                at=self._mint.now_ms(),
            )
        )

    async def take_steers(self, lease: Lease) -> list[Recorded]:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(turns.take_steers, self._driver.dialect, lease, at=at)
        )

    async def settle(self, lease: Lease, settlement: Settlement) -> Settled:
        stamp = self._mint.stamp(self._node)
        self._unindexed += 1
        if self._unindexed < INDEX_EVERY:
            return await self._driver.write(
                partial(turns.settle, self._driver.dialect, lease, settlement, stamp)
            )
        self._unindexed = 0
        return await self._driver.write(partial(self._settle_and_index, lease, settlement, stamp))

    def _settle_and_index(self, lease: Lease, settlement: Settlement, stamp: Stamp) -> Op[Settled]:
        settled = yield from turns.settle(self._driver.dialect, lease, settlement, stamp)
        yield from search.index_waiting(self._driver.dialect, limit=4 * INDEX_EVERY)
        return settled

    async def interrupt(
        self,
        lease: Lease,
        reason: Interruption,
        *,
        attempts_max: int,
        asked: Asked = Asked.NOTHING,
    ) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(
                recovery.interrupt,
                self._driver.dialect,
                lease,
                recovery.Cut(reason, asked),
                stamp,
                attempts_max=attempts_max,
            )
        )

    async def unfinished(self, *, after: TurnId | None, limit: int) -> list[Unfinished]:
        return await self._driver.read(partial(speakers.unfinished, after=after, limit=limit))

    async def turn_away(self, turn: TurnId, reason: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(turns.turn_away, self._driver.dialect, turn, reason, stamp)
        )


class StoredNodes:
    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def join(self, *, name: str) -> None:
        at = self._mint.now_ms()
        await self._driver.write(partial(nodes.join, self._driver.dialect, self._node, name, at=at))

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
            partial(
                recovery.reclaim,
                self._driver.dialect,
                stamp,
                known=known,
                attempts_max=attempts_max,
            )
        )

    async def resume(self, policy: Policy, *, limit: int) -> Resumed:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(recovery.resume, self._driver.dialect, policy, stamp, limit=limit)
        )

    async def announce(self, policy: Policy, drain: Drain) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(recovery.announce, self._driver.dialect, policy, drain, stamp)
        )

    async def greet(self) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(nodes.greet, self._driver.dialect, stamp))

    async def leave(self, *, restart_session: SessionId | None = None) -> None:
        at = self._mint.now_ms()
        await self._driver.write(
            partial(nodes.leave, self._node, at=at, restart_session=restart_session)
        )


class StoredOutbox:
    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def take(self, *, adapter: str, limit: int) -> list[Part]:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(outbox.take, adapter, self._node, limit=limit, at=at)
        )

    async def record(
        self,
        part: PartId,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
        attempt: int = 0,
    ) -> None:
        at = self._mint.now_ms()
        due_at = at + math.ceil(due_in_s * 1000)
        await self._driver.write(
            partial(
                outbox.record,
                part,
                state,
                receipt=receipt,
                error=error,
                due_at=due_at,
                at=at,
                attempt=attempt,
            )
        )

    async def bubble(self, lease: Lease, index: int, text: str) -> Bubble:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(replies.bubble, lease, index, text, stamp))

    async def forget_bubble(self, turn: TurnId, index: int) -> None:
        at = self._mint.now_ms()
        await self._driver.write(partial(replies.forget_bubble, turn, index, self._node, at=at))

    async def go_ahead(self, lease: Lease, parts: Sequence[str]) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(replies.go_ahead, lease, parts, stamp))

    async def post_instead(self, part: PartId, *, error: str, attempt: int = 0) -> None:
        at = self._mint.now_ms()
        await self._driver.write(
            partial(outbox.post_instead, part, error=error, at=at, attempt=attempt)
        )

    async def defer(self, part: PartId, *, due_in_s: float, attempt: int) -> None:
        at = self._mint.now_ms()
        due_at = at + math.ceil(due_in_s * 1000)
        await self._driver.write(partial(outbox.defer, part, due_at=due_at, at=at, attempt=attempt))

    async def divide(self, part: PartId, texts: Sequence[str], *, attempt: int = 0) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(outbox.divide, part, texts, stamp, attempt=attempt))

    async def release(self, *, adapter: str, keep: Sequence[PartId] = ()) -> int:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(outbox.release, adapter, self._node, keep=keep, at=at)
        )

    async def stranded(self, *, adapter: str) -> list[Part]:
        return await self._driver.read(partial(outbox.stranded, self._driver.dialect, adapter))

    async def expire(self, *, older_than_s: int) -> int:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(outbox.expire, before=at - older_than_s * 1000, at=at)
        )

    async def next_due_ms(self) -> int | None:
        return await self._driver.read(outbox.next_due)


class StoredPrincipals:
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
