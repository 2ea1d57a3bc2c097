"""Checks time limits that leave out the time in which the process stood still."""

import asyncio
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import cast

import pytest
import uvloop

from perdure.ports.system.time_limits import LATE_S, READING_S, TICK_S, RunningTime, time_limit

PAUSE_S = TICK_S + 2 * LATE_S


class ScriptedLoop:
    """Simulates the clock and the timers of a loop, moved by hand. `pause` lets time pass without
    running anything, like a process that stands still."""

    def __init__(self) -> None:
        self._now = 100.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, call: Callable[[], None]) -> "ScriptedLoop":
        self._timers.append((self._now + delay, call))
        return self

    def cancel(self) -> None:
        self._timers.clear()

    def run(self, seconds: float) -> None:
        until = self._now + seconds
        while due := sorted(each for each in self._timers if each[0] <= until):
            self._timers.remove(due[0])
            self._now = max(self._now, due[0][0])
            due[0][1]()
        self._now = until

    def pause(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def loop() -> ScriptedLoop:
    return ScriptedLoop()


@pytest.fixture
def running(loop: ScriptedLoop) -> RunningTime:
    running = RunningTime(cast("asyncio.AbstractEventLoop", loop))
    running.begin()
    return running


def test_a_pause_does_not_count(loop: ScriptedLoop, running: RunningTime) -> None:
    began = running.now_s()
    loop.run(10.3)
    loop.pause(3_600)
    loop.run(5)

    assert 15.3 <= running.now_s() - began <= 15.3 + TICK_S


def test_many_pauses_do_not_count(loop: ScriptedLoop, running: RunningTime) -> None:
    began = running.now_s()
    for _ in range(10):
        loop.run(7)
        loop.pause(100)

    assert 70 <= running.now_s() - began <= 70 + 10 * TICK_S


def test_a_loop_that_is_a_little_late_has_not_paused(
    loop: ScriptedLoop, running: RunningTime
) -> None:
    began = running.now_s()
    loop.run(2)
    loop.pause(LATE_S)
    loop.run(2)

    assert running.now_s() - began == pytest.approx(4 + LATE_S)


def test_nothing_is_judged_just_after_a_pause(loop: ScriptedLoop, running: RunningTime) -> None:
    loop.run(3)
    assert not running.is_reading()
    loop.pause(3_600)
    running.now_s()
    assert running.is_reading()

    loop.run(READING_S)

    assert not running.is_reading()


def test_the_clock_ticks_only_while_something_is_limited(
    loop: ScriptedLoop, running: RunningTime
) -> None:
    running.end()
    assert loop._timers == []
    loop.pause(3_600)  # nothing measures now

    running.begin()
    began = running.now_s()
    loop.run(3)

    assert running.now_s() - began == pytest.approx(3)


async def test_what_came_during_a_pause_is_read_before_the_limit_is_judged() -> None:
    # The loop is blocked for longer than the limit, and the bytes come meanwhile.
    reads, writes = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reads, "rb")
    )
    threading.Timer(PAUSE_S / 2, os.write, (writes, b"words")).start()
    try:
        async with time_limit(PAUSE_S / 4):
            asyncio.get_running_loop().call_soon(time.sleep, PAUSE_S)
            assert await reader.read(100) == b"words"
    finally:
        transport.close()
        os.close(writes)


async def test_a_limit_ends_what_takes_too_long() -> None:
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        async with time_limit(0.1):
            await asyncio.Event().wait()

    assert 0.09 < time.monotonic() - began < 5


async def test_a_limit_leaves_a_cancellation_as_it_is() -> None:
    async def work() -> None:
        async with time_limit(60):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_without_seconds_there_is_no_limit() -> None:
    async with time_limit(None):
        await asyncio.sleep(0)


def test_a_loop_that_is_over_is_not_kept() -> None:
    loop = uvloop.new_event_loop()
    kept = weakref.ref(loop)

    async def work() -> None:
        async with time_limit(1):
            await asyncio.sleep(0)

    loop.run_until_complete(work())
    loop.close()
    del loop
    gc.collect()

    assert kept() is None
