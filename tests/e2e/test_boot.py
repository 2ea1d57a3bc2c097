"""Checks at a real gateway with a bot on Telegram what an operator's home hears of starts and ends,
and that the instructions for the start run there."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.domain.schedule.boot import BOOT_FILE
from perdure.domain.schedule.jobs import PROMPT_MAX
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.command import TRUSTS_NOBODY, run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(120)
StartGateway = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
ADA = 42
ENDS, BACK = "The gateway stops now.", "The gateway is back"
SLOW = "demo words=30 delay_ms=100"


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


@pytest.fixture
async def gateway(gateway_factory: StartGateway, api: BotApi) -> GatewayProcess:
    """Provide a gateway whose operator is at home on Telegram."""
    gateway = await gateway_factory(
        toml=f"""
[drain]
timeout_s = 5
[notices]
still_at_work_s = 1
[adapters.telegram]
token = "{api.token}"
api_url = "{api.url}"
operators = ["{ADA}"]
"""
    )
    api.write(ADA, "/home")
    await api.wait_shown(ADA, lambda shown: any("home" in each.text for each in shown))
    return gateway


def has(*beginnings: str) -> Callable[[list[ShownMessage]], bool]:
    """Return whether a chat shows a message for each of these beginnings."""

    def look(shown: list[ShownMessage]) -> bool:
        return all(any(each.text.startswith(word) for each in shown) for word in beginnings)

    return look


def count(shown: list[ShownMessage], beginning: str) -> int:
    return sum(each.text.startswith(beginning) for each in shown)


async def status_of(home: Path) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environ = {**kept, **TRUSTS_NOBODY, "PERDURE_DISCOVER": "0"}
    result = await run_command(["--home", str(home), "status"], environ=environ)
    assert result.code == 0, result
    return str(result.out)


async def test_a_start_is_told_at_home_and_runs_its_instructions_there_once(
    api: BotApi, gateway: GatewayProcess
) -> None:
    assert await gateway.terminate() == 0
    await api.wait_shown(ADA, has(ENDS))
    (gateway.home / BOOT_FILE).write_text("# Start\nlook at the mail\n")
    await gateway.start()
    shown = await api.wait_shown(ADA, has(ENDS, BACK, "You said:"))
    (said,) = [each.text for each in shown if each.text.startswith("You said:")]
    assert "look at the mail" in said

    await gateway.restart()
    assert "boot " not in await status_of(gateway.home)
    await gateway.terminate()
    await gateway.start()
    api.write(ADA, "hello")
    shown = await api.wait_shown(ADA, has('You said: "hello"'))
    assert (count(shown, ENDS), count(shown, BACK), count(shown, "You said:")) == (1, 1, 2)


async def test_instructions_that_a_kill_cuts_short_are_followed_once(
    api: BotApi, gateway: GatewayProcess
) -> None:
    (gateway.home / BOOT_FILE).write_text(SLOW)
    await gateway.restart()
    await api.wait_shown(ADA, has(BACK))
    await gateway.restart()
    await gateway.restart()

    def is_whole(shown: list[ShownMessage]) -> bool:
        return any(len(each.text.split()) == 30 for each in shown)

    shown = await api.wait_shown(ADA, is_whole)
    api.write(ADA, "hello")
    shown = await api.wait_shown(ADA, has('You said: "hello"'))
    assert sum(len(each.text.split()) == 30 for each in shown) == 1
    assert count(shown, "The gateway is back after a crash.") == 1


async def test_instructions_that_cannot_run_are_named_by_the_status(
    api: BotApi, gateway: GatewayProcess
) -> None:
    (gateway.home / BOOT_FILE).write_text("x" * (PROMPT_MAX + 1))
    await gateway.restart()
    assert f"boot    {BOOT_FILE} has more than 20,000 characters" in await status_of(gateway.home)


async def test_without_a_home_the_status_says_where_to_choose_one(
    gateway_factory: StartGateway,
) -> None:
    gateway = await gateway_factory()
    (gateway.home / BOOT_FILE).write_text("look at the mail")
    await gateway.restart()
    assert "say /home where it should run" in await status_of(gateway.home)


async def test_an_answer_that_takes_long_says_once_that_it_goes_on(
    api: BotApi, gateway: GatewayProcess
) -> None:
    async with aiohttp.ClientSession() as session:
        api.write(ADA, "demo words=3 delay_ms=3000")
        shown = await api.wait_shown(
            ADA, lambda shown: any(len(each.text.split()) == 3 for each in shown)
        )
        assert count(shown, "Still at it, for ") == 1
        _, told = await Client(gateway, session).call("GET", "/api/status")
        assert told["boot"] == ""
