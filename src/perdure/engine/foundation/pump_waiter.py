"""Waits until a pump should look at its rows again: when it is woken, when the next row is due, or
when the wall clock was set."""

from typing import Final

from perdure.engine.foundation.timed_waits import ClockWatch, happens_within
from perdure.engine.foundation.wakes import Waiter
from perdure.ports.system.clock import Clock

# A row that was already due at the last look and could not be taken is tried again after this time.
LEFT_S: Final = 1.0


class PumpWaiter:
    """Pauses one pump between its looks. In each round call `begin`, then `look` right before the
    rows are read, then `wait`; so no wake-up between the look and the wait is lost."""

    def __init__(self, waiter: Waiter, *, clock: Clock) -> None:
        self._waiter = waiter
        self._clock = clock
        self._watch = ClockWatch(clock)
        self._looked_at = 0

    def wake(self) -> None:
        """Make the pump look again at once."""
        self._waiter.wake()

    def begin(self) -> None:
        """Start a round. A wake-up after this call ends the next `wait` at once, because the look
        in between may miss its rows."""
        self._waiter.begin()
        self._watch.begin()

    def look(self) -> None:
        """Note the time of the look, so that `wait` knows which rows it has seen as due."""
        self._looked_at = self._clock.now_ms()

    async def wait(self, due_ms: int | None, *, at_most_s: float) -> None:
        """Wait for a wake-up, for the instant `due_ms` (None if no row waits for one) or for a
        change of the clock, but at most `at_most_s`."""
        if due_ms is None:
            await happens_within(self._waiter, within_s=at_most_s)
            return
        left_s = max(due_ms - self._clock.now_ms(), 0) / 1000
        # A row that was due at the look was not taken, so waiting for `due_ms` would spin.
        wait_s = min(at_most_s, left_s if due_ms > self._looked_at else LEFT_S)
        await self._watch.wait(self._waiter, within_s=wait_s)
