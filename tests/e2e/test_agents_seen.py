"""Checks that operators see how the agents of a node are, and can try them."""

import json
import re
from pathlib import Path

import aiohttp
import pytest
from tests.conftest import StartGateway
from tests.e2e.test_cli_servers import configured, perdure

from perdure.testkit.models.model_script import say, status
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.processes.http import Client

pytestmark = pytest.mark.timeout(120)


def external(command: list[str], more: str = "") -> str:
    return f"""
[agents.outside]
kind = "acp"
command = {json.dumps(command)}
sandbox = "off"
share = true
pool = {{ prewarm = false }}
{more}
[sessions]
titles = false
"""


def two_agents(url: str) -> str:
    return f"""
[agents.main]
kind = "chat"
model = "plain"
base_url = "{url}/v1"
concurrent = 3
fallbacks = ["spare"]
patience_s = 0

[agents.spare]
kind = "demo"
"""


async def test_an_agent_that_is_tried_answers_and_the_time_is_told(
    gateway_factory: StartGateway,
) -> None:
    async with ModelServer(lambda _: say("Hello, operator.")) as server:
        gateway = await gateway_factory(toml=two_agents(server.url))
        told = await perdure(gateway.home, "agents", "test", "main", "Who", "are", "you?")
        machine = await perdure(gateway.home, "agents", "test", "main", "--json")

        asked = [str((call.body or {})["messages"][-1]["content"]) for call in server.requests]
        listed = await perdure(gateway.home, "agents", "list", "--json")
        table = await perdure(gateway.home, "agents", "list")

    assert (told.code, machine.code) == (0, 0)
    assert told.out.splitlines()[0] == "Hello, operator."
    assert "main took " in told.out
    assert "first text shown" in told.out
    assert asked[0] == "Who are you?"
    assert "hello" in asked[1]
    trial = machine.json
    assert (trial["outcome"], trial["agent"], trial["missed"]) == ("done", "main", [])
    assert 0 < trial["first_text"] <= trial["took"]
    main, spare = listed.json["agents"]
    assert (main["name"], main["kind"], main["concurrent"]) == ("main", "chat", 3)
    assert main["is_default"]
    assert "program" not in main
    assert spare["kind"] == "demo"
    assert table.out.splitlines()[1].split()[:6] == [
        "main",
        "(default)",
        "chat",
        "plain",
        "0",
        "of",
    ]


async def test_a_trial_fails_if_another_agent_has_stood_in(gateway_factory: StartGateway) -> None:
    async with ModelServer(lambda _: status(503)) as server:
        gateway = await gateway_factory(toml=two_agents(server.url))
        told = await perdure(gateway.home, "agents", "test", "main")

    assert told.code == 1
    assert "spare took " in told.out
    assert "main" in told.err


async def test_a_trial_that_fails_says_why_and_where_to_look(
    gateway_factory: StartGateway,
) -> None:
    async with ModelServer(lambda _: status(401)) as server:
        toml = two_agents(server.url).replace('fallbacks = ["spare"]\n', "")
        gateway = await gateway_factory(toml=toml)
        told = await perdure(gateway.home, "agents", "test", "main")
        turn = told.err.split("perdure explain ")[1].split("`")[0]
        explained = await perdure(gateway.home, "explain", turn)

    assert told.code == 1
    assert "main has not answered: the turn is failed, provider_rejected" in told.err
    assert explained.code == 0


async def test_a_trial_is_no_conversation_of_anybody(gateway_factory: StartGateway) -> None:
    gateway = await gateway_factory(toml='[agents.main]\nkind = "demo"\n')
    await perdure(gateway.home, "agents", "test", "main")
    async with aiohttp.ClientSession() as session:
        _, listed = await Client(gateway, session).call("GET", "/api/conversations")

    assert listed["conversations"] == []


