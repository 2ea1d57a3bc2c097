"""One account's pace: never more than the platform allows, and final words before previews.

A bucket remembers when its last requests were made, so that no window of its length ever holds more
than it may. What the server itself says counts above all: during a wait it named nothing is sent.
"""

from collections import OrderedDict, deque
from enum import IntEnum
from typing import Final

from perdure.domain.delivery import Pace, Rate
from perdure.ports.clock import Clock

PLACES_MAX: Final = 10_000


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
        self.finals_waiting = 0

    def wait_s(self, rate: Rate, rank: Rank, now: float) -> float:
        """How long until one more request fits; the waiting finals come first."""
        while self._times and self._times[0] <= now - rate.per_s:
            self._times.popleft()
        kept_free = 0 if rank is Rank.FINAL else max(self.finals_waiting, rate.count // 4)
        held_s = max(self._held_until - now, 0.0)
        if len(self._times) + kept_free < rate.count:
            return held_s
        oldest = self._times[0] if self._times else now
        return max(oldest + rate.per_s - now, held_s, 0.05)

    def note(self, now: float) -> None:
        self._times.append(now)

    def hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)


class Pacer:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._account = Bucket()
        self._places: OrderedDict[str, Bucket] = OrderedDict()

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

    def await_turn(self, place: str, *, is_waiting: bool) -> None:
        """A final word begins to wait, or waits no longer."""
        step = 1 if is_waiting else -1
        for bucket in (self._account, self._bucket(place)):
            # A bucket that was forgotten meanwhile knows of nobody who waits.
            bucket.finals_waiting = max(bucket.finals_waiting + step, 0)

    def hold(self, place: str | None, seconds: float) -> None:
        """The server has named a wait: for this place, or for the whole account."""
        bucket = self._account if place is None else self._bucket(place)
        bucket.hold(self._clock.monotonic_s() + seconds)

    def _bucket(self, place: str) -> Bucket:
        bucket = self._places.get(place)
        if bucket is None:
            bucket = self._places[place] = Bucket()
            if len(self._places) > PLACES_MAX:
                self._places.popitem(last=False)
        self._places.move_to_end(place)
        return bucket
