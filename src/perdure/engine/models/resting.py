"""What is known of an agent that is away, and of an account that takes no more calls for now.

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
_FIRST_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 5.0
_FIRST_REST_S: Final = 5.0
_REST_MAX_S: Final = 60.0
# A call that has not failed after this long has perhaps got through: one more may follow it.
_UNSURE_S: Final = 2.0
# When an agent is back, its line is let through within this time, and at least at this pace.
_RETURN_S: Final = 5.0
_RETURN_GAP_S: Final = 0.05
# Many calls are spread over at least this time, few at most at this rate.
_SPREAD_MIN_S: Final = 5.0
_BRISK_RATE: Final = 20.0
# Which share of its rate a limited line gains in a second, and how much at least.
_GROWTH: Final = 0.03
_GROWTH_MIN: Final = 0.2
# Multiples of it, without their whole part, spread evenly however many there are.
_GOLDEN: Final = 0.618_033_988_749_895


class AgentRest:
    """Keeps whether one agent is away, and the line of the calls that wait for it."""

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
        """Whether a turn that has somebody else to ask should leave this agent alone."""
        return self._clock.monotonic_s() < self._rests_until

    def asks(self) -> None:
        """Note that a call goes out. While it is under way, others leave the agent alone."""
        self._asked_at = self._clock.monotonic_s()
        if self._failures:
            self._rests_until = self._asked_at + self._rest_s()

    @property
    def may_be_asked_at_last(self) -> bool:
        """Whether a call whose time is up may ask once more: nobody has for a moment, and the
        server has not named a time."""
        is_named = self.last is not None and self.last.retry_after_s is not None
        return not is_named and self._clock.monotonic_s() - self._asked_at > _FIRST_WAIT_S

    def failed(self, stopped: Stopped, *, sent_at: float, order: int) -> None:
        """Take note of a failure before the first word. Calls that were under way when the agent
        went away all fail, and tell nothing new but that it is so for all of them."""
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
        """Decide whether the agent is away for everybody. It is if nothing answers at its address,
        or if it fails for one call and then for another. A request that makes its server fail each
        time it is made must not keep the others waiting."""
        if order != self._struck_by:
            self._struck_by = order
            self._strikes += 1
        is_sure = stopped.reason is StopReason.PROVIDER_UNREACHABLE or self._strikes > 1
        if is_sure and not self._is_away:
            self._is_away = True
            self.line.open_at(self._clock.monotonic_s() + (stopped.retry_after_s or _FIRST_WAIT_S))

    def reached(self) -> None:
        """Take note that the agent answers. Whoever waits for it is let through, spread out."""
        if self._failures:
            self._failures = self._strikes = 0
            self._struck_by = None
            self._rests_until = -math.inf
            self.last = None
        if self._is_away:
            self._is_away = False
            self.line.open_at(self._clock.monotonic_s() + self._gap_s(len(self.line)))

    def _gap_s(self, waiting: int) -> float:
        if self._is_away:
            gap_s = self._gap_after_s
            self._gap_after_s = max(gap_s / 2, _RETURN_GAP_S)
            return gap_s
        return min(_RETURN_GAP_S, _RETURN_S / waiting) if waiting else 0.0

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many failures: doubling, and spread out, so that those who
        failed together do not come back together."""
        wait_s = min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), _WAIT_MAX_S)
        return wait_s * (0.75 + next(self._spread) * _GOLDEN % 1 / 2)

    def _rest_s(self) -> float:
        return min(_FIRST_REST_S * 2.0 ** min(self._failures - 1, 10), _REST_MAX_S)


class AccountLimit:
    """Keeps how many calls one account takes, and the line of those that wait for room."""

    def __init__(self, clock: Clock) -> None:
        self.line = WaitingLine(clock, self._gap_s)
        self.last: Stopped | None = None
        self._clock = clock
        self._wait_s = 0.0  # what the server asked for; 0 while there is no limit
        self._refusals = 0
        self._refused_at = -math.inf
        self._held_until = -math.inf
        self._rate = 0.0
        self._rate_max = math.inf
        self._grown_at = 0.0

    def refused(self, stopped: Stopped, *, sent_at: float) -> None:
        """Take note of a 429. Those of calls that were under way at the first one only prolong the
        wait: they say nothing about the rate at which the line went since."""
        self.last = stopped
        now = self._clock.monotonic_s()
        if sent_at >= self._refused_at:
            self._refused_at = now
            self._refusals += 1
            if self._rate:
                self._rate_max = self._rate = self._rate / 2
        own_s = min(_FIRST_WAIT_S * 2.0 ** min(self._refusals, 10), _WAIT_MAX_S)
        self._wait_s = max(stopped.retry_after_s or own_s, _FIRST_WAIT_S)
        self._held_until = max(self._held_until, now + self._wait_s)
        self.line.hold_until(self._held_until)

    def reached(self, *, sent_at: float) -> None:
        """Take note that a call got through. If it was made since the last refusal, the wait is
        over, even if the server named a longer one; so is the limit, if nobody waits any more."""
        if not self._wait_s or sent_at <= self._refused_at:
            return
        now = self._clock.monotonic_s()
        if not len(self.line):
            self._forget()
            self.line.open_at(now)
        elif sent_at < self._held_until:
            self._held_until = now
            self._wait_s = min(self._wait_s, _SPREAD_MIN_S)
            self.line.open_at(now)

    def _gap_s(self, waiting: int) -> float:
        """Spread those that wait evenly over the time that the server asked for."""
        if not self._wait_s:
            return 0.0
        now = self._clock.monotonic_s()
        if not waiting and now - self._refused_at > 2 * self._wait_s:
            self._forget()
            return 0.0
        self._grow(now)
        rate = min(max(self._even_rate(waiting + 1), self._rate), self._rate_max)
        # One call in the time that the server named is always fair.
        self._rate = max(rate, 1 / self._wait_s)
        return 1 / self._rate

    def _even_rate(self, calls: int) -> float:
        """The rate at which so many calls are spread over the wait. A wait that is short for many
        calls says little about how many are taken, so they get a few seconds at least."""
        return max(min(calls / self._wait_s, _BRISK_RATE), calls / max(self._wait_s, _SPREAD_MIN_S))

    def _grow(self, now: float) -> None:
        """Let the rate grow with the time since it was last looked at."""
        passed_s = min(now - max(self._grown_at, self._refused_at + self._wait_s), self._wait_s)
        self._grown_at = now
        if passed_s > 0 and self._rate:
            more = max(self._rate * _GROWTH, _GROWTH_MIN) * passed_s
            self._rate += more
            self._rate_max += more

    def _forget(self) -> None:
        self.last = None
        self._held_until = -math.inf
        self._wait_s = 0.0
        self._refusals = 0
        self._rate = 0.0
        self._rate_max = math.inf
