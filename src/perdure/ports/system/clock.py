"""Defines the port of time."""

from typing import Protocol


class Clock(Protocol):
    """Provides time. There is no other source of it.

    Guarantees: setting the clock of the machine changes `now_ms` only.
    Requires: nothing.
    Raises: nothing but cancellation.
    After a crash: nothing is kept.
    """

    def now_ms(self) -> int:
        """Return UTC milliseconds since 1970. This clock may be set at any moment."""

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary beginning. This clock never goes back."""

    def paused_s(self) -> float:
        """Return how long the process has stood still so far, as far as that was noticed: while
        something is limited in time (`ports/system/time_limits.py`)."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this long, and no less."""
