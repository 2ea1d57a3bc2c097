"""A real gateway whose wall clock is set while it runs, and one that starts with a clock that is
behind, as boards without a battery do."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from perdure.testkit.http import Client
from perdure.testkit.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
LIBRARIES = "*/faketime/libfaketimeMT.so.1"
LONG = "demo words=4000 delay_ms=20"
ONE_AT_A_TIME = "[turns]\nconcurrent = 1\n"


class WallClock:
    """The wall clock of a process that runs with libfaketime; its monotonic clock goes on."""

    def __init__(self, library: str, folder: Path) -> None:
        self._file = folder / "clock"
        self.set("+0")
        self.environ = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, difference: str) -> None:
        """Set it to so much more than the machine's, or less: `-2h`."""
        written = self._file.with_name("clock.new")
        written.write_text(f"{difference}\n")
        written.replace(self._file)


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    found = sorted(Path("/usr/lib").glob(LIBRARIES))
    if not found:
        words = "libfaketime cannot be had here: run scripts/test-peers"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(words)
    return WallClock(str(found[0]), tmp_path)


@pytest.fixture
async def client(gateway_factory: Factory, wall_clock: WallClock) -> AsyncIterator[Client]:
    gateway = await gateway_factory(toml=ONE_AT_A_TIME, environ=wall_clock.environ)
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def queue_behind_a_long_one(client: Client, name: str) -> tuple[str, list[str]]:
    """One conversation is being answered, and three others wait for their turn."""
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
