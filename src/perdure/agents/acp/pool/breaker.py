"""Lets a program rest that crashes again and again."""

from typing import Final

from perdure.domain.errors import Transient
from perdure.ports.system.clock import Clock

# How many crashes in a row are answered by another start at once.
AT_ONCE: Final = 3
REST_FIRST_S: Final = 1.0
REST_LAST_S: Final = 300.0


class Breaker:
    """Counts crashes in a row, and says how long nothing is started after them. Each further crash
    doubles the rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._crashes = 0
        self._until_s = 0.0
        self.cause = ""

    @property
    def rest_s(self) -> float:
        """Return how long nothing may be started from now on; 0 if it may be started now."""
        return max(self._until_s - self._clock.monotonic_s(), 0.0)

    def check(self) -> None:
        """Raise `Transient` while the program rests."""
        if self.rest_s:
            raise Transient(
                f"the agent rests for {self.rest_s:.0f} s after {self._crashes} crashes in a row; "
                f"the last one: {self.cause}",
                retry_after_s=self.rest_s,
            )

    def failed(self, cause: str) -> None:
        """Count a crash, or a start that has failed."""
        self._crashes += 1
        self.cause = cause
        if self._crashes >= AT_ONCE:
            rest_s = min(REST_FIRST_S * 2 ** min(self._crashes - AT_ONCE, 20), REST_LAST_S)
            self._until_s = self._clock.monotonic_s() + rest_s

    def worked(self) -> None:
        """Note that a prompt was answered."""
        self._crashes = 0
        self._until_s = 0.0
        self.cause = ""
