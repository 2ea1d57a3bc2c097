"""Provides time and randomness that a test controls.

A `VirtualClock` stands still until a test moves it, so the test decides what happens before and
after any moment. An eager one moves by itself whenever somebody sleeps, so that waits cost nothing.
`SeededEntropy` gives the same bytes in every run, and never the same bytes twice in one run.
"""

import asyncio
import hashlib
import heapq
from itertools import count
from typing import Final

START_MS: Final = 1_700_000_000_000


class VirtualClock:
    """Implements the `Clock` port. A test moves it by hand; with `is_eager`, each sleep moves
    it."""

    def __init__(self, *, now_ms: int = START_MS, is_eager: bool = False) -> None:
        self._wall_ms = now_ms
        self._monotonic_s = 0.0
        self._paused_s = 0.0
        self._is_eager = is_eager
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._tickets = count()

    def now_ms(self) -> int:
        return self._wall_ms

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def paused_s(self) -> float:
        return self._paused_s

    async def sleep(self, seconds: float) -> None:
        """Sleep until the clock has moved that far."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        wakes_at = self._monotonic_s + max(seconds, 0.0)
        heapq.heappush(self._sleepers, (wakes_at, next(self._tickets), woken))
        if self._is_eager or seconds <= 0:
            # In the loop's next round, so that other tasks run in between, as with a real sleep.
            loop.call_soon(self._wake_until, wakes_at)
        await woken

    def advance(self, seconds: float) -> None:
        """Let time pass: both clocks move, and everybody who has slept enough wakes."""
        assert seconds >= 0, "time passes forward; `jump` moves the wall clock alone"
        self._wake_until(self._monotonic_s + seconds)

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which the process does not run. Those who have slept enough wake
        afterwards."""
        self._paused_s += seconds
        self.advance(seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or a time server does."""
        self._wall_ms += round(seconds * 1000)

    @property
    def sleepers(self) -> int:
        """Return how many sleep now."""
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    @property
    def next_wake_s(self) -> float | None:
        """Return the instant at which the first of those who sleep wakes, or None if nobody
        sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_until(self, moment_s: float) -> None:
        """Move the clocks to this moment, never back, and wake those who have slept enough."""
        passed_s = max(moment_s - self._monotonic_s, 0.0)
        self._monotonic_s += passed_s
        self._wall_ms += round(passed_s * 1000)
        while self._sleepers and self._sleepers[0][0] <= self._monotonic_s:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)


class SeededEntropy:
    """Implements the `Entropy` port. It gives the same bytes in every run with the same seed."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._drawn = count()

    def random_bytes(self, size: int) -> bytes:
        name = f"{self._seed}:{next(self._drawn)}".encode()
        return hashlib.shake_128(name).digest(size)
