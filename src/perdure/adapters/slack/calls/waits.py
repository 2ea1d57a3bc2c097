"""Remembers until when Slack wants no more calls of a method.

Slack limits posts by channel, and every other method for the whole app. The caller who was refused
waits, but other calls are made in passing (a name, the recipient of a stream) and by several tasks
at once. So the end of each wait is kept here, and no call of that method is sent before it.
"""

from typing import Final

from perdure.adapters.slack.calls.recent import Recent
from perdure.adapters.slack.calls.refusals import BY_CHANNEL
from perdure.ports.system.clock import Clock

KEPT_MAX: Final = 1_000


class Waits:
    """Keeps the ends of waits, by method, and for posts also by channel."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_s: Recent[float] = Recent(KEPT_MAX)

    def keep(self, method: str, channel: object, wait_s: float) -> None:
        """Note that Slack asked to wait `wait_s` seconds."""
        self._ends_s[_counted(method, channel)] = self._clock.monotonic_s() + wait_s

    def left_s(self, method: str, channel: object) -> float:
        """Return how many seconds this call has to wait; zero or less if it may be sent now."""
        end_s = self._ends_s.get(_counted(method, channel))
        return 0 if end_s is None else end_s - self._clock.monotonic_s()


def _counted(method: str, channel: object) -> str:
    """Return the key under which Slack counts a call."""
    return f"{method} {channel}" if method == BY_CHANNEL else method
