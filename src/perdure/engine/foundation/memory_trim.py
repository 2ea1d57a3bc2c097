"""Gives memory back when a node has come to rest.

Busy hours fill caches and leave holes in the heap. While turns run that is reused; at rest it is
only taken from others on the same machine. Nothing is looked for while nothing happens: each turn
that ends, and each cache that has dropped something, asks for one look once it has been quiet.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from perdure.engine.foundation.timed_waits import happens_within
from perdure.ports.system.clock import Clock

QUIET_S: Final = 10.0
# A node that is never quiet for so long gives back all the same, not more often than this.
BUSY_S: Final = 600.0


class MemoryTrim:
    """`shrink` empties the caches of the store; `give_back` then returns to the system what is
    free, and may block for a moment."""

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
        """Take note that something was done, or let go of, that took memory."""
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
            # Whoever stirs from now on is looked after the next time.
            self._stirred.clear()
            await self._shrink()
            await asyncio.to_thread(self._give_back)

    def _left_s(self, since_s: float) -> float:
        return min(self._stirred_s + QUIET_S, since_s + BUSY_S) - self._clock.monotonic_s()
