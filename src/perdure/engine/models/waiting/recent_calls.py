"""Remembers what became of the latest calls of one account: whether its server has taken them.

A server refuses at once, but the first word of an answer may take long. So a call that is under way
for much longer than any refusal took counts as taken.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from perdure.ports.system.clock import Clock

# How many calls are remembered, and how many of them count for a share.
_KEPT: Final = 600
_COUNTED: Final = 40
# How old the calls are at most that count.
_RECENT_S: Final = 10.0
# The time over which a rate is measured.
_MEASURED_S: Final = 2.0
# A call that is under way for this long, and for longer than any refusal took, is taken.
_SURELY_S: Final = 0.05


@dataclass(slots=True, eq=False)
class SentCall:
    """Holds when a call was sent, and whether the server has taken it. None: it has not said so."""

    sent_at: float
    is_taken: bool | None = None
    says_nothing: bool = False


class RecentCalls:
    """Holds the latest calls of one account, in the order in which they were sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: deque[SentCall] = deque(maxlen=_KEPT)
        self._refused_within_s = 0.0

    def add(self) -> SentCall:
        """Note that a call is sent now."""
        call = SentCall(self._clock.monotonic_s())
        self._calls.append(call)
        return call

    def refused(self, call: SentCall) -> None:
        """Note that the server has refused a call."""
        call.is_taken = False
        took_s = self._clock.monotonic_s() - call.sent_at
        self._refused_within_s = max(took_s, self._refused_within_s * 0.9)

    def are_rarely_refused(
        self, share: float, *, in_a_row: int, since: float, upto: float, few: int = 0
    ) -> bool:
        """Tell whether at most this share of the calls that were sent in a time was refused, and of
        the last ones fewer than `in_a_row`. If some were taken, `few` may be refused anyway."""
        refused = row = seen = 0
        for call in islice(self._decided(since, upto), _COUNTED):
            seen += 1
            refused += not call.is_taken
            row += row == seen - 1 and not call.is_taken
        return row < in_a_row and refused <= max(share * seen, min(few, seen - 1))

    def counts(self, *, since: float, upto: float) -> tuple[int, int, float]:
        """Count the calls that were taken and refused, of those that were sent in the last seconds
        of this time, and return since when. Those that the server has not refused so far count as
        taken."""
        since = max(since, upto - _MEASURED_S)
        calls = [c for c in self._calls if since <= c.sent_at <= upto and not c.says_nothing]
        refused = sum(call.is_taken is False for call in calls)
        return len(calls) - refused, refused, calls[0].sent_at if calls else upto

    def _decided(self, since: float, upto: float) -> Iterator[SentCall]:
        """Go through the calls that were sent in a time and are known to be taken or refused, the
        latest first."""
        now = self._clock.monotonic_s()
        since = max(since, now - _RECENT_S)
        surely_sent_by = now - max(_SURELY_S, 1.25 * self._refused_within_s)
        for call in reversed(self._calls):
            if call.sent_at < since:
                return
            if call.says_nothing or call.sent_at > upto:
                continue
            if call.is_taken is not None:
                yield call
            elif call.sent_at <= surely_sent_by:
                yield SentCall(call.sent_at, is_taken=True)
