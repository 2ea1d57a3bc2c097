"""When a pump looks at its rows again: once it is woken, once the next of them is due, or once the
clock was set."""

from typing import Final

from perdure.engine.foundation.timed_waits import ClockWatch, happens_within
from perdure.engine.foundation.wakes import Waiter
from perdure.ports.system.clock import Clock

# What was due and could not be taken is looked for again after this.
LEFT_S: Final = 1.0


class PumpWaiter:
    def __init__(self, waiter: Waiter, *, clock: Clock) -> None:
        self._waiter = waiter
        self._clock = clock
        self._watch = ClockWatch(clock)
        self._looked_at = 0

    def wake(self) -> None:
        """Let the pump itself look again."""
        self._waiter.wake()

    def begin(self) -> None:
        """Whoever wakes us from now on has something that the next look may miss."""
        self._waiter.begin()
        self._watch.begin()

    def look(self) -> None:
        self._looked_at = self._clock.now_ms()

    async def wait(self, due_ms: int | None, *, at_most_s: float) -> None:
        if due_ms is None:
            await happens_within(self._waiter, within_s=at_most_s)
            return
        left_s = max(due_ms - self._clock.now_ms(), 0) / 1000
        wait_s = min(at_most_s, left_s if due_ms > self._looked_at else LEFT_S)
        await self._watch.wait(self._waiter, within_s=wait_s)
