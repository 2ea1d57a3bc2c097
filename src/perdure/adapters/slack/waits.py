"""Until when Slack wants no more calls.

Slack counts posts by channel and every other method by itself, for the whole app. Whoever made a
call is told how long to wait; but much is asked by the way (a name, whom a stream is for), and by
several at once. So the end of each wait is kept here, and nothing is asked before it.
"""

from typing import Final

from perdure.adapters.slack.recent import Recent
from perdure.adapters.slack.refusals import BY_CHANNEL
from perdure.ports.system.clock import Clock

KEPT_MAX: Final = 1_000


class Waits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_s: Recent[float] = Recent(KEPT_MAX)

    def keep(self, method: str, channel: object, wait_s: float) -> None:
        self._ends_s[_counted(method, channel)] = self._clock.monotonic_s() + wait_s

    def left_s(self, method: str, channel: object) -> float:
        """How long this call has to wait; nothing or less if it may be made."""
        end_s = self._ends_s.get(_counted(method, channel))
        return 0 if end_s is None else end_s - self._clock.monotonic_s()


def _counted(method: str, channel: object) -> str:
    return f"{method} {channel}" if method == BY_CHANNEL else method
