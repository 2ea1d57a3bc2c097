"""Holds what is known about agents that are away.

Each keeps a line of the calls that wait, and decides how fast it is let through. A failure counts
once: when a server goes away, all calls under way fail, and only the first tells anything new.
"""

import math
from itertools import count
from typing import Final

from perdure.domain.outcomes import StopReason
from perdure.domain.turn.stream import Stopped
from perdure.engine.models.waiting.waiting_line import WaitingLine
from perdure.ports.system.clock import Clock

TOO_MANY: Final = 429
# The pauses before new tries, and the rests of an agent, double from the first to the longest.
_FIRST_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 5.0
_FIRST_REST_S: Final = 5.0
_REST_MAX_S: Final = 60.0
# A call that has not failed after this long may have got through, so another one may follow.
_UNSURE_S: Final = 2.0
# When an agent answers again, its line is let through within about this time, with gaps of at most
# this, which shrink by this factor.
_RETURN_S: Final = 5.0
_RETURN_GAP_S: Final = 0.05
_RETURN_FASTER: Final = 0.997
# An agent fails for all if it has answered no call since, and has failed for so many searches, and
# for this share of the calls.
_SURE: Final = 3
_SURE_SHARE: Final = 0.3
# The fractional parts of its multiples are spread evenly, however many of them are used.
_GOLDEN: Final = 0.618_033_988_749_895


class AgentRest:
    """Holds whether one agent is away, and the line of the calls that wait for it."""

    def __init__(self, clock: Clock) -> None:
        self.line = WaitingLine(clock, self._gap_s)
        self.last: Stopped | None = None
        self._clock = clock
        self._failures = 0
        self._asked = 0  # how many calls were made since it answered
        self._struck: set[int] = set()  # the searches for which it has failed since it answered
        self._is_away = False
        self._failed_at = -math.inf
        self._asked_at = -math.inf
        self._rests_until = -math.inf
        self._gap_after_s = _UNSURE_S
        self._return_gap_s = _RETURN_GAP_S
        self._unreachable_at = -math.inf
        self._away_since = -math.inf
        self._spread = count(1)

    @property
    def is_resting(self) -> bool:
        """Tell whether a turn that has another agent to ask should leave this one alone."""
        return self._clock.monotonic_s() < self._rests_until

    def asks(self) -> None:
        """Note that a call is made. If the agent has failed, others leave it alone meanwhile."""
        self._asked_at = self._clock.monotonic_s()
        self._asked += 1
        if self._failures:
            self._rests_until = self._asked_at + self._rest_s()

    def is_away_since(self, instant: float) -> bool:
        """Tell whether the agent is away for everybody, and has failed at this instant or later."""
        return self._is_away and self._failed_at >= instant

    @property
    def may_be_asked_at_last(self) -> bool:
        """Tell whether a search whose time is up may ask once more: no call was made just now, and
        the server has not named a time."""
        is_named = self.last is not None and self.last.retry_after_s is not None
        return not is_named and self._clock.monotonic_s() - self._asked_at > _FIRST_WAIT_S

    def failed(self, stopped: Stopped, *, sent_at: float, order: int) -> None:
        """Note a failure before the first word. Calls that were under way when the agent went away
        all fail, and tell nothing new except that it does not fail for one call alone. Any status
        shows that something answers again at an address where nothing did."""
        if stopped.status and sent_at > self._unreachable_at > -math.inf:
            self._comes_back()
        self.last = stopped
        if stopped.may_retry and stopped.status != TOO_MANY:
            self._strike(stopped, order)
        if sent_at < self._failed_at:
            return
        now = self._failed_at = self._clock.monotonic_s()
        self._failures += 1
        self._gap_after_s = _UNSURE_S
        named_s = stopped.retry_after_s or 0.0
        self._rests_until = now + max(self._rest_s(), named_s)
        if self._is_away:
            self.line.open_at(now + max(self.pause_s(self._failures), named_s))

    def _strike(self, stopped: Stopped, order: int) -> None:
        """Decide whether the agent is away for everybody: it is if nothing answers at its address,
        or if it fails for several searches and answers none. A few requests that make their server
        fail each time must not make the others wait."""
        if not self._is_away:
            self._struck.add(order)
        if stopped.reason is StopReason.PROVIDER_UNREACHABLE:
            self._unreachable_at = self._clock.monotonic_s()
        most = max(_SURE, _SURE_SHARE * self._asked)
        is_sure = stopped.reason is StopReason.PROVIDER_UNREACHABLE or len(self._struck) >= most
        if is_sure and not self._is_away:
            self._is_away = True
            self._away_since = self._clock.monotonic_s()
            self.line.open_at(self._clock.monotonic_s() + (stopped.retry_after_s or _FIRST_WAIT_S))

    def reached(self, *, sent_at: float) -> None:
        """Note that the agent answers. The calls that wait for it are let through, spread out.

        A call that was sent before nothing answered at the address says nothing about now: a server
        that ends may still finish what it has begun."""
        if sent_at >= self._unreachable_at:
            self._comes_back()

    def _comes_back(self) -> None:
        self._unreachable_at = -math.inf
        self._asked = 0
        if self._failures:
            self._failures = 0
            self._struck.clear()
            self._rests_until = -math.inf
            self.last = None
        if self._is_away:
            self._is_away = False
            now, waiting = self._clock.monotonic_s(), len(self.line)
            # Besides those who wait, new ones come as before.
            rate = waiting / _RETURN_S + waiting / max(now - self._away_since, 1.0)
            self._return_gap_s = min(_RETURN_GAP_S, 1 / max(rate, 1))
            self.line.open_at(now + self._gap_s(waiting))

    def _gap_s(self, waiting: int) -> float:
        """Return the gap after a call of the line. While the agent is away, each call that is let
        through without a failure halves the next gap."""
        if self._is_away:
            gap_s = self._gap_after_s
            self._gap_after_s = max(gap_s / 2, _RETURN_GAP_S)
            return gap_s
        if not waiting:
            return 0.0
        self._return_gap_s *= _RETURN_FASTER
        return min(self._return_gap_s, _RETURN_S / waiting)

    def pause_s(self, failures: int) -> float:
        """Return how long to wait after this many failures. The wait doubles with each one, and is
        spread out, so that calls that failed together are not repeated together."""
        wait_s = min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), _WAIT_MAX_S)
        return wait_s * (0.75 + next(self._spread) * _GOLDEN % 1 / 2)

    def _rest_s(self) -> float:
        return min(_FIRST_REST_S * 2.0 ** min(self._failures - 1, 10), _REST_MAX_S)
