"""Checks hooks at a real gateway: what its life and its turns tell them, what a kill changes about
that, and that operators see which hook fails."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
Put = Callable[[str, str], None]


@pytest.fixture
async def gateway(gateway_factory: StartGateway) -> GatewayProcess:
    """Provide a gateway that has a home, and is down."""
    gateway = await gateway_factory()
    await gateway.kill()
    return gateway


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


@pytest.fixture
def put(gateway: GatewayProcess) -> Put:
    """Write a hook: a script for an occasion."""

    def put(event: str, script: str) -> None:
        file = gateway.home / "hooks" / event / "hook"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o700)

    return put


async def lines_of(file: Path, count: int) -> list[dict[str, Any]]:
    """Wait until hooks have written so many lines, and return all of them."""
    async with asyncio.timeout(DEADLINE_S):
        while not file.exists() or file.read_text().count("\n") < count:
            await asyncio.sleep(POLL_S)
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_hooks_hear_of_a_life_and_of_its_turns(
    gateway: GatewayProcess, client: Client, put: Put, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    for event in ("started", "stopping", "turn_settled"):
        put(event, f"cat >> {told}")
    put("session_opened", "echo I cannot >&2; exit 4")
    await gateway.start()
    await lines_of(told, 1)
    sent = await client.say("main", "hello")
    await lines_of(told, 2)

    async def failures() -> dict[str, Any]:
        _, found = await client.call("GET", "/api/status")
        return dict(found["hooks"])

    async with asyncio.timeout(DEADLINE_S):
        while not await failures():
            await asyncio.sleep(POLL_S)
    failed = await failures()
    assert (failed["count"], failed["hook"], failed["event"]) == (1, "hook", "session_opened")
    assert failed["problem"] == "it ended with exit code 4: I cannot"

    await gateway.terminate()
    started, settled, stopping = await lines_of(told, 3)
    assert started.keys() == stopping.keys() == {"event", "at", "node"}
    assert (started["event"], stopping["event"]) == ("started", "stopping")
    expected = {
        "event": "turn_settled",
        "conversation": "main",
        "turn": sent["turn"],
        "session": sent["session"],
        "outcome": "done",
        "reason": "stop",
    }
    assert {key: settled[key] for key in expected} == expected


async def test_a_hook_that_a_kill_cut_short_is_told_again(
    gateway: GatewayProcess, client: Client, put: Put, tmp_path: Path
) -> None:
    told, begun = tmp_path / "told", tmp_path / "begun"
    put("turn_settled", f"cat > /dev/null; echo 1 >> {begun}; exec sleep 61")
    await gateway.start()
    sent = await client.say("main", "hello")
    await lines_of(begun, 1)
    await gateway.kill()

    put("turn_settled", f"cat >> {told}")
    await gateway.start()
    (again,) = await lines_of(told, 1)
    assert (again["event"], again["turn"]) == ("turn_settled", sent["turn"])


async def test_a_hook_that_hangs_holds_up_neither_turns_nor_the_stop(
    gateway: GatewayProcess, client: Client, put: Put, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    for event in ("turn_started", "turn_settled", "stopping"):
        put(event, f"echo 1 >> {begun}; exec sleep 62")
    await gateway.start()
    await client.say("main", "hello")
    await lines_of(begun, 1)
    turn = (await client.say("main", "and again"))["turn"]
    assert (await client.settled(turn))["outcome"] == "done"
    # The demo agent has ended, so only the hooks are left, and a stop does not wait for them.
    async with asyncio.timeout(20):
        assert await gateway.terminate() == 0