async def test_what_is_no_program_is_neither_warmed_nor_has_logs(
    gateway_factory: StartGateway,
) -> None:
    gateway = await gateway_factory(toml='[agents.main]\nkind = "demo"\n')
    for verb in ("warm", "logs"):
        refused = await perdure(gateway.home, "agents", verb, "main")
        unknown = await perdure(gateway.home, "agents", verb, "other")

        assert (refused.code, unknown.code) == (1, 1)
        assert "no program of its own" in refused.err
        assert "perdure agents list" in unknown.err
    tried = await perdure(gateway.home, "agents", "test", "other")
    assert tried.code == 1
    assert "choose one of: main" in tried.err


async def test_only_operators_see_the_agents(gateway_factory: StartGateway) -> None:
    gateway = await gateway_factory(toml='[agents.main]\nkind = "demo"\n')
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        await client.become("bob")
        for method, path in (
            ("GET", "/api/agents"),
            ("GET", "/api/agents/main/log"),
            ("POST", "/api/agents/main/warm"),
            ("POST", "/api/agents/main/test"),
        ):
            body: object = {} if path.endswith("test") else None
            refused, told = await client.call(method, path, body=body)
            assert (refused, told["error"]["code"]) == (403, "forbidden")
        _, seen = await client.call("GET", "/api/status")
        assert seen["programs"] == []


async def test_without_a_node_the_list_is_what_is_configured(tmp_path: Path) -> None:
    home = configured(tmp_path, two_agents("http://127.0.0.1:9"))

    listed = await perdure(home, "agents", "list")
    tried = await perdure(home, "agents", "test", "main")

    assert listed.code == 0
    assert "only what is configured" in listed.err
    assert [row.split()[0] for row in listed.out.splitlines()[1:]] == ["main", "spare"]
    assert tried.code == 3
    assert "perdure serve" in tried.err


async def test_the_processes_of_an_external_agent_are_seen_everywhere(
    gateway_factory: StartGateway, new_peer: NewPeer
) -> None:
    gateway = await gateway_factory(toml=external(new_peer.hostile_acp().command()))
    home = gateway.home
    before = await perdure(home, "agents", "list")
    warmed = await perdure(home, "agents", "warm", "outside")
    tried = await perdure(home, "agents", "test", "outside", "[[SAY hi]]", "--json")
    listed = await perdure(home, "agents", "list", "--json")
    table = await perdure(home, "agents", "list")
    explained = await perdure(home, "explain", tried.json["turn"])
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{gateway.url}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()

    assert " not started " in before.out
    assert re.search(r"\(pid \d+\) runs hostile", warmed.out)
    trial = tried.json
    assert (tried.code, trial["text"], trial["agent"]) == (0, "hi", "outside")
    assert trial["timings"]["transport"] == "pool"
    assert trial["timings"]["session"] > 0
    assert "spawn" not in trial["timings"]
    (agent,) = listed.json["agents"]
    (process,) = agent["program"]["processes"]
    assert agent["program"]["starts"] == 1
    assert process["server"].startswith("hostile")
    assert " 1 process " in table.out
    assert "no sandbox" in table.out
    assert "in a process that was there: session " in explained.out
    assert 'perdure_agent_processes{agent="outside"} 1.0' in lines
    assert 'perdure_agent_starts_total{agent="outside"} 1.0' in lines
    labels = 'agent="outside",step="session",transport="pool"'
    assert f"perdure_agent_step_seconds_count{{{labels}}} 1.0" in lines


async def test_a_program_that_does_not_start_is_named_with_its_last_words(
    gateway_factory: StartGateway, new_peer: NewPeer
) -> None:
    command = ["sh", "-c", "echo no licence for this >&2; exit 4"]
    gateway = await gateway_factory(toml=external(command, "patience_s = 0"))
    home = gateway.home
    tried = await perdure(home, "agents", "test", "outside")
    warmed = await perdure(home, "agents", "warm", "outside")
    listed = await perdure(home, "agents", "list")
    status_of = await perdure(home, "status")
    written = await perdure(home, "agents", "logs", "outside")

    assert (tried.code, warmed.code) == (1, 1)
    assert "outside has not answered" in tried.err
    for told in (tried.err, warmed.err, listed.out, status_of.out):
        assert "no licence for this" in told
    assert "no licence for this" in written.out
