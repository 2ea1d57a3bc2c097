"""Knows when this node last said that it lives.

While turns run a node says so every `HEARTBEAT_MS`: if it dies, the next start must know how long
they had lived. A commit only for that costs as much as one that stores text, so whoever stores text
says it along when the next heartbeat is near.
"""

from typing import Final

from perdure.domain.turn.recovery import HEARTBEAT_MS
from perdure.ports.system.clock import Clock

BEAT_AT_WORK_S: Final = HEARTBEAT_MS / 1000
# Text that keeps coming is flushed once in this time at least, so its flushes carry all heartbeats.
_NEAR_S: Final = 0.15


class Heartbeat:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_s = clock.monotonic_s()

    @property
    def is_near(self) -> bool:
        """Tell whether a commit that is about to be made should say it along."""
        return self.left_s <= _NEAR_S

    @property
    def left_s(self) -> float:
        """Return how long nobody needs to say it, if the node is at work."""
        return self._said_s + BEAT_AT_WORK_S - self._clock.monotonic_s()

    def said(self, at_s: float) -> None:
        """Note a heartbeat that was committed. `at_s` is when its write began: that is the instant
        which the store has."""
        self._said_s = max(self._said_s, at_s)
