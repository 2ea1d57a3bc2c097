"""Checks tool servers at a real gateway: a model calls their tools, people are asked before it and
midway, and neither a broken server nor a kill costs more than it must."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from tests.e2e.approving import answer, asked, questions, result_of

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
Start = Callable[..., Awaitable[Client]]
pytestmark = pytest.mark.timeout(90)
TOKYO = ("c1", "time__get_current_time", '{"timezone": "Asia/Tokyo"}')
DEMO = '[agents.main]\nkind = "demo"\ntools = ["mcp.peer"]\n'


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


@pytest.fixture
async def start(gateway_factory: StartGateway) -> AsyncIterator[Start]:
    """Start a gateway, and provide its operator."""
    async with aiohttp.ClientSession() as session:

        async def start(toml: str, **environ: str) -> Client:
            return Client(await gateway_factory(toml=toml, environ=environ), session)

        yield start


def peer(command: list[str], more: str = "", *, name: str = "peer") -> str:
    return f"[tools.mcp.{name}]\ncommand = {json.dumps(command)}\n{more}\n"


def says(tool: str, **arguments: object) -> str:
    """Return a message that makes the agent call a tool of the server `peer`."""
    return f"demo tool peer__{tool} {json.dumps(arguments)}"


async def told(client: Client, text: str, *, name: str = "a") -> str:
    accepted = await client.say(name, text)
    return await result_of(client, name, accepted["turn"])


async def until(client: Client, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await client.gateway.pause(POLL_S)


async def question_of(client: Client, turn: str) -> dict[str, Any]:
    """Wait for the open question of a turn."""
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await questions(client, turn)):
            await client.gateway.pause(POLL_S)
    return found[0]


async def tools_told(client: Client) -> str:
    """Return what `/tools` says."""
    return str((await client.say("tools", "/tools"))["reply"])


async def test_a_model_calls_a_tool_of_a_server(start: Start, new_peer: NewPeer) -> None:
    def reply(request: script.ScriptedRequest) -> script.Reply:
        if request.messages[-1]["role"] == "tool":
            return script.say("It is late there.")
        return script.call_tools([TOKYO])

    command = json.dumps(new_peer.published_mcp().time())
    async with ModelServer(reply) as model:
        client = await start(
            f'[agents.main]\nkind = "chat"\nbase_url = "{model.openai_url}"\nmodel = "scripted"\n'
            'tools = ["mcp.time"]\n'
            f'[tools.mcp.time]\ncommand = {command}\napprove = "never"\nrepeat = "pure"\n'
            "shared = true\n"
        )
        assert "not started yet: it starts with the first message" in await tools_told(client)

        accepted = await client.say("a", "What time is it in Tokyo?")
        settled = await client.settled(accepted["turn"])

        assert settled["outcome"] == "done"
        first, second = (request.body or {} for request in model.requests[:2])
        offered = {each["function"]["name"] for each in first["tools"]}
        assert offered == {"time__get_current_time", "time__convert_time", "result"}
        told = second["messages"][-1]["content"]
        assert told.startswith("[Output of time__get_current_time; data from outside")
        assert "+09:00" in told
        assert first["tools"] == second["tools"]
        shown = await tools_told(client)
    assert "time__get_current_time" in shown
    assert 'approve = "never"' in shown


async def test_a_person_is_asked_before_each_call_of_which_nobody_speaks(
    start: Start, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief("claims_harmless", calls=tmp_path / "calls")
    client = await start(DEMO + peer(hostile.command(mischief)))
    question = await asked(client, "a", says("note", text="hello"))
    assert "mcp.peer.note" in question["text"]
    assert '"text": "hello"' in question["arguments"]
    assert mischief.ran() == []

    await answer(client, question["id"], "deny")
    assert "denied" in await result_of(client, "a", question["turn"])
    again = await asked(client, "a", says("note", text="hello"))
    await answer(client, again["id"], "allow")
    assert "kept" in await result_of(client, "a", again["turn"])
    assert [each.tool for each in mischief.ran()] == ["note"]


async def test_rules_and_approve_name_the_tools_of_a_server(
    start: Start, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    rules = (
        '[[agents.main.rules]]\ntool = "mcp.peer.wipe"\ndo = "deny"\n'
        '[[agents.main.rules]]\ntool = "mcp.peer.not*"\ndo = "allow"\n'
    )
    client = await start(DEMO + rules + peer(hostile.command(mischief)))
    assert "kept" in await told(client, says("note", text="x"))
    assert "mcp.peer.wipe does not allow" in await told(client, says("wipe"))
    assert await asked(client, "b", says("echo", text="x"))
    assert [each.tool for each in mischief.ran()] == ["note"]


@pytest.mark.parametrize("kind", ["legacy", "modern"])
async def test_a_server_asks_a_person_midway(
    start: Start, hostile: HostileMcp, tmp_path: Path, kind: str
) -> None:
    mischief = Mischief(*(["modern"] if kind == "modern" else []), calls=tmp_path / "calls")
    client = await start(DEMO + peer(hostile.command(mischief), 'approve = "never"'))
    question = await asked(client, "a", says("ask", message="Which colour?"))
    assert "> Which colour?" in question["text"]
    assert "The tool server **peer** asks" in question["text"]

    await answer(client, question["id"], "colour: blue")
    again = await question_of(client, question["turn"])
    assert "colour must be one of red, green" in again["text"]
    # Words in the conversation are an answer too.
    await client.say("a", "colour: red\nnumber: 7")

    said = await result_of(client, "a", question["turn"])
    assert '"content": {"colour": "red", "number": 7}' in said
    assert [each.tool for each in mischief.ran()] == ["ask"]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_question_of_a_server_survives_the_gateway(
    start: Start, hostile: HostileMcp, tmp_path: Path, end: signal.Signals
) -> None:
    mischief = Mischief("modern", calls=tmp_path / "calls")
    client = await start(DEMO + peer(hostile.command(mischief), 'approve = "never"'))
    question = await asked(client, "a", says("ask", message="Which colour?"))
    client.gateway.send_signal(end)
    await client.gateway.wait()
    await client.gateway.start()
    await answer(client, question["id"], "colour: green")
    assert '{"colour": "green"}' in await result_of(client, "a", question["turn"])
    assert [each.tool for each in mischief.ran()] == ["ask"]


async def test_a_kill_during_a_call_leaves_it_unknown_and_ends_the_server(
    start: Start, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    client = await start(DEMO + peer(hostile.command(mischief), 'approve = "never"'))
    accepted = await client.say("a", says("hold", path=str(tmp_path / "go")))
    await until(client, lambda: bool(mischief.ran()))
    (running,) = mischief.ran()

    client.gateway.send_signal(signal.SIGKILL)
    await client.gateway.wait()
    await until(client, lambda: not psutil.pid_exists(running.pid))
    await client.gateway.start()

    await client.settled(accepted["turn"])
    _, body = await client.call("GET", "/api/effects")
    assert [each["tool"] for each in body["effects"]] == ["peer__hold"]
    assert [each.tool for each in mischief.ran()] == ["hold"], "it was not made again"
    assert "still here" in await told(client, says("echo", text="still here"), name="b")


async def test_a_stop_cancels_the_call_at_the_server(
    start: Start, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    settings = 'approve = "never"\nrepeat = "repeatable"'
    client = await start(DEMO + peer(hostile.command(mischief), settings))
    accepted = await client.say("a", says("slow", seconds=600))
    await until(client, lambda: bool(mischief.ran()))
    await client.say("a", "/stop")
    assert (await client.settled(accepted["turn"]))["outcome"] == "stopped"
    assert "after" in await told(client, says("echo", text="after"))
    assert len({each.pid for each in mischief.ran()}) == 1


async def test_a_broken_server_costs_its_tools_and_no_turn(
    start: Start, hostile: HostileMcp
) -> None:
    toml = DEMO.replace('"mcp.peer"', '"mcp.peer", "mcp.broken", "memory"')
    broken = peer(hostile.command(Mischief("exits")), name="broken")
    client = await start(toml + peer(hostile.command(), 'approve = "never"') + broken)
    assert "fine" in await told(client, says("echo", text="fine"))
    shown = await tools_told(client)
    assert "TOKEN is missing" in shown
    assert "peer__echo" in shown


async def test_a_changed_configuration_is_taken_over(start: Start, hostile: HostileMcp) -> None:
    client = await start(DEMO + peer(hostile.command(), 'approve = "never"'))
    own = json.loads(inner(await told(client, says("whoami"))))
    file = client.gateway.home / "perdure.toml"
    file.write_text(file.read_text() + 'env = { COLOUR = "teal" }\n')
    client.gateway.send_signal(signal.SIGHUP)
    await until(client, lambda: not psutil.pid_exists(own["pid"]))
    assert json.loads(inner(await told(client, says("whoami"))))["environ"]["COLOUR"] == "teal"


async def test_two_people_have_a_process_each_and_no_secret_of_the_gateway(
    start: Start, hostile: HostileMcp
) -> None:
    settings = 'approve = "never"\nenv = { KEY = { env = "CANARY_KEY" } }'
    toml = DEMO + peer(hostile.command(), settings)
    client = await start(toml, CANARY_KEY="canary-5508", OTHER_KEY="canary-6607")
    await told(client, says("note", text="canary-7706"))
    own = inner(await told(client, says("whoami")))
    other = Client(client.gateway, client.session)
    other.token = client.token
    await other.become("bob")
    assert "canary-7706" not in await told(other, says("notes"), name="bobs")
    theirs = inner(await told(other, says("whoami"), name="bobs"))
    assert json.loads(own)["pid"] != json.loads(theirs)["pid"]
    for known in (own, theirs):
        assert "canary-5508" in known
        assert "canary-6607" not in known
        assert client.gateway.token not in known
    assert "canary-5508" not in client.gateway.output


@pytest.mark.executed
async def test_without_servers_nothing_is_loaded_for_them(start: Start) -> None:
    client = await start('[agents.main]\nkind = "demo"\n')
    maps = Path(f"/proc/{client.gateway.pid}/maps").read_text()
    assert "pydantic" not in maps


def inner(result: str) -> str:
    """Return the output itself, if it stands in a frame."""
    return result[result.index("{") : result.rindex("}") + 1]
