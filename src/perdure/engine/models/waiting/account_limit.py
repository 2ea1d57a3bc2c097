"""Decides what a 429 means for the other calls of its account, and paces them if it has a limit.

Some servers refuse a call now and then and take all others. Such a refusal concerns its call alone,
which waits for as long as the server asked. There is a limit if a larger share of the latest calls
is refused, or several in a row. Then all calls wait for as long as the server asked. Afterwards
they are let through evenly: at the rate at which the server took calls while it refused others, if
that is known, or else so that those who wait are spread over the wait.

A rate says something about the server only if calls were refused at that rate. So it is measured at
each refusal anew, and grows while calls are taken.
"""

import asyncio
import math
from typing import Final

from perdure.domain.turn.stream import Stopped
from perdure.engine.models.waiting.recent_calls import RecentCalls, SentCall
from perdure.engine.models.waiting.waiting_line import WaitingLine
from perdure.ports.system.clock import Clock

# The waits after refusals that name none double from the first to the longest.
_FIRST_WAIT_S: Final = 0.5
_WAIT_MAX_S: Final = 5.0
# Up to this share of refused calls, a refusal is about a single call, unless so many come in a row.
_RARE: Final = 0.25
_IN_A_ROW: Final = 4
# So few refusals say nothing if other calls were taken.
_FEW: Final = 2
# The same for a line that is let through at a rate near the limit.
_RARE_NEAR: Final = 0.1
_IN_A_ROW_NEAR: Final = 3
# After a short wait, many calls are spread over this time. Few go at most at this rate, or a little
# faster than the server took calls before.
_SPREAD_MIN_S: Final = 5.0
_BRISK_RATE: Final = 20.0
_LITTLE_FASTER: Final = 1.25
# By which share a rate grows in a second, and by how much at least. It grows fast if the server
# refuses calls at a rate that it took before, so that the refusals have another cause.
_GROWTH: Final = 0.03
_FAST_GROWTH: Final = 0.5
_GROWTH_MIN: Final = 0.2
# How much of a measured rate is used at first, and for how long before it grows.
_CAREFUL: Final = 0.95
_STEADY_S: Final = 10.0
# So many calls say something about a rate, however short the time.
_MANY: Final = 20
# After so many refusals in that time, they must have another cause than the rate.
_UNFOUNDED: Final = 3


