"""Provides time limits that count only the time in which this process ran.

A process may stand still: a laptop sleeps, a machine is frozen, somebody sends SIGSTOP. When it
runs again, its timers are due before anything was read from its sockets, and a peer that kept
writing meanwhile would be blamed for silence. So a limit is measured with a clock that leaves such
pauses out, and after a pause no limit ends until the loop has read what came.

A pause is noticed when a regular tick comes much too late. The tick runs only while something is
limited. A loop that was busy for long looks like a pause, which is right: it did not read either.
"""

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Final
from weakref import WeakKeyDictionary, proxy

TICK_S: Final = 1.0
# A tick that is late by more than this means that there was a pause.
LATE_S: Final = 0.5
# For so long after a pause no limit ends, so that the loop reads its sockets and the readers run.
READING_S: Final = 0.25


class RunningTime:
    """Measures the time in which the process of one event loop ran."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A weak reference: the table of clocks must not keep a closed loop alive.
        self._loop: asyncio.AbstractEventLoop = proxy(loop)
        self._paused_s = 0.0
        self._ticked_at = self._woke_at = -math.inf
        self._limits = 0
        self._tick: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        """Return a reading of the clock. Pauses are left out while something is limited."""
        now = self._loop.time()
        if self._limits and now - self._ticked_at > TICK_S + LATE_S:
            self._paused_s += now - self._ticked_at - TICK_S
            self._ticked_at = self._woke_at = now
        return now - self._paused_s

    def paused_s(self) -> float:
        """Return the length of all pauses that were noticed."""
        self.now_s()
        return self._paused_s

    def is_reading(self) -> bool:
        """Tell whether a pause has ended so recently that the sockets may not have been read."""
        return self._loop.time() - self._woke_at < READING_S

    def begin(self) -> None:
        """Count one more limit. The first one starts the tick."""
        self._limits += 1
        if self._limits == 1:
            self._ticked_at = self._loop.time()
            self._tick = self._loop.call_later(TICK_S, self._go_on)

    def end(self) -> None:
        """Count one limit less. The last one stops the tick."""
        self._limits -= 1
        if not self._limits and self._tick is not None:
            self._tick.cancel()
            self._tick = None

    def _go_on(self) -> None:
        self.now_s()
        self._ticked_at = self._loop.time()
        self._tick = self._loop.call_later(TICK_S, self._go_on)


_BY_LOOP: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, RunningTime]] = WeakKeyDictionary()


def running_time() -> RunningTime:
    """Return the one clock of the running loop."""
    loop = asyncio.get_running_loop()
    found = _BY_LOOP.get(loop)
    if found is None:
        found = _BY_LOOP[loop] = RunningTime(loop)
    return found


class Timer:
    """Calls back once the process has run until `due_s`, by its `RunningTime`."""

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self._due_s = due_s
        self._call = call
        self._time = running_time()
        self._time.begin()
        self._is_over = False
        self._handle = self._armed(due_s - self._time.now_s())

    def _armed(self, left_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(left_s, 0.0), self._look)

    def _look(self) -> None:
        left_s = self._due_s - self._time.now_s()
        if self._time.is_reading():
            left_s = max(left_s, READING_S)
        if left_s > 0:
            self._handle = self._armed(left_s)
        else:
            self.cancel()
            self._call()

    def cancel(self) -> None:
        """Stop the timer. Does nothing if it has called back or was stopped before."""
        self._handle.cancel()
        if not self._is_over:
            self._is_over = True
            self._time.end()


class TimeLimit:
    """Limits a block like `asyncio.timeout`, but counts only time in which the process ran. With
    `due_s` None there is no limit."""

    def __init__(self, due_s: float | None) -> None:
        self._due_s = due_s
        self._scope = asyncio.timeout(None)
        self._timer: Timer | None = None

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        if self._due_s is not None:
            self._timer = Timer(self._due_s, self._run_out)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def _run_out(self) -> None:
        self._scope.reschedule(asyncio.get_running_loop().time())


def time_limit(seconds: float | None) -> TimeLimit:
    """Raise `TimeoutError` from the block if the process runs in it for longer than this. None is
    no limit."""
    return TimeLimit(None if seconds is None else running_time().now_s() + seconds)


def time_limit_until(due_s: float) -> TimeLimit:
    """Raise `TimeoutError` from the block once `RunningTime.now_s` has reached `due_s`."""
    return TimeLimit(due_s)
