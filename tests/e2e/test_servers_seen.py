"""Checks that people see how the tool servers of a node are, wherever they look."""

import asyncio
import json
import sys
from typing import Any

import aiohttp
import pytest
from tests.conftest import StartGateway
from tests.e2e.test_cli_servers import perdure

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


def settings(good: list[str], bad: list[str]) -> str:
    return f"""
[agents.main]
kind = "demo"
tools = ["mcp.good", "mcp.bad"]

[tools.mcp.good]
command = {json.dumps(good)}
shared = true
approve = "never"

[tools.mcp.bad]
command = {json.dumps(bad)}

[tools.mcp.idle]
url = "http://127.0.0.1:9/mcp"
"""


async def servers(client: Client) -> dict[str, Any]:
    status, body = await client.call("GET", "/api/tools/servers")
    assert status == 200, body
    return {each["name"]: each for each in body["servers"]}


async def until_down(client: Client, name: str) -> dict[str, Any]:
    """Wait until a server is known to be down, and return what is known of all."""
    async with asyncio.timeout(DEADLINE_S):
        while (found := await servers(client))[name]["state"] != "down":
            await client.gateway.pause(POLL_S)
    return found


async def test_a_good_and_a_broken_server_are_seen_alike_everywhere(
    gateway_factory: StartGateway, hostile: HostileMcp
) -> None:
    bad = hostile.command(Mischief("exits"))
    gateway = await gateway_factory(toml=settings(hostile.command(), bad))
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        before = await servers(client)
        assert {each["state"] for each in before.values()} == {"not_started"}

        said = await client.say("a", 'demo tool good__echo {"text": "hello"}')
        assert (await client.settled(said["turn"]))["outcome"] == "done"
        found = await until_down(client, "bad")

        assert [each["state"] for each in found.values()] == ["ready", "down", "not_started"]
        good = found["good"]
        assert (good["kind"], good["is_shared"], good["links"]) == ("program", True, 1)
        assert (good["calls"], good["failures"]) == (1, 0)
        assert good["tools"] > 5
        assert good["version"].startswith("hostile")
        assert (found["idle"]["kind"], found["bad"]["tools"]) == ("address", 0)

        _, status = await client.call("GET", "/api/status")
        assert {each["name"]: each["state"] for each in status["tool_servers"]} == {
            name: each["state"] for name, each in found.items()
        }
        async with session.get(f"{gateway.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        for line in (
            'perdure_tool_servers{server="good",state="ready"} 1.0',
            'perdure_tool_servers{server="bad",state="down"} 1.0',
            'perdure_tool_servers{server="bad",state="ready"} 0.0',
            'perdure_tool_server_calls_total{server="good"} 1.0',
            'perdure_tool_server_failures_total{server="good"} 0.0',
        ):
            assert line in lines

        _, log = await client.call("GET", "/api/tools/servers/bad/log")
        assert log["log"].strip()
        _, tools = await client.call("GET", "/api/tools")
        offered = {each["name"]: each for each in tools["tools"]}
        assert offered["good__echo"]["why"] == 'approve = "never"'
        assert offered["mcp.bad"]["state"] == "off"
        assert offered["mcp.bad"]["why"]

    told = await perdure(gateway.home, "status")
    assert told.code == 0
    assert "servers 1 not started, 1 ready, 1 down" in told.out
    assert "mcp.bad: it is down: " in told.out
    assert "mcp.good" not in told.out
    listed = await perdure(gateway.home, "mcp", "list", "--json")
    assert {each["name"]: each["state"] for each in listed.json["servers"]} == {
        "good": "ready",
        "bad": "down",
        "idle": "not_started",
    }
    written = await perdure(gateway.home, "mcp", "logs", "bad")
    assert written.out.strip() == log["log"].strip()
    unknown = await perdure(gateway.home, "mcp", "logs", "other")
    assert unknown.code == 1
    assert "perdure mcp list" in unknown.err


async def test_the_last_words_of_a_server_are_told_without_its_secrets(
    gateway_factory: StartGateway, hostile: HostileMcp
) -> None:
    complains = "import os, sys; sys.exit(f'no such key: {os.environ[\"KEY\"]}')"
    toml = settings(hostile.command(), [sys.executable, "-c", complains])
    section = '[tools.mcp.bad]\nenv = { KEY = { env = "BAD_KEY" } }\n'
    toml = toml.replace("[tools.mcp.bad]\n", section)
    gateway = await gateway_factory(toml=toml, environ={"BAD_KEY": "canary-5512"})
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        await client.settled((await client.say("a", "hello"))["turn"])
        found = (await until_down(client, "bad"))["bad"]
        assert "its last words: no such key: ********" in found["why"]
        _, tools = await client.call("GET", "/api/tools")
        assert "no such key" in json.dumps(tools)
        assert "canary" not in json.dumps(tools)
        assert "canary" not in (await client.say("a", "/tools"))["reply"]
        _, log = await client.call("GET", "/api/tools/servers/bad/log")
        assert log["log"] == "no such key: canary-5512\n", "operators read what it has written"
    assert "canary" not in (gateway.home / "logs" / "perdure.log").read_text()


async def test_only_operators_see_the_servers_and_what_they_have_written(
    gateway_factory: StartGateway, hostile: HostileMcp
) -> None:
    gateway = await gateway_factory(toml=settings(hostile.command(), hostile.command()))
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        await client.become("ada")
        for path in ("/api/tools/servers", "/api/tools/servers/good/log"):
            status, body = await client.call("GET", path)
            assert (status, body["error"]["code"]) == (403, "forbidden")
        _, found = await client.call("GET", "/api/status")
        assert found["tool_servers"] == []
