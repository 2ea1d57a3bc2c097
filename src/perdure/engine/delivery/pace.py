"""One account's pace: never more than the platform allows, and final words before previews.

A bucket remembers when its last requests were made, so that no window of its length ever holds more
than it may. What the server itself says counts above all: during a wait it named nothing is sent.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from perdure.domain.delivery import Pace, Rate
from perdure.ports.system.clock import Clock

PLACES_MAX: Final = 10_000
# A final word that is later than this by so much was withdrawn, or another node has sent it.
_LATE_S: Final = 1.0


class Rank(IntEnum):
    """What goes first. Previews and signals leave a quarter free, and room for every final word
    that waits."""

    FINAL = 0
    PREVIEW = 1
    SIGNAL = 2


class Bucket:
    def __init__(self) -> None:
        self._times: deque[float] = deque()
        self._held_until = 0.0
        self._expected: dict[str, float] = {}

    def wait_s(self, rate: Rate, rank: Rank, now: float) -> float:
        """How long until one more request fits; the waiting finals come first."""
        while self._times and self._times[0] <= now - rate.per_s:
            self._times.popleft()
        kept_free = 0 if rank is Rank.FINAL else max(self._waiting(now), rate.count // 4)
        held_s = self.held_s(now)
        if len(self._times) + kept_free < rate.count:
            return held_s
        oldest = self._times[0] if self._times else now
        return max(oldest + rate.per_s - now, held_s, 0.05)

    def _waiting(self, now: float) -> int:
        self._expected = {each: at for each, at in self._expected.items() if at > now - _LATE_S}
        return len(self._expected)

    def expect(self, final: str, at: float) -> None:
        self._expected[final] = at

    def came(self, final: str) -> None:
        self._expected.pop(final, None)

    def note(self, now: float) -> None:
        self._times.append(now)

    def held_s(self, now: float) -> float:
        return max(self._held_until - now, 0.0)

    def recall(self, times: Iterable[float]) -> None:
        """Count requests that were made before."""
        self._times = deque(sorted([*self._times, *times]))

    def hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)


class Pacer:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._account = Bucket()
        self._places: OrderedDict[str, Bucket] = OrderedDict()

    def final_wait_s(self, place: str, pace: Pace, final: str) -> float:
        """As `wait_s`, for a final word: while it waits, previews leave room for it."""
        buckets = (self._account, self._bucket(place))
        for bucket in buckets:
            bucket.came(final)
        wait_s = self.wait_s(place, pace, Rank.FINAL)
        for bucket in buckets if wait_s else ():
            bucket.expect(final, self._clock.monotonic_s() + wait_s)
        return wait_s

    def wait_s(self, place: str, pace: Pace, rank: Rank) -> float:
        """Seconds until a request may go out; 0 means that it may now, and is counted."""
        now = self._clock.monotonic_s()
        bucket = self._bucket(place)
        wait_s = max(
            self._account.wait_s(pace.account, rank, now), bucket.wait_s(pace.place, rank, now)
        )
        if wait_s <= 0:
            self._account.note(now)
            if rank is not Rank.SIGNAL:  # platforms count messages there, not signs of life
                bucket.note(now)
            return 0.0
        return wait_s

    def hold(self, place: str | None, seconds: float) -> None:
        """The server has named a wait: for this place, or for the whole account."""
        bucket = self._account if place is None else self._bucket(place)
        bucket.hold(self._clock.monotonic_s() + seconds)

    def held_s(self, place: str | None = None) -> float:
        """Seconds until the server's own wait is over, for this place or for the account alone."""
        now = self._clock.monotonic_s()
        held_s = self._account.held_s(now)
        return held_s if place is None else max(held_s, self._bucket(place).held_s(now))

    def count(self, place: str) -> None:
        """Count a request that nobody has asked to make."""
        now = self._clock.monotonic_s()
        self._account.note(now)
        self._bucket(place).note(now)

    def recall(self, agos_s: Mapping[str, Sequence[float]]) -> None:
        """Count requests that an earlier process has made: of each place, how long ago."""
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
