"""Keeps the time of this node's last heartbeat.

While turns run, a node stores a heartbeat every `HEARTBEAT_MS`. If the node dies, the next start
needs to know how long its turns had run. A commit for the heartbeat alone costs as much as a commit
that stores text, so a commit of text also carries the heartbeat when the next one is near.
"""

from typing import Final

from perdure.domain.cadence import CADENCE_MAX_S
from perdure.domain.turn.recovery import HEARTBEAT_MS
from perdure.ports.system.clock import Clock

BEAT_AT_WORK_S: Final = HEARTBEAT_MS / 1000
# A flush carries the heartbeat if it is due within this time. It is a little longer than the pauses
# between the flushes of a message (`CADENCE_MAX_S`), so while text streams, flushes carry them all.
_NEAR_S: Final = CADENCE_MAX_S + 0.01


class Heartbeat:
    """Tells when the next heartbeat is due. Used by the heartbeat loop and by the flusher."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said_s = clock.monotonic_s()

    @property
    def is_near(self) -> bool:
        """Tell whether a commit that is about to be made should also carry the heartbeat."""
        return self.left_s <= _NEAR_S

    @property
    def left_s(self) -> float:
        """Return the seconds until the next heartbeat is due while turns run; negative if late."""
        return self._said_s + BEAT_AT_WORK_S - self._clock.monotonic_s()

    def said(self, at_s: float) -> None:
        """Note a committed heartbeat. `at_s` is the time at which its write began: the write may
        take long, and the store has recorded a time from its beginning."""
        self._said_s = max(self._said_s, at_s)
