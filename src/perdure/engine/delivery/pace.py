"""Limits how fast one account calls its platform: never faster than the platform allows, and final
words before previews.

A bucket remembers when its last requests were made, so that no window of time ever holds more
requests than the limit. A wait that the server has named counts above all: during it nothing is
sent.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from perdure.domain.delivery import Pace, Rate
from perdure.ports.system.clock import Clock

# The buckets of so many places are kept; the one that was used longest ago is dropped first.
PLACES_MAX: Final = 10_000
# A final part that was expected this long ago will not come: it was withdrawn, or another node has
# sent it. No room is reserved for it any more.
_LATE_S: Final = 1.0


class Rank(IntEnum):
    """Orders requests by importance. Previews and signals leave a quarter of the limit free for
    final parts, or more if more final parts wait than that. Signals, which are marks and typing,
    leave half of the account's limit free, so that they also give way to previews."""

    FINAL = 0
    PREVIEW = 1
    SIGNAL = 2


# Which fraction of a limit each rank leaves free for the ranks before it: one divided by this.
_FREE_SHARES: Final[Mapping[Rank, int]] = {Rank.PREVIEW: 4, Rank.SIGNAL: 2}


class Bucket:
    """Remembers the latest requests of one place or one account, and the wait that the server has
    named for it."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._held_until = 0.0
        self._expected: dict[str, float] = {}

    def wait_s(self, rate: Rate, rank: Rank, now: float) -> float:
        """Return how long until one more request fits. Only final parts may use the room that is
        kept free for final parts."""
        while self._times and self._times[0] <= now - rate.per_s:
            self._times.popleft()
        kept_free = 0
        if rank is not Rank.FINAL:
            kept_free = max(self._waiting(now), rate.count // _FREE_SHARES[rank])
        held_s = self.held_s(now)
        if len(self._times) + kept_free < rate.count:
            return held_s
        oldest = self._times[0] if self._times else now
        return max(oldest + rate.per_s - now, held_s, 0.05)

    def _waiting(self, now: float) -> int:
        self._expected = {each: at for each, at in self._expected.items() if at > now - _LATE_S}
        return len(self._expected)

    def expect(self, final: str, at: float) -> None:
        """Keep room free for a final part that will be tried at this time."""
        self._expected[final] = at

    def came(self, final: str) -> None:
        """Stop keeping room free for a final part: it is being tried now."""
        self._expected.pop(final, None)

    def note(self, now: float) -> None:
        """Count a request that is made now."""
        self._times.append(now)

    def held_s(self, now: float) -> float:
        """Return how long the wait that the server has named still lasts."""
        return max(self._held_until - now, 0.0)

    def recall(self, times: Iterable[float]) -> None:
        """Count requests that were made at these times in the past."""
        self._times = deque(sorted([*self._times, *times]))

    def hold(self, until: float) -> None:
        """Let no request fit before this time. A shorter wait does not end a longer one."""
        self._held_until = max(self._held_until, until)


class Pacer:
    """Decides when the requests of one account may be made: each must fit into the bucket of the
    account and into the bucket of its place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._account = Bucket()
        self._places: OrderedDict[str, Bucket] = OrderedDict()

    def final_wait_s(self, place: str, pace: Pace, final: str) -> float:
        """Return how long the final part `final` must wait; 0 if it may be sent now, and it is
        counted then. While it waits, previews leave room for it."""
        buckets = (self._account, self._bucket(place))
        for bucket in buckets:
            bucket.came(final)
        wait_s = self.wait_s(place, pace, Rank.FINAL)
        for bucket in buckets if wait_s else ():
            bucket.expect(final, self._clock.monotonic_s() + wait_s)
        return wait_s

    def wait_s(self, place: str, pace: Pace, rank: Rank) -> float:
        """Return how long a request must wait; 0 if it may be made now, and it is counted then."""
        now = self._clock.monotonic_s()
        bucket = self._bucket(place)
        # Signals use no room of their place, so they leave no more of it free than previews do.
        in_place = min(rank, Rank.PREVIEW)
        wait_s = max(
            self._account.wait_s(pace.account, rank, now), bucket.wait_s(pace.place, in_place, now)
        )
        if wait_s <= 0:
            self._account.note(now)
            if rank is not Rank.SIGNAL:  # platforms count messages there, not signs of life
                bucket.note(now)
            return 0.0
        return wait_s

    def hold(self, place: str | None, seconds: float) -> None:
        """Make no request to this place, or of the whole account if `place` is None, for as long as
        the server has demanded."""
        bucket = self._account if place is None else self._bucket(place)
        bucket.hold(self._clock.monotonic_s() + seconds)

    def held_s(self, place: str | None = None) -> float:
        """Return how long the wait that the server has named still lasts: the longer one of the
        account and this place, or that of the account alone."""
        now = self._clock.monotonic_s()
        held_s = self._account.held_s(now)
        return held_s if place is None else max(held_s, self._bucket(place).held_s(now))

    def count(self, place: str) -> None:
        """Count a request that is made without asking whether it fits."""
        now = self._clock.monotonic_s()
        self._account.note(now)
        self._bucket(place).note(now)

    def recall(self, agos_s: Mapping[str, Sequence[float]]) -> None:
        """Count requests that an earlier process has made. `agos_s` says for each place how long
        ago they were."""
        now = self._clock.monotonic_s()
        for place, some in agos_s.items():
            self._bucket(place).recall(now - ago_s for ago_s in some)
        self._account.recall(now - ago_s for some in agos_s.values() for ago_s in some)

    def _bucket(self, place: str) -> Bucket:
        bucket = self._places.get(place)
        if bucket is None:
            bucket = self._places[place] = Bucket()
            if len(self._places) > PLACES_MAX:
                self._places.popitem(last=False)
        self._places.move_to_end(place)
        return bucket
