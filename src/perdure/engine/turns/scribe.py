"""Makes an agent's text durable before anyone sees it.

The first piece is flushed at once; then at most one flush of a turn is under way, and none begins
sooner than `CADENCE_S` after the last one was committed. So the cadence stretches with load and
there is never a commit per token; it slows down while a message grows (`domain/cadence.py`). Text
that is still in the buffer when the message ends goes into the transaction that makes the message
final.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from perdure.domain.cadence import pause_s
from perdure.domain.errors import Fenced, PerdureError
from perdure.domain.ids import MessageId
from perdure.domain.journal.events import AnyEvent
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.turn.watching import Delta
from perdure.engine.foundation.heartbeat import Heartbeat
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.turns.ledger import Ledger
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import TextPiece, Turns

FLUSH_BATCH_MAX = 500
# Timers that end at the same instant go off within this time.
TOGETHER_S = 0.003


class Flusher:
    """Sends the flushes of many turns to the store together: one statement, one commit. When the
    node's next heartbeat is near it goes into the same commit."""

    def __init__(self, turns: Turns, *, clock: Clock, start: Start, heartbeat: Heartbeat) -> None:
        self._turns = turns
        self._clock = clock
        self._start = start
        self._heartbeat = heartbeat
        self._waiting: list[tuple[TextPiece, asyncio.Future[None]]] = []
        self._is_flushing = False

    async def flush(self, piece: TextPiece) -> None:
        """Durable when it returns; `Fenced` when the turn is no longer ours."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((piece, done))
        if not self._is_flushing:
            self._is_flushing = True
            self._start(self._flush_all(), name="flush")
        await done

    async def _flush_all(self) -> None:
        try:
            if all(piece.start for piece, _ in self._waiting):
                # No first words among them: those who flush at the same instant come along.
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
    """Nobody waits for an answer that will not come."""
    for _, done in batch:
        if not done.done():
            done.set_exception(error)


class Scribe:
    """Writes down one assistant message while it streams."""

    def __init__(
        self,
        ledger: Ledger,
        message: MessageId,
        *,
        flusher: Flusher,
        scribbling: asyncio.TaskGroup,
        acknowledgements: Sequence[AnyEvent],
        origin: Callable[[], RequestOrigin] = lambda: NOTHING_ASKED,
    ) -> None:
        """`origin` tells of the request that the message answers, from its first words on."""
        self._origin = origin
        self.message = message
        self.acknowledgements = tuple(acknowledgements)
        self._ledger = ledger
        self._lease = ledger.lease
        self._flusher = flusher
        self._clock = ledger.clock
        self._scribbling = scribbling
        self._buffer: list[str] = []
        self._flushed: list[str] = []
        self._flushed_length = 0
        self._in_flight = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._began_s = ledger.clock.monotonic_s()

    @property
    def text(self) -> str:
        return "".join(self._flushed) + "".join(self._buffer)

    @property
    def has_text(self) -> bool:
        return bool(self._buffer or self._flushed)

    def add(self, text: str) -> None:
        if not text:
            return
        if not self.has_text:
            self._began_s = self._clock.monotonic_s()
        self._buffer.append(text)
        if self._task is None:
            self._task = self._scribbling.create_task(self._flush_at_cadence())

    async def _flush_at_cadence(self) -> None:
        while self._buffer:
            await self.flush()
            now_s = self._clock.monotonic_s()
            await self._clock.sleep(pause_s(now_s, grown_s=now_s - self._began_s))
        self._task = None

    async def flush(self) -> None:
        """Make the buffer durable, then show it."""
        async with self._in_flight:
            text = "".join(self._buffer)
            self._buffer.clear()
            if not text:
                return
            piece = TextPiece(
                lease=self._lease,
                message=self.message,
                start=self._flushed_length,
                text=text,
                origin=NOTHING_ASKED if self._flushed_length else self._origin(),
            )
            # Counted before the write returns: if we are cancelled in between, the text may be
            # stored, and the final message must hold it.
            self._flushed.append(text)
            self._flushed_length += len(text)
            await self._write(piece)
            delta = Delta(
                turn=self._lease.turn, message=self.message, offset=piece.start, text=text
            )
            self._ledger.show(delta)

    async def _write(self, piece: TextPiece) -> None:
        if not self.acknowledgements:
            await self._flusher.flush(piece)
            return
        # The first model event of an attempt that carried a note: told and text, together.
        await self._ledger.append(self.acknowledgements, piece=piece)
        self.acknowledgements = ()

    async def finish(self) -> str:
        """Stop flushing; the whole text, of which the unflushed rest is the caller's to store.

        A write under way is waited for. Left alone it would be committed all the same, after the
        message had been made final: a second message of the same text, or a second
        acknowledgement.
        """
        async with self._in_flight:
            if self._task is not None:
                self._task.cancel()
                self._task = None
            return self.text
