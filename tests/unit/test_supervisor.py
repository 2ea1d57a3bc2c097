"""Checks that a failing pump goes on, and that the log says when the trouble began and when it was
over."""

import asyncio

import pytest
from structlog.testing import capture_logs

from perdure.engine.foundation import supervisor
from perdure.engine.foundation.supervisor import run_again
from perdure.testkit.simulator.system import VirtualClock

BEGAN, OVER = "a pump has stumbled and goes on", "a pump works again"


async def test_a_pump_in_trouble_is_one_line_when_it_begins_and_one_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "STEADY_S", 0.02)
    failures = [ValueError("first")] * 3 + [ValueError("second")] * 3
    clock = VirtualClock()
    stumbles, steady = 0, asyncio.Event()

    async def run() -> None:
        if failures:
            raise failures.pop(0)
        await steady.wait()
        raise ValueError("second")

    def stumbled() -> None:
        nonlocal stumbles
        stumbles += 1

    with capture_logs() as lines:
        pump = asyncio.ensure_future(run_again(run, name="a pump", clock=clock, stumbled=stumbled))

        async def until(event: str, times: int) -> None:
            while [line["event"] for line in lines].count(event) < times:
                clock.advance(supervisor.REST_S)
                await asyncio.sleep(0.001)

        async with asyncio.timeout(10):
            await until(OVER, 1)
            steady.set()
            await until(BEGAN, 3)
        pump.cancel()
        await asyncio.wait({pump})

    assert stumbles >= 7
    assert [line["event"] for line in lines] == [BEGAN, BEGAN, OVER, BEGAN]
