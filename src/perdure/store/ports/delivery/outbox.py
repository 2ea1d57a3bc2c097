"""Implements the port of what is sent to platforms."""

import math
from collections.abc import Sequence
from functools import partial

from perdure.domain.delivery import PartState
from perdure.domain.ids import NodeId, PartId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.waits import due_at
from perdure.ports.delivery.outbox import Bubble, Expired, Part, Rivals
from perdure.ports.turns.turns import TurnLease
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.delivery import dividing, doubts, outbox, replies, undelivered
from perdure.store.operations.questions import question_rows
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import waiting
from perdure.store.statement import MakeOp, Op


class StoredOutbox:
    """Implements `Outbox`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def take(self, *, adapter: str, limit: int) -> list[Part]:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(outbox.take, adapter, self._node, limit=limit, at=at)
        )

    async def record(  # noqa: PLR0913 - all that is known of a try
        self,
        part: PartId,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
        attempt: int = 0,
        moved_to: str = "",
    ) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        record = partial(
            undelivered.record,
            part,
            state,
            stamp,
            receipt=receipt,
            error=error,
            due_at=_due(stamp.at, due_in_s),
            attempt=attempt,
            moved_to=moved_to,
        )
        return await self._driver.write(partial(_with_questions, record, part, stamp))

    async def bubble(self, lease: TurnLease, index: int, text: str) -> Bubble | None:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(replies.bubble, lease, index, text, stamp))

    async def may_show(self, lease: TurnLease) -> bool:
        return await self._driver.read(partial(replies.may_show, lease))

    async def forget_bubble(self, turn: TurnId, index: int) -> None:
        at = self._mint.now_ms()
        await self._driver.write(partial(replies.forget_bubble, turn, index, self._node, at=at))

    async def go_ahead(self, lease: TurnLease, parts: Sequence[str]) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(replies.go_ahead, lease, parts, stamp))

    async def post_instead(self, part: PartId, *, error: str, attempt: int = 0) -> None:
        at = self._mint.now_ms()
        await self._driver.write(
            partial(outbox.post_instead, part, error=error, at=at, attempt=attempt)
        )

    async def defer(self, part: PartId, *, due_in_s: float, attempt: int) -> None:
        at = self._mint.now_ms()
        due = _due(at, due_in_s)
        await self._driver.write(partial(outbox.defer, part, due_at=due, at=at, attempt=attempt))

    async def divide(self, part: PartId, texts: Sequence[str], *, attempt: int = 0) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(dividing.divide, part, texts, stamp, attempt=attempt))

    async def release(self, *, adapter: str, keep: Sequence[PartId] = ()) -> int:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(outbox.release, adapter, self._node, keep=keep, at=at)
        )

    async def stranded(self, *, adapter: str) -> list[Part]:
        dialect, at = self._driver.dialect, self._mint.now_ms()
        return await self._driver.read(
            partial(doubts.stranded, dialect, adapter, self._node, at=at)
        )

    async def doubt(self, part: PartId, *, error: str, due_in_s: float, attempt: int) -> None:
        due = _due(self._mint.now_ms(), due_in_s)
        await self._driver.write(
            partial(doubts.doubt, part, error=error, due_at=due, attempt=attempt)
        )

    async def rivals(self, part: Part) -> Rivals:
        return await self._driver.read(partial(doubts.rivals, part))

    async def expire(self, *, older_than_s: int) -> Expired:
        stamp = self._mint.stamp(self._node)
        before = stamp.at - older_than_s * 1000
        return await self._driver.write(partial(_expire, stamp, before=before))

    async def next_due_ms(self) -> int | None:
        return await self._driver.read(partial(outbox.next_due, at=self._mint.now_ms()))


def _with_questions(
    record: MakeOp[list[Recorded]], part: PartId, stamp: Stamp
) -> Op[list[Recorded]]:
    """Record the result of an attempt. In the same transaction, end the wait for the question that
    the part asks, if nobody will see it."""
    recorded = yield from record()
    return recorded + (yield from waiting.undeliverable(part, stamp))


def _expire(stamp: Stamp, *, before: int) -> Op[Expired]:
    """Give up parts that could not be sent in time, and the questions that they ask."""
    expired = yield from undelivered.expire(stamp, before=before)
    recorded = list(expired.recorded)
    for part in (yield from question_rows.lost_parts()):
        recorded += yield from waiting.undeliverable(part, stamp)
    return Expired(parts=expired.parts, recorded=recorded)


def _due(now_ms: int, wait_s: float) -> int:
    """Return the instant after this wait, rounded up to a whole millisecond."""
    return due_at(now_ms, math.ceil(wait_s * 1000))
