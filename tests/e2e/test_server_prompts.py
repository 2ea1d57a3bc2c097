"""Checks at a real gateway that people call the prompts of a tool server by their names."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.processes.command import TRUSTS_NOBODY, run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]


@pytest.fixture
async def client(gateway_factory: Factory, new_peer: NewPeer) -> AsyncIterator[Client]:
    command = json.dumps(new_peer.hostile_mcp().command())
    gone = '["no-such-program-anywhere"]'
    toml = (
        '[agents.main]\nkind = "demo"\ntools = ["mcp.peer", "mcp.gone"]\n'
        f"[tools.mcp.peer]\ncommand = {command}\n[tools.mcp.gone]\ncommand = {gone}\n"
    )
    gateway = await gateway_factory(toml=toml)
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def ended(client: Client, text: str) -> dict[str, Any]:
    """Say something, and return the turn when it is over."""
    return await client.settled((await client.say("main", text))["turn"])


async def told(client: Client, turn: str) -> str:
    """Return the request of a turn, as JSON text."""
    _, found = await client.call("GET", f"/api/explain/{turn}?request=true")
    return json.dumps(found["request"])


async def test_a_prompt_is_called_by_its_name_and_told_below_the_message(client: Client) -> None:
    turn = await ended(client, "/peer__greet Ada warmly")

    assert turn["outcome"] == "done"
    asked, _ = await client.transcript("main")
    assert asked["text"] == "/peer__greet Ada warmly"
    request = await told(client, turn["id"])
    assert "/peer__greet Ada warmly" in request
    assert "The person has chosen the prompt peer__greet" in request
    assert "Greet Ada warmly." in request

    around = {**os.environ, **TRUSTS_NOBODY, "PERDURE_HOME": str(client.gateway.home)}
    shown = await run_command(("explain", turn["id"]), environ=around)
    assert "prompt peer__greet" in shown.out
    assert "the prompt peer__greet was fetched" in (await client.say("main", "/why"))["reply"]


async def test_prompts_are_listed_and_a_short_name_is_no_command(client: Client) -> None:
    unknown = await client.say("main", "/greet Ada")
    assert "There is no command /greet." in unknown["reply"], "nobody has asked the server yet"
    await ended(client, "/peer__plain")

    listed = (await client.say("main", "/tools"))["reply"]
    turn = await ended(client, "/greet Ada")

    assert "/peer__greet name [style]  Greet a person." in listed
    assert "Greet Ada." in await told(client, turn["id"])
    assert "Did you mean /stop?" in (await client.say("main", "/stpo"))["reply"]


async def test_a_prompt_that_cannot_be_had_is_told_in_words(client: Client) -> None:
    wrong = await ended(client, "/peer__greet")
    away = await ended(client, "/gone__brief")
    plain = await ended(client, "/peer__nothing at all")

    assert (wrong["outcome"], wrong["reason"]) == ("refused", "invalid_request")
    last = [each for each in await client.transcript("main") if each["turn"] == wrong["id"]][-1]
    assert "Write: /peer__greet name [style]" in last["detail"]
    assert (away["outcome"], away["reason"]) == ("failed", "prompt_failed")
    assert plain["outcome"] == "done", "it names no prompt"
