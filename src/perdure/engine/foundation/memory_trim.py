"""Gives memory back to the system when a node has become quiet.

Busy hours fill caches and leave holes in the heap. Running turns reuse that memory; in a quiet node
it is only missing for other programs on the same machine. An idle node does no work here: each turn
that ends, and each cache that has dropped something, asks for one trim after the next quiet period.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from perdure.engine.foundation.timed_waits import happens_within
from perdure.ports.system.clock import Clock

# Memory is trimmed when nothing has stirred for this long.
QUIET_S: Final = 10.0
# A node that is never quiet is trimmed anyway, at most once in this time.
BUSY_S: Final = 600.0


class MemoryTrim:
    """Trims memory after activity. `shrink` empties the caches of the store; `give_back` then
    returns free memory to the system. It may block, so it runs in a thread."""

    def __init__(
        self,
        shrink: Callable[[], Awaitable[None]],
        give_back: Callable[[], None],
        *,
        clock: Clock,
    ) -> None:
        self._shrink = shrink
        self._give_back = give_back
        self._clock = clock
        self._stirred = asyncio.Event()
        self._over = asyncio.Event()
        self._stirred_s = 0.0

    def stir(self) -> None:
        """Ask for a trim: something that used memory has ended or was dropped."""
        self._stirred_s = self._clock.monotonic_s()
        self._stirred.set()

    def stop(self) -> None:
        self._over.set()
        self._stirred.set()

    async def run(self) -> None:
        while True:
            await self._stirred.wait()
            since_s = self._clock.monotonic_s()
            while not self._over.is_set() and (left_s := self._left_s(since_s)) > 0:
                await happens_within(self._over, within_s=left_s)
            if self._over.is_set():
                return
            # Cleared before the trim: activity during the trim asks for the next one.
            self._stirred.clear()
            await self._shrink()
            await asyncio.to_thread(self._give_back)

    def _left_s(self, since_s: float) -> float:
        return min(self._stirred_s + QUIET_S, since_s + BUSY_S) - self._clock.monotonic_s()
