"""Checks that encoded histories are kept within bounds, and that memory is given back at rest."""

import asyncio
from typing import cast

import pytest

from perdure.domain.ids import TurnId
from perdure.domain.prompt.prompt import Window
from perdure.engine.foundation import memory_trim as trim_module
from perdure.engine.foundation.memory_trim import QUIET_S, MemoryTrim
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models import windows
from perdure.engine.models.windows import IDLE_S, WindowKey, Windows
from perdure.ports.turns.agent import Agent
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.system import VirtualClock
from perdure.testkit.simulator.world import until

AGENT = cast("Agent", ScriptedAgent())
MEGABYTE = Window(encoded=bytes(1_000_000))


def key(number: int, agent: Agent = AGENT) -> WindowKey:
    return agent, TurnId(f"trn_{number}")


def test_a_window_is_good_for_its_view_and_its_agent() -> None:
    kept = Windows(clock=VirtualClock())
    kept.keep(key(1), "a", MEGABYTE)

    assert kept.get(key(1), "a") is MEGABYTE
    assert kept.get(key(1), "b") is None
    assert kept.get(key(1, cast("Agent", ScriptedAgent())), "a") is None
    kept.forget_agent(AGENT)
    assert kept.get(key(1), "a") is None


def test_the_longest_unused_goes_first() -> None:
    kept = Windows(clock=VirtualClock())
    for number in range(60):
        kept.keep(key(number), "", MEGABYTE)
    kept.get(key(0), "")
    for number in range(60, 100):
        kept.keep(key(number), "", MEGABYTE)

    assert len(kept) < 70
    assert kept.get(key(0), "") is not None
    assert kept.get(key(1), "") is None


def test_what_is_idle_is_dropped_and_what_is_used_stays() -> None:
    clock, dropped = VirtualClock(), []
    kept = Windows(clock=clock, dropped=lambda: dropped.append(True))
    kept.keep(key(1), "", MEGABYTE)
    kept.keep(key(2), "", MEGABYTE)
    clock.advance(IDLE_S - 1)
    kept.get(key(1), "")
    kept.drop_idle()
    assert (len(kept), dropped) == (2, [])
    clock.advance(1)

    kept.drop_idle()

    assert (len(kept), dropped) == (1, [True])
    assert kept.get(key(1), "") is MEGABYTE
    kept.forget(key(1))
    assert kept._bytes == 0


async def test_idle_windows_go_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "TOGETHER_S", 0.001)
    clock = VirtualClock()
    kept = Windows(clock=clock)
    async with Supervisor() as supervisor:
        supervisor.start(kept.run(), name="windows")
        kept.keep(key(1), "", MEGABYTE)
        clock.advance(IDLE_S)
        await until(lambda: len(kept) == 0)
        kept.stop()


async def test_memory_is_given_back_once_it_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim_module, "happens_within", _soon)
    clock = VirtualClock()
    given: list[str] = []

    async def shrink() -> None:
        given.append("the store's")

    memory_trim = MemoryTrim(shrink, lambda: given.append("the rest"), clock=clock)
    async with Supervisor() as supervisor:
        supervisor.start(memory_trim.run(), name="thrift")
        memory_trim.stir()
        for _ in range(8):
            clock.advance(QUIET_S / 2)
            memory_trim.stir()
            await asyncio.sleep(0.001)
        assert given == [], "it is not quiet"
        clock.advance(QUIET_S)
        await until(lambda: given == ["the store's", "the rest"])
        clock.advance(1000)
        await asyncio.sleep(0.001)
        assert len(given) == 2, "nothing was done since"
        memory_trim.stop()


async def _soon(event: asyncio.Event, *, within_s: float | None) -> bool:
    """Look again in the next round of the loop instead of waiting: the test controls the time."""
    await asyncio.sleep(0)
    return event.is_set()
