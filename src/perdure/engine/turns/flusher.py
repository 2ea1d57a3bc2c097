"""Stores growing text of many turns at once, so that a busy node makes few commits."""

import asyncio
from collections.abc import Sequence
from functools import partial

from perdure.domain.errors import Fenced, PerdureError
from perdure.engine.foundation.heartbeat import Heartbeat
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import TextPiece, Turns

FLUSH_BATCH_MAX = 500
# How long a flush waits for others: timers that end at the same instant fire within this time.
TOGETHER_S = 0.003


class Flusher:
    """Sends the flushes of many turns to the store together: one statement, one commit. If the
    node's next heartbeat is due soon, it goes into the same commit."""

    def __init__(self, turns: Turns, *, clock: Clock, start: Start, heartbeat: Heartbeat) -> None:
        self._turns = turns
        self._clock = clock
        self._start = start
        self._heartbeat = heartbeat
        self._waiting: list[tuple[TextPiece, asyncio.Future[None]]] = []
        self._is_flushing = False

    async def flush(self, piece: TextPiece) -> None:
        """Store a piece of text. It is durable when this returns. Raises `Fenced` if the turn no
        longer belongs to this process."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((piece, done))
        if not self._is_flushing:
            self._is_flushing = True
            self._start(self._flush_all(), name="flush")
        await done

    async def _flush_all(self) -> None:
        try:
            if all(piece.start for piece, _ in self._waiting):
                # None of these are first words: wait for other turns that flush at this instant.
                await self._clock.sleep(TOGETHER_S)
            while self._waiting:
                batch = self._waiting[:FLUSH_BATCH_MAX]
                del self._waiting[:FLUSH_BATCH_MAX]
                await attempt(self._flush_batch(batch), partial(_refuse, batch))
        finally:
            self._is_flushing = False

    async def _flush_batch(self, batch: Sequence[tuple[TextPiece, "asyncio.Future[None]"]]) -> None:
        pieces = [piece for piece, _ in batch]
        begun_s, beats = self._clock.monotonic_s(), self._heartbeat.is_near
        flush = partial(self._turns.flush, pieces, beats=beats)
        try:
            stale = await persist(flush, clock=self._clock)
        except PerdureError as error:
            await _refuse(batch, error)
            return
        if beats:
            self._heartbeat.said(begun_s)
        fenced = {lease.turn for lease in stale}
        for piece, done in batch:
            if done.done():
                continue
            if piece.lease.turn in fenced:
                done.set_exception(Fenced(f"turn {piece.lease.turn} is no longer ours"))
            else:
                done.set_result(None)


async def _refuse(
    batch: Sequence[tuple[TextPiece, "asyncio.Future[None]"]], error: Exception
) -> None:
    """Raise an error in every `flush` that waits for this batch. Else they would wait forever."""
    for _, done in batch:
        if not done.done():
            done.set_exception(error)
