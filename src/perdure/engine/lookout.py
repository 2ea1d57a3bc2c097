"""When a pump looks at its rows again: once it is woken, or once the next of them is due."""

import asyncio
from typing import Final

from perdure.engine.patience import happens
from perdure.ports.clock import Clock

# What was due and could not be taken is looked for again after this.
LEFT_S: Final = 1.0


class Lookout:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wake = asyncio.Event()
        self._looked_at = 0

    def wake(self) -> None:
        self._wake.set()

    def begin(self) -> None:
        """Whoever wakes us from now on has something that the next look may miss."""
        self._wake.clear()

    def look(self) -> None:
        self._looked_at = self._clock.now_ms()

    async def wait(self, due_ms: int | None, *, at_most_s: float) -> None:
        wait_s = at_most_s
        if due_ms is not None:
            left_s = max(due_ms - self._clock.now_ms(), 0) / 1000
            wait_s = min(wait_s, left_s if due_ms > self._looked_at else LEFT_S)
        await happens(self._wake, within_s=wait_s)
