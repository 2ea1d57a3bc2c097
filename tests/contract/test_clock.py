"""Checks the `Clock` and `Entropy` ports: the real ones and those that tests control."""

import asyncio

import pytest

from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.testkit.simulator.system import START_MS, SeededEntropy, VirtualClock


@pytest.fixture(params=[SystemClock, lambda: VirtualClock(is_eager=True)], ids=["real", "eager"])
def any_clock(request: pytest.FixtureRequest) -> Clock:
    clock: Clock = request.param()
    return clock


@pytest.mark.parametrize("seconds", [-1, 0, 0.02])
async def test_a_sleep_is_no_shorter_than_asked(any_clock: Clock, seconds: float) -> None:
    before = any_clock.monotonic_s()

    await any_clock.sleep(seconds)

    assert any_clock.monotonic_s() - before >= seconds


async def test_sleepers_wake_in_the_order_of_their_times(any_clock: Clock) -> None:
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await any_clock.sleep(seconds)
        woken.append(seconds)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for seconds in (0.06, 0.02, 0.04):
            group.create_task(sleep(seconds))

    assert woken == [0.02, 0.04, 0.06]


async def test_a_sleep_can_be_cancelled(any_clock: Clock) -> None:
    sleeping = asyncio.create_task(any_clock.sleep(1000))
    sleeping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await sleeping


async def test_time_moves_by_hand() -> None:
    clock = VirtualClock()
    early = asyncio.create_task(clock.sleep(5))
    late = asyncio.create_task(clock.sleep(10))
    await asyncio.sleep(0)
    assert clock.sleepers == 2

    clock.advance(4.999)
    await asyncio.sleep(0)
    assert not early.done()
    clock.advance(0.001)
    await early
    assert (late.done(), clock.sleepers) == (False, 1)
    assert (clock.now_ms(), clock.monotonic_s()) == (START_MS + 5000, 5)
    clock.advance(60)
    await late


def test_the_wall_clock_may_jump_and_the_other_does_not() -> None:
    clock = VirtualClock()

    clock.jump(-3600)

    assert (clock.now_ms(), clock.monotonic_s()) == (START_MS - 3_600_000, 0)


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy()], ids=["real", "seeded"])
def test_random_bytes_are_fresh_and_of_the_size_asked(entropy: Entropy) -> None:
    drawn = [entropy.random_bytes(10) for _ in range(1000)]

    assert {len(each) for each in drawn} == {10}
    assert len(set(drawn)) == 1000


def test_seeds_repeat_themselves_and_differ_from_each_other() -> None:
    def first(seed: int) -> list[bytes]:
        entropy = SeededEntropy(seed)
        return [entropy.random_bytes(4) for _ in range(5)]

    assert first(1) == first(1) != first(2)
