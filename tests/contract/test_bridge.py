"""Checks the bridge over which external agents call the gateway's tools, by the official client
over HTTP and over the relay, and by requests that no agent of ours sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from perdure.domain.errors import Transient
from perdure.ports.agents.bridge import CALLS_MAX, BridgeAddress, BridgeCall
from perdure.web.bridge.bindings import GONE, LiveBinding
from perdure.web.bridge.bridge import ToolBridge

pytestmark = pytest.mark.timeout(60)


def listed(*names: str) -> str:
    """Return tools as the gateway describes them to models."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return json.dumps(
        [
            {
                "type": "function",
                "function": {"name": name, "description": f"It {name}s.", "parameters": schema},
            }
            for name in names
        ]
    )


class Rig:
    """Takes the calls of one binding, and notes which ones nobody waits for any more."""

    def __init__(self, *, answers: bool = True) -> None:
        self.calls: list[BridgeCall] = []
        self.given_up: list[int] = []
        self.rang = asyncio.Event()
        self.answers = answers
        self.binding: LiveBinding | None = None

    def hear(self, call: BridgeCall) -> None:
        self.calls.append(call)
        self.rang.set()
        if self.answers and self.binding is not None:
            self.binding.answer(call.key, f"{call.name} {call.arguments}", is_error=False)

    async def opened(self, bridge: ToolBridge, *names: str) -> LiveBinding:
        self.binding = await bridge.bind(
            listed(*names), hear=self.hear, is_cancelled=self.given_up.append
        )
        return self.binding


@pytest.fixture
async def bridge() -> AsyncIterator[ToolBridge]:
    bridge = ToolBridge()
    yield bridge
    await bridge.close()


@asynccontextmanager
async def over_http(address: BridgeAddress, *, token: str | None = None) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token or address.token}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(address.url, http_client=http), cache=None) as client,
    ):
        yield client


@asynccontextmanager
async def over_relay(address: BridgeAddress) -> AsyncIterator[Client]:
    command, *args = address.argv
    parameters = StdioServerParameters(command=command, args=args, env=dict(address.env))
    async with Client(parameters, cache=None) as client:
        yield client


WAYS = {"http": over_http, "relay": over_relay}


async def said(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    return str(content.text)  # type: ignore[union-attr]


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_lists_and_calls_its_tools(bridge: ToolBridge, way: str) -> None:
    binding = await Rig().opened(bridge, "ring", "sing")
    assert not binding.address.connected.is_set()

    async with WAYS[way](binding.address) as client:
        tools = (await client.list_tools()).tools
        assert binding.address.connected.is_set()
        assert [tool.name for tool in tools] == ["ring", "sing"]
        assert tools[0].input_schema["properties"] == {"text": {"type": "string"}}
        assert await said(client, "sing", text="ö") == 'sing {"text":"ö"}'


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_waits_for_its_own_answer(bridge: ToolBridge, way: str) -> None:
    rig = Rig(answers=False)
    binding = await rig.opened(bridge, "ring")

    async with WAYS[way](binding.address) as client, asyncio.TaskGroup() as group:
        calls = [group.create_task(said(client, "ring", text=str(n))) for n in range(3)]
        async with asyncio.timeout(10):
            while len(rig.calls) < 3:
                rig.rang.clear()
                await rig.rang.wait()
        for call in reversed(rig.calls):
            binding.answer(call.key, call.arguments, is_error=False)
    assert [task.result() for task in calls] == [f'{{"text":"{n}"}}' for n in range(3)]


async def test_a_call_lands_in_its_own_binding(bridge: ToolBridge) -> None:
    ada, bob = Rig(), Rig()
    hers, his = await ada.opened(bridge, "ring"), await bob.opened(bridge, "ring")

    async with (
        over_http(hers.address) as one,
        over_http(his.address) as other,
        asyncio.TaskGroup() as group,
    ):
        for n in range(20):
            group.create_task(said(one, "ring", text=f"ada {n}"))
            group.create_task(said(other, "ring", text=f"bob {n}"))
    assert len(ada.calls) == len(bob.calls) == 20
    assert all("ada" in call.arguments for call in ada.calls)
    assert all("bob" in call.arguments for call in bob.calls)


@pytest.mark.parametrize("way", WAYS)
async def test_new_tools_of_one_binding_change_nothing_for_others(
    bridge: ToolBridge, way: str
) -> None:
    ada, bob = Rig(answers=False), Rig()
    hers, his = await ada.opened(bridge, "ring"), await bob.opened(bridge, "ring")

    async with WAYS[way](hers.address) as one, over_http(his.address) as other:
        async with asyncio.TaskGroup() as group:
            under_way = group.create_task(said(one, "ring", text="x"))
            await asyncio.wait_for(ada.rang.wait(), 10)
            hers.publish(listed("sing"))
            hers.answer(ada.calls[0].key, "still answered", is_error=False)
        assert under_way.result() == "still answered"
        assert [tool.name for tool in (await one.list_tools()).tools] == ["sing"]
        assert [tool.name for tool in (await other.list_tools()).tools] == ["ring"]
        assert "no such tool" in await said(one, "ring", text="x")
    assert len(ada.calls) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_binding_answers_with_an_error(bridge: ToolBridge, way: str) -> None:
    rig = Rig(answers=False)
    binding = await rig.opened(bridge, "ring")

    async with WAYS[way](binding.address) as client:
        async with asyncio.TaskGroup() as group:
            under_way = group.create_task(said(client, "ring", text="x"))
            await asyncio.wait_for(rig.rang.wait(), 10)
            binding.close()
            binding.close()
        assert under_way.result() == GONE
    assert len(rig.calls) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_that_the_agent_gives_up_is_told(bridge: ToolBridge, way: str) -> None:
    rig = Rig(answers=False)
    binding = await rig.opened(bridge, "ring")

    async with WAYS[way](binding.address) as client:
        call = asyncio.create_task(said(client, "ring", text="x"))
        await asyncio.wait_for(rig.rang.wait(), 10)
        call.cancel()
        async with asyncio.timeout(10):
            while not rig.given_up:
                await asyncio.sleep(0.01)
    assert rig.given_up == [rig.calls[0].key]


async def test_no_more_calls_wait_than_are_allowed(bridge: ToolBridge) -> None:
    rig = Rig(answers=False)
    binding = await rig.opened(bridge, "ring")

    waiting = [asyncio.create_task(binding.call("ring", {})) for _ in range(CALLS_MAX)]
    await asyncio.sleep(0)
    refused = await binding.call("ring", {})
    long = await (await Rig().opened(bridge, "ring")).call("ring", {"text": "x" * 3_000_000})

    assert (refused.is_error, long.is_error) == (True, True)
    assert "wait already" in refused.text
    assert "call again with less" in long.text
    binding.close()
    assert {(await each).text for each in waiting} == {GONE}


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer nothing"}, 401),
        ({"Authorization": "Basic {token}"}, 401),
        ({"Authorization": "Bearer {token}", "Origin": "http://127.0.0.1:1"}, 403),
        ({"Authorization": "Bearer {token}", "Host": "evil.example"}, 403),
        ({"Authorization": "Bearer {token}"}, 200),
    ],
)
async def test_only_who_has_the_secret_is_served(
    bridge: ToolBridge, headers: dict[str, str], status: int
) -> None:
    address = (await Rig().opened(bridge, "ring")).address
    given = {name: text.format(token=address.token) for name, text in headers.items()}

    async with (
        aiohttp.ClientSession() as http,
        http.post(address.url, json=INITIALIZE, headers={**ACCEPT, **given}) as answer,
    ):
        assert answer.status == status
        told = await answer.text()
    assert "ring" not in told
    if status != 200:
        assert json.loads(told)["error"]["message"]


