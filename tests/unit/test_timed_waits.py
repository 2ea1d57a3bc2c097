"""Checks waiting for an instant while somebody sets the clock."""

import asyncio

import pytest

from perdure.engine.foundation.pump_waiter import PumpWaiter
from perdure.engine.foundation.timed_waits import ClockWatch
from perdure.engine.foundation.wakes import Bus
from perdure.ports.turns.wakes import Topic
from perdure.testkit.simulator.system import VirtualClock

HOUR_S = 3_600


async def waits_still(task: "asyncio.Task[None]") -> bool:
    done, _ = await asyncio.wait({task}, timeout=0.05)
    return not done


@pytest.mark.parametrize("jump_s", [-2 * HOUR_S, 2 * HOUR_S])
async def test_a_wait_for_an_instant_ends_when_the_clock_is_set(jump_s: float) -> None:
    clock = VirtualClock()
    watch = ClockWatch(clock)
    waiting = asyncio.ensure_future(watch.wait(asyncio.Event(), within_s=HOUR_S))
    assert await waits_still(waiting)

    clock.jump(jump_s)

    async with asyncio.timeout(5):
        await waiting


async def test_a_wait_for_an_instant_ends_at_once_when_it_is_woken() -> None:
    clock, woken = VirtualClock(), asyncio.Event()
    waiting = asyncio.ensure_future(ClockWatch(clock).wait(woken, within_s=HOUR_S))
    assert await waits_still(waiting)

    woken.set()

    async with asyncio.timeout(0.5):
        await waiting


async def test_an_instant_that_was_found_before_the_clock_was_set_is_not_waited_for() -> None:
    clock = VirtualClock()
    watch = ClockWatch(clock)

    clock.jump(-2 * HOUR_S)

    async with asyncio.timeout(0.5):
        await watch.wait(asyncio.Event(), within_s=HOUR_S)


async def test_a_pump_looks_again_at_what_is_due_when_the_clock_is_set() -> None:
    clock = VirtualClock()
    lookout = PumpWaiter(Bus().waiter(Topic.OUTBOX), clock=clock)
    lookout.look()
    due_ms = clock.now_ms() + HOUR_S * 1000
    waiting = asyncio.ensure_future(lookout.wait(due_ms, at_most_s=HOUR_S))
    assert await waits_still(waiting)

    clock.jump(-2 * HOUR_S)

    async with asyncio.timeout(5):
        await waiting
