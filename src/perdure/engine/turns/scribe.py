"""Makes an agent's text durable before anyone sees it.

The first piece is flushed at once. After that at most one flush of a turn is under way, and none
begins sooner than `CADENCE_S` after the last one was committed. So there is never a commit per
token: flushes become rarer under load, and while a message grows (`domain/cadence.py`). Text that
is still in the buffer when the message ends goes into the transaction that makes the message final.

A short piece is stored again, with the words that came since, until it is `PIECE_MIN` long. So few
words become few rows, which fit on a page, and no flush writes much that is stored already.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from perdure.domain.cadence import pause_s
from perdure.domain.ids import MessageId
from perdure.domain.journal.events import AnyEvent
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.engine.turns.ledger import Ledger
from perdure.ports.turns.turns import TextPiece

# A piece of at least this many code points is not stored again. With its key it then takes about a
# quarter of a page of SQLite, which a row must not exceed to stand on one page.
PIECE_MIN: Final = 80


class Scribe:
    """Stores one assistant message while it streams."""

    def __init__(
        self,
        ledger: Ledger,
        message: MessageId,
        *,
        scribbling: asyncio.TaskGroup,
        acknowledgements: Sequence[AnyEvent],
        origin: Callable[[], RequestOrigin] = lambda: NOTHING_ASKED,
    ) -> None:
        """Begin a message. `origin` is asked at its first words for what its request was made
        from."""
        self._origin = origin
        self.message = message
        self.acknowledgements = tuple(acknowledgements)
        self._ledger = ledger
        self._clock = ledger.clock
        self._scribbling = scribbling
        self._buffer: list[str] = []
        self._flushed: list[str] = []
        self._flushed_length = 0
        self._growing = ""
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
        """Add a piece of the agent's text, and start to flush if no flushing is under way."""
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
        """Make the buffer durable, then show it. If the process dies in between, nobody has seen
        the text, and the store has it."""
        async with self._in_flight:
            text = "".join(self._buffer)
            self._buffer.clear()
            if not text:
                return
            is_first, known = not self._flushed_length, self._growing
            piece = TextPiece(
                lease=self._ledger.lease,
                message=self.message,
                start=self._flushed_length - len(known),
                text=known + text,
                origin=self._origin() if is_first else NOTHING_ASKED,
            )
            # Counted before the write returns: if this is cancelled in between, the text may be
            # stored all the same, and the final message must contain it.
            self._flushed.append(text)
            self._flushed_length += len(text)
            # The first piece stays alone: by its start the flusher knows the first words, which
            # wait for nobody.
            is_full = is_first or len(piece.text) >= PIECE_MIN
            self._growing = "" if is_full else piece.text
            # The first words after a note about interruptions are stored together with the record
            # that the model was told of these, so a crash never leaves one without the other.
            await self._ledger.flush(piece, known=len(known), events=self.acknowledgements)
            self.acknowledgements = ()

    async def finish(self) -> str:
        """Stop flushing, and return the whole text. The caller stores it with its unflushed rest.

        A write under way is waited for. Otherwise it could be committed after the message was made
        final, and leave a second message of the same text, or a second acknowledgement.
        """
        async with self._in_flight:
            if self._task is not None:
                self._task.cancel()
                self._task = None
            return self.text
