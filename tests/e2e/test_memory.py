"""Checks that an agent's memory and the person's memory are the same, through a real gateway."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
TOML = '[agents.main]\nkind = "demo"\ntools = ["memory", "sessions"]\n'


@pytest.fixture
async def start(gateway_factory: Factory) -> AsyncIterator[Callable[[str], Awaitable[Client]]]:
    async with aiohttp.ClientSession() as session:

        async def begin(toml: str = "") -> Client:
            return Client(await gateway_factory(toml=toml), session)

        yield begin


async def answer(client: Client, text: str, name: str = "main") -> str:
    said = await client.say(name, text)
    assert (await client.settled(said["turn"]))["outcome"] == "done"
    return str((await client.transcript(name))[-1]["text"])


async def test_what_the_agent_saves_the_person_sees_and_erases(start: Any) -> None:
    client = await start(TOML)

    saved = await answer(client, 'demo tool memory {"action":"save","text":"likes tea"}')
    elsewhere = await client.say("other", "/memory")
    await client.say("other", "/memory forget 1")

    assert "Remembered as" in saved
    assert elsewhere["reply"].startswith("1. likes tea\n")
    listed = await answer(client, 'demo tool memory {"action":"list"}')
    assert "Nothing is remembered" in listed


async def test_an_agent_finds_what_was_said_elsewhere(start: Any) -> None:
    client = await start(TOML)
    await answer(client, "the harbour is south", "home")

    found = await answer(client, 'demo tool sessions {"action":"search","words":"harbour"}', "work")

    assert "the harbour is south" in found


async def test_an_agent_has_only_the_tools_it_is_given(start: Any) -> None:
    client = await start('[agents.main]\nkind = "demo"\n')

    told = await answer(client, 'demo tool memory {"action":"list"}')

    assert "there is no tool 'memory'" in told
