"""Holds what is known about agents that are away, and accounts that take no more calls for now.

Both keep a line of the calls that wait, and decide how fast it is let through. A failure counts
once: when a server goes away, all calls under way fail, and only the first tells anything new.
"""

import math
from itertools import count
from typing import Final

from perdure.domain.outcomes import StopReason
from perdure.domain.turn.stream import Stopped
from perdure.engine.models.waiting_line import WaitingLine
from perdure.ports.system.clock import Clock

TOO_MANY: Final = 429
# The pauses before new tries, and the rests of an agent, double from the first to the longest.
_FIRST_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 5.0
_FIRST_REST_S: Final = 5.0
_REST_MAX_S: Final = 60.0
# A call that has not failed after this long may have got through, so another one may follow.
_UNSURE_S: Final = 2.0
# When an agent answers again, its line is let through within this time, with gaps of at most this.
_RETURN_S: Final = 5.0
_RETURN_GAP_S: Final = 0.05
# After a short wait, many calls are spread over this time, and few go at most at this rate.
_SPREAD_MIN_S: Final = 5.0
_BRISK_RATE: Final = 20.0
# By which share its rate a limited line speeds up in a second, and by how much at least.
_GROWTH: Final = 0.03
_GROWTH_MIN: Final = 0.2
# Up to this share of refused calls, a refusal may be about a single call. Each call counts for so
# much of the share.
_RARE: Final = 0.2
_WEIGHT: Final = 0.05
# How much slower a line becomes after a refusal that is rare. After others it is halved.
_LITTLE_SLOWER: Final = 1.1
# The fractional parts of its multiples are spread evenly, however many of them are used.
_GOLDEN: Final = 0.618_033_988_749_895


class AgentRest:
    """Holds whether one agent is away, and the line of the calls that wait for it."""

    def __init__(self, clock: Clock) -> None:
        self.line = WaitingLine(clock, self._gap_s)
        self.last: Stopped | None = None
        self._clock = clock
        self._failures = 0
        self._strikes = 0
        self._struck_by: int | None = None
        self._is_away = False
        self._failed_at = -math.inf
        self._asked_at = -math.inf
        self._rests_until = -math.inf
        self._gap_after_s = _UNSURE_S
        self._spread = count(1)

    @property
    def is_resting(self) -> bool:
        """Tell whether a turn that has another agent to ask should leave this one alone."""
        return self._clock.monotonic_s() < self._rests_until

    def asks(self) -> None:
        """Note that a call is made. If the agent has failed, others leave it alone meanwhile."""
        self._asked_at = self._clock.monotonic_s()
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
        all fail, and tell nothing new except that it does not fail for one call alone."""
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
        or if it fails for one search and then for another. A single request that makes its server
        fail each time must not make the others wait."""
        if order != self._struck_by:
            self._struck_by = order
            self._strikes += 1
        is_sure = stopped.reason is StopReason.PROVIDER_UNREACHABLE or self._strikes > 1
        if is_sure and not self._is_away:
            self._is_away = True
            self.line.open_at(self._clock.monotonic_s() + (stopped.retry_after_s or _FIRST_WAIT_S))

    def reached(self) -> None:
        """Note that the agent answers. The calls that wait for it are let through, spread out."""
        if self._failures:
            self._failures = self._strikes = 0
            self._struck_by = None
            self._rests_until = -math.inf
            self.last = None
        if self._is_away:
            self._is_away = False
            self.line.open_at(self._clock.monotonic_s() + self._gap_s(len(self.line)))

    def _gap_s(self, waiting: int) -> float:
        """Return the gap after a call of the line. While the agent is away, each call that is let
        through without a failure halves the next gap."""
        if self._is_away:
            gap_s = self._gap_after_s
            self._gap_after_s = max(gap_s / 2, _RETURN_GAP_S)
            return gap_s
        return min(_RETURN_GAP_S, _RETURN_S / waiting) if waiting else 0.0

    def pause_s(self, failures: int) -> float:
        """Return how long to wait after this many failures. The wait doubles with each one, and is
        spread out, so that calls that failed together are not repeated together."""
        wait_s = min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), _WAIT_MAX_S)
        return wait_s * (0.75 + next(self._spread) * _GOLDEN % 1 / 2)

    def _rest_s(self) -> float:
        return min(_FIRST_REST_S * 2.0 ** min(self._failures - 1, 10), _REST_MAX_S)


