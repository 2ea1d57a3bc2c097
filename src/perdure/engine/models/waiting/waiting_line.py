"""Lets model calls wait in a line until they may be made: first come, first served.

The line has one gate, which is open or opens at some instant. Each call that is let through closes
the gate for a gap, whose length the owner of the line decides. Only the first in line has a timer;
the others cost nothing until they are the first, or until their own time is up.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Final

from perdure.ports.system.clock import Clock

# Clocks are floats: an instant that is this close counts as reached.
_NEAR_S: Final = 1e-6


class _Waiter:
    """Holds a call in the line. Calls are compared by the order in which they came."""

    __slots__ = ("is_gone", "order", "until", "woken")

    def __init__(self, order: int, until: float, woken: "asyncio.Future[None]") -> None:
        self.order = order
        self.until = until
        self.woken = woken
        self.is_gone = False

    def __lt__(self, other: "_Waiter") -> bool:
        return self.order < other.order

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


class WaitingLine:
    """Lets calls through one by one. `gap_s` is called for each call that is let through, with the
    number of calls that still wait, and returns how long the next one must wait after it."""

    def __init__(self, clock: Clock, gap_s: Callable[[int], float]) -> None:
        self._clock = clock
        self._gap_s = gap_s
        self._opens_at = 0.0
        self._waiters: list[_Waiter] = []
        self._by_end: list[tuple[float, int, _Waiter]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def opens_at(self) -> float:
        """Return the instant from which on the first in line may go."""
        return self._opens_at

    def hold_until(self, instant: float) -> None:
        """Let no call through before this instant. A later hold never shortens an earlier one."""
        self._opens_at = max(self._opens_at, instant)

    def open_at(self, instant: float) -> None:
        """Let the first call through at this instant, even if the line was held for longer."""
        self._opens_at = instant
        self._wake_first()

    async def wait(self, order: int, *, until: float) -> bool:
        """Return True as soon as the call may be made, or False if `until` comes first. A smaller
        `order` goes first, so a call that comes back gets its old place."""
        now = self._clock.monotonic_s()
        if not self._size and self._is_open(now):
            self._let_through(now, still_waiting=0)
            return True
        waiter = self._enter(order, until)
        try:
            return await self._wait(waiter)
        finally:
            waiter.is_gone = True
            self._size -= 1
            self._wake_first()

    def _enter(self, order: int, until: float) -> _Waiter:
        waiter = _Waiter(order, until, asyncio.get_running_loop().create_future())
        first = self._first()
        heapq.heappush(self._waiters, waiter)
        heapq.heappush(self._by_end, (until, order, waiter))
        self._size += 1
        if first is not None:
            first.wake()  # it may not be the first any more, or must wake for an earlier end
        return waiter

    async def _wait(self, waiter: _Waiter) -> bool:
        while True:
            now = self._clock.monotonic_s()
            is_first = self._first() is waiter
            if is_first and self._is_open(now):
                self._let_through(now, still_waiting=self._size - 1)
                return True
            if now >= waiter.until - _NEAR_S:
                return False
            if is_first:
                await self._sleep(waiter, now)
            else:
                await waiter.woken
            waiter.woken = asyncio.get_running_loop().create_future()

    async def _sleep(self, first: _Waiter, now: float) -> None:
        """Sleep until the gate opens, the first is woken, or the time of any call is up. Wakes the
        calls whose time is up."""
        wakes_at = min(self._opens_at, self._next_end())
        sleep = self._clock.sleep(max(wakes_at - now, 0.0))
        timer = asyncio.ensure_future(sleep)  # noqa: TID251 - it ends below
        try:
            await asyncio.wait({timer, first.woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        now = self._clock.monotonic_s()
        while self._by_end and self._next_end() <= now + _NEAR_S:
            heapq.heappop(self._by_end)[2].wake()

    def _next_end(self) -> float:
        while self._by_end[0][2].is_gone:
            heapq.heappop(self._by_end)
        return self._by_end[0][0]

    def _is_open(self, now: float) -> bool:
        return self._opens_at <= now + _NEAR_S

    def _let_through(self, now: float, *, still_waiting: int) -> None:
        """Close the gate for the gap. The gap begins at the instant at which the gate opened,
        unless that is longer ago than the gap, so that late wake-ups do not slow the line down."""
        gap_s = self._gap_s(still_waiting)
        began = self._opens_at if now - self._opens_at < gap_s else now
        self._opens_at = max(began + gap_s, self._opens_at)

    def _first(self) -> _Waiter | None:
        while self._waiters and self._waiters[0].is_gone:
            heapq.heappop(self._waiters)
        return self._waiters[0] if self._waiters else None

    def _wake_first(self) -> None:
        first = self._first()
        if first is not None:
            first.wake()
