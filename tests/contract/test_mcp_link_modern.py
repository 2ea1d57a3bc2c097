"""Checks links to a server of the official package, in the version without a handshake."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.mcp_links import said, text_of, unheard

from perdure.domain.errors import Rejected
from perdure.ports.system.outgoing import DIRECT
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.official_mcp import OfficialMcpServer
from perdure.tools.mcp.connecting import connect_address
from perdure.tools.mcp.link import InputGiven, InputNeeded, LinkTerms, ServerLink


@pytest.fixture(params=["streams", "json"])
async def server(
    request: pytest.FixtureRequest, new_peer: NewPeer
) -> AsyncIterator[OfficialMcpServer]:
    words = ["--json"] if request.param == "json" else []
    async with new_peer.official_mcp(*words) as server:
        yield server


async def connected(server: OfficialMcpServer, **terms: Any) -> ServerLink:
    link = await connect_address(server.url, {}, outgoing=DIRECT, terms=LinkTerms(**terms))
    assert link.version == "2026-07-28"
    return link


async def test_a_modern_server_asks_one_question_after_another(server: OfficialMcpServer) -> None:
    arguments = {"wall": "north"}
    link = await connected(server)
    first = await link.call("call-1", "paint", arguments, report=unheard)
    assert isinstance(first, InputNeeded)
    assert first.message == "Which colour?"
    assert json.loads(first.schema)["required"] == ["colour"]
    await link.close()
    # The server keeps nothing, so it may even be another one.
    await server.stop()
    await server.start()
    link = await connected(server)
    given = InputGiven(action="accept", content={"colour": "red"}, state=first.state)
    second = await link.resume("call-1", "paint", arguments, given, report=unheard)
    assert isinstance(second, InputNeeded)
    assert second.message == "Which size?"
    given = InputGiven(action="accept", content={"size": 7}, state=second.state)
    answer = await link.resume("call-1", "paint", arguments, given, report=unheard)
    assert text_of(answer) == "north is red and 7"
    declined = InputGiven(action="decline", state=first.state)
    refused = await link.resume("call-1", "paint", arguments, declined, report=unheard)
    if isinstance(refused, InputNeeded):
        declined = InputGiven(action="decline", state=refused.state)
        refused = await link.resume("call-1", "paint", arguments, declined, report=unheard)
    assert not isinstance(refused, InputNeeded)
    assert refused.has_failed
    await link.close()


async def test_a_modern_server_may_ask_a_model_and_learns_no_folders(
    server: OfficialMcpServer,
) -> None:
    async def sampler(request: dict[str, Any], /) -> dict[str, Any]:
        return {"role": "assistant", "content": {"type": "text", "text": "hm"}, "model": "m"}

    link = await connected(server, can_sample=True)
    assert await said(link, "think", sampler=sampler) == "hm"
    await link.close()
    link = await connected(server)
    with pytest.raises(Rejected):
        await said(link, "think")
    with pytest.raises(Rejected):
        await said(link, "look")
    await link.close()


async def test_arguments_travel_in_headers_even_if_nobody_has_listed_the_tools(
    server: OfficialMcpServer,
) -> None:
    link = await connected(server)
    assert await said(link, "route", region="north") == "north by north"
    await link.close()


@pytest.mark.parametrize("server", ["streams"], indirect=True)
async def test_a_cancelled_modern_call_ends_at_the_server(server: OfficialMcpServer) -> None:
    # A server that answers without a stream does not notice that nobody listens any more.
    async def running() -> list[str]:
        async with aiohttp.ClientSession() as http, http.get(f"{server.origin}/running") as answer:
            return list(json.loads(await answer.text()))

    link = await connected(server)
    calling = asyncio.ensure_future(link.call("call-1", "hold", {"name": "a"}, report=unheard))
    async with asyncio.timeout(10):
        while await running() != ["a"]:
            await asyncio.sleep(0.02)
        calling.cancel()
        while await running() != []:
            await asyncio.sleep(0.02)
    await link.ping()
    await link.close()


async def test_a_modern_server_tells_of_changes(server: OfficialMcpServer) -> None:
    changed = asyncio.Event()
    link = await connected(server, on_change=changed.set)
    assert await said(link, "change") == "changed"
    async with asyncio.timeout(5):
        await changed.wait()
    assert "added" in {each.name for each in await link.tools()}
    await link.close()