class AccountLimit:
    """Holds how many calls one account takes, and the line of the calls that wait for room."""

    def __init__(self, clock: Clock) -> None:
        self.line = WaitingLine(clock, self._gap_s)
        self.last: Stopped | None = None
        self._clock = clock
        self._calls = RecentCalls(clock)
        self._begun: asyncio.Future[None] | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget the limit, but not what became of the latest calls."""
        self.last = None
        self._wait_s = 0.0  # what the server asked for; 0 while there is no limit
        self._holds = 0
        self._held_at = -math.inf
        self._held_until = -math.inf
        self._since = -math.inf  # calls that were sent before say nothing about the rate
        self._is_rate_old = False
        self._rate = 0.0
        self._rate_max = math.inf
        self._taken_rate = 0.0
        self._grows_from = -math.inf
        self._unfounded = 0

    def sends(self) -> SentCall:
        """Note that a call is sent now."""
        return self._calls.add()

    def refused(self, call: SentCall, stopped: Stopped) -> bool:
        """Note a 429. Returns whether it concerns this call alone: then it waits by itself, and
        otherwise in the line."""
        self._calls.refused(call)
        now = self._clock.monotonic_s()
        is_new = call.sent_at >= self._held_at
        if is_new and self._is_rare(now, few=_FEW):
            self._weigh(now)
            return True
        self.last = stopped
        if is_new:
            self._hold(now)
        own_s = min(_FIRST_WAIT_S * 2.0 ** min(self._holds, 10), _WAIT_MAX_S)
        self._wait_s = wait_s = max(stopped.retry_after_s or own_s, _FIRST_WAIT_S)
        self._held_until = max(self._held_until, now + wait_s)
        self.line.hold_until(self._held_until)
        return False

    def _hold(self, now: float) -> None:
        """Begin a wait of all calls."""
        self._held_at = now
        self._holds += 1
        self._is_rate_old = True
        if self._begun is not None:
            self._begun.set_result(None)
            self._begun = None

    async def begins(self, *, within_s: float) -> bool:
        """Sleep for this time, or until a wait of all calls begins. Returns whether it began."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().create_future()
        begun = self._begun
        sleep = asyncio.ensure_future(self._clock.sleep(within_s))  # noqa: TID251 - it ends below
        try:
            await asyncio.wait({sleep, begun}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
        return begun.done()

    def reached(self, call: SentCall) -> None:
        """Note that a call got through. If it was sent after the wait began, the wait is over, even
        if the server named a longer one. The limit is over too if no call waits any more. If it was
        sent before, it may show that too few calls were refused to speak of a limit."""
        call.is_taken = True
        if not self._wait_s:
            return
        now = self._clock.monotonic_s()
        if call.sent_at <= self._held_at:
            if now < self._held_until and self._is_rare(self._held_at):
                self._is_rate_old = False
                self._end_hold(now)
        elif not len(self.line):
            self._begin_anew()
            self.line.open_at(now)
        elif call.sent_at < self._held_until:
            self._wait_s = min(self._wait_s, _SPREAD_MIN_S)
            self._end_hold(now)

    def _end_hold(self, now: float) -> None:
        if math.isinf(self._since):
            self._begin_anew()
        self._held_until = now
        self.line.open_at(now)

    def failed(self, call: SentCall) -> None:
        """Note that a call failed for another reason. It says nothing about a limit."""
        call.says_nothing = call.is_taken is None

    def is_held_since(self, instant: float) -> bool:
        """Tell whether all calls were made to wait at this instant or later."""
        return self._held_at >= instant

    def _is_rare(self, upto: float, *, few: int = 0) -> bool:
        """Tell whether refusals of calls that were sent until then concern single calls."""
        return self._calls.are_rarely_refused(
            _RARE, in_a_row=_IN_A_ROW, since=self._since, upto=upto, few=few
        )

    def _weigh(self, now: float) -> None:
        """Judge the rate of the line by a refusal of a single call. At a rate that the server took
        before, the refusal has another cause; if that happens again and again, the rate is too low.
        At a rate that has grown, it may be that the server takes no more."""
        if math.isinf(self._rate_max) or self._unfounded >= _UNFOUNDED:
            return
        if now < self._grows_from:
            self._unfounded += 1
            if self._unfounded == _UNFOUNDED:
                self._grows_from = now
        elif not self._calls.are_rarely_refused(
            _RARE_NEAR, in_a_row=_IN_A_ROW_NEAR, since=self._since, upto=now, few=_FEW
        ):
            self._measure(now, now)

    def _gap_s(self, waiting: int) -> float:
        """Return the gap after a call of the line."""
        if not self._wait_s:
            return 0.0
        now = self._clock.monotonic_s()
        if not waiting and now - self._held_until > self._wait_s:
            self._begin_anew()
            return 0.0
        if self._is_rate_old:
            self._measure(now, self._held_at)
        self._grow(now)
        rate = min(max(self._even_rate(waiting + 1), self._rate), self._rate_max)
        # One call in the time that the server named is always allowed.
        self._rate = max(rate, 1 / self._wait_s)
        return 1 / self._rate

    def _even_rate(self, calls: int) -> float:
        """Return the rate at which this many calls are spread over the wait. A short wait says
        little about how many calls the account takes, so many calls get a few seconds at least."""
        brisk = max(_BRISK_RATE, self._taken_rate * _LITTLE_FASTER)
        return max(min(calls / self._wait_s, brisk), calls / max(self._wait_s, _SPREAD_MIN_S))

    def _measure(self, now: float, upto: float) -> None:
        """Find out at which rate the server took calls, until then. If it refused as many
        meanwhile, or if a line was let through, that is the most that it takes."""
        taken, refused, since = self._calls.counts(since=self._since, upto=upto)
        self._is_rate_old = False
        self._since = now
        if not taken:
            return
        self._taken_rate = taken / max(upto - since, 1.0)
        self._holds = 0
        is_most = self._rate > 0 or refused > taken
        share = taken / (taken + refused)
        rate = self._taken_rate
        if self._rate:
            # A few calls in less than a second say little about the rate. So the line is slowed
            # down by the share that was refused then, and never to less than half at once.
            is_short = upto - since < 1 and taken < _MANY
            rate = min(rate if not is_short else math.inf, self._rate * share)
            rate = max(rate, self._rate / 2)
        self._rate = rate * _CAREFUL
        if is_most:
            self._rate_max = self._rate
        self._grows_from = now + _STEADY_S * is_most
        if share < 1 - _RARE_NEAR:
            self._unfounded = 0

    def _grow(self, now: float) -> None:
        """Raise the rate for the time since it was last raised."""
        passed_s = min(now - self._grows_from, self._wait_s)
        if passed_s > 0:
            self._grows_from = now
            is_known = self._unfounded < _UNFOUNDED and self._rate_max < math.inf
            growth = _GROWTH if is_known or not self._taken_rate else _FAST_GROWTH
            more = max(self._rate * growth, _GROWTH_MIN) * passed_s
            self._rate += more
            self._rate_max += more