async def test_a_relay_without_a_secret_hears_nothing(bridge: ToolBridge) -> None:
    address = (await Rig().opened(bridge, "ring")).address

    reader, writer = await asyncio.open_unix_connection(address.env["PERDURE_BRIDGE"])
    writer.write(b"wrong\n" + json.dumps(INITIALIZE).encode() + b"\n")
    await writer.drain()

    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()


async def test_a_relay_that_sends_no_message_harms_nobody(bridge: ToolBridge) -> None:
    rig = Rig()
    address = (await rig.opened(bridge, "ring")).address

    reader, writer = await asyncio.open_unix_connection(address.env["PERDURE_BRIDGE"])
    writer.write(f"{address.token}\n".encode() + b"garbage\n[1,2]\n\xff\xfe\n" + b"x" * 5_000_000)
    with suppress(ConnectionError):
        async with asyncio.timeout(10):
            await writer.drain()
            while await reader.read(65536):
                pass
    writer.close()

    async with over_http(address) as client:
        assert await said(client, "ring", text="x") == 'ring {"text":"x"}'


async def test_an_ended_bridge_makes_no_bindings(bridge: ToolBridge) -> None:
    binding = await Rig().opened(bridge, "ring")
    await bridge.close()
    await bridge.close()

    with pytest.raises(Transient, match="stopping"):
        await Rig().opened(bridge, "ring")
    assert (await binding.call("ring", {})).text == GONE
    assert not Path(binding.address.env["PERDURE_BRIDGE"]).exists()


async def test_who_hangs_up_after_the_handshake_has_a_session(bridge: ToolBridge) -> None:
    # Some agents open a connection for each message, and close it at the last word.
    address = (await Rig().opened(bridge, "mail")).address
    headers = {
        **ACCEPT,
        "Authorization": f"Bearer {address.token}",
    }
    for _ in range(20):
        async with aiohttp.ClientSession(headers=headers) as http:
            greeting = await http.post(address.url, json=INITIALIZE)
            while not (await greeting.content.readline()).startswith(b"data: {"):
                pass
            greeting.close()
            session = {"Mcp-Session-Id": greeting.headers["Mcp-Session-Id"]}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
            listed = await http.post(address.url, json=listing, headers=session)
            assert listed.status == 200
            listed.close()
