"""Checks a real gateway whose wall clock is set while it runs, and one that starts with a clock
that is behind, as boards without a battery do."""

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess
from perdure.testkit.processes.wall_clock import WallClock

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
LONG = "demo words=4000 delay_ms=20"
ONE_AT_A_TIME = "[turns]\nconcurrent = 1\n"


@pytest.fixture
async def client(gateway_factory: Factory, wall_clock: WallClock) -> AsyncIterator[Client]:
    gateway = await gateway_factory(toml=ONE_AT_A_TIME, environ=wall_clock.environ)
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def queue_behind_a_long_one(client: Client, name: str) -> tuple[str, list[str]]:
    """Begin a long answer in one conversation, and let three others wait behind it."""
    running = await client.say(f"{name}-long", LONG)
    waiting = [await client.say(f"{name}-{nth}", "hello") for nth in range(3)]
    return running["turn"], [each["turn"] for each in waiting]


async def test_what_waits_is_answered_whatever_becomes_of_the_clock(
    client: Client, wall_clock: WallClock
) -> None:
    running, waiting = await queue_behind_a_long_one(client, "set-back")
    wall_clock.set("-2h")
    await client.call("POST", f"/api/turns/{running}/stop")
    for turn in waiting:
        assert (await client.settled(turn))["outcome"] == "done"
    _, turn_now = await client.call("GET", f"/api/turns/{waiting[-1]}")
    assert turn_now["settled_at"] < turn_now["queued_at"], "the clock was really set back"

    running, waiting = await queue_behind_a_long_one(client, "restarted")
    await client.gateway.kill()
    wall_clock.set("-5h")
    await client.gateway.start()
    await client.call("POST", f"/api/turns/{running}/stop")
    for turn in waiting:
        assert (await client.settled(turn))["outcome"] == "done"