class AccountLimit:
    """Holds how many calls one account takes, and the line of the calls that wait for room."""

    def __init__(self, clock: Clock) -> None:
        self.line = WaitingLine(clock, self._gap_s)
        self.last: Stopped | None = None
        self._clock = clock
        self._wait_s = 0.0  # what the server asked for; 0 while there is no limit
        self._refusals = 0
        self._refused_at = -math.inf
        self._refused_sent_at = -math.inf
        self._share = 0.0  # of the latest calls, how many were refused
        self._held_until = -math.inf
        self._rate = 0.0
        self._rate_max = math.inf
        self._rates_before = (0.0, math.inf)
        self._grown_at = 0.0

    def refused(self, stopped: Stopped, *, sent_at: float) -> None:
        """Note a 429. If the call was sent before the last 429 came, it only prolongs the wait: it
        says nothing about the rate at which the line was let through since."""
        self.last = stopped
        now = self._clock.monotonic_s()
        self._share += (1 - self._share) * _WEIGHT
        self._refused_sent_at = max(self._refused_sent_at, sent_at)
        if sent_at >= self._refused_at:
            self._refused_at = now
            self._refusals += 1
            self._rates_before = (self._rate, self._rate_max)
            if self._rate:
                slower = 2.0 if self._share > _RARE else _LITTLE_SLOWER
                self._rate_max = self._rate = self._rate / slower
        own_s = min(_FIRST_WAIT_S * 2.0 ** min(self._refusals, 10), _WAIT_MAX_S)
        self._wait_s = max(stopped.retry_after_s or own_s, _FIRST_WAIT_S)
        self._held_until = max(self._held_until, now + self._wait_s)
        self.line.hold_until(self._held_until)

    def is_refused_since(self, instant: float) -> bool:
        """Tell whether the account has refused a call at this instant or later."""
        return self._refused_at >= instant

    def reached(self, *, sent_at: float) -> None:
        """Note that a call got through. If it was sent after the last refusal, the wait is over,
        even if the server named a longer one. The limit is over too if no call waits any more.

        Some servers refuse a call now and then, and take all others. So where refusals are rare, a
        call that was sent after the refused one shows that there is room, although it was under way
        when the refusal came. Otherwise each such refusal would halve the rate for everybody."""
        self._share -= self._share * _WEIGHT
        if not self._wait_s or sent_at <= self._refused_sent_at:
            return
        if sent_at <= self._refused_at:
            if self._share > _RARE:
                return
            self._rate, self._rate_max = self._rates_before
        now = self._clock.monotonic_s()
        if not len(self.line):
            self._forget()
            self.line.open_at(now)
        elif sent_at < self._held_until:
            self._held_until = now
            self._wait_s = min(self._wait_s, _SPREAD_MIN_S)
            self.line.open_at(now)

    def _gap_s(self, waiting: int) -> float:
        """Return the gap after a call of the line. It spreads the calls that wait evenly over the
        time that the server asked for."""
        if not self._wait_s:
            return 0.0
        now = self._clock.monotonic_s()
        if not waiting and now - self._refused_at > 2 * self._wait_s:
            self._forget()
            return 0.0
        self._grow(now)
        rate = min(max(self._even_rate(waiting + 1), self._rate), self._rate_max)
        # One call in the time that the server named is always allowed.
        self._rate = max(rate, 1 / self._wait_s)
        return 1 / self._rate

    def _even_rate(self, calls: int) -> float:
        """Return the rate at which this many calls are spread over the wait. A short wait says
        little about how many calls the account takes, so many calls get a few seconds at least."""
        return max(min(calls / self._wait_s, _BRISK_RATE), calls / max(self._wait_s, _SPREAD_MIN_S))

    def _grow(self, now: float) -> None:
        """Raise the rate for the time since it was last raised, except the wait after a refusal."""
        passed_s = min(now - max(self._grown_at, self._refused_at + self._wait_s), self._wait_s)
        self._grown_at = now
        if passed_s > 0 and self._rate:
            more = max(self._rate * _GROWTH, _GROWTH_MIN) * passed_s
            self._rate += more
            self._rate_max += more

    def _forget(self) -> None:
        """Begin anew, without a limit."""
        self.last = None
        self._held_until = -math.inf
        self._wait_s = 0.0
        self._refusals = 0
        self._rate = 0.0
        self._rate_max = math.inf
