"""Checks that the scripted agent of the tests speaks ACP, by the client of the official package,
as long as a test asks for no mischief."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio
from tests.contract.acp_client import Spoken, spoken

from perdure.testkit.peers.acp.hostile_acp import HostileAcp
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileAcp:
    return new_peer.hostile_acp()


@pytest.fixture
def bridge(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


def named(text: str, name: str) -> Any:
    """Return the JSON that a directive has put into an answer."""
    assert text.startswith(f"{name}<"), text
    return json.loads(text.removeprefix(f"{name}<").removesuffix(">"))


async def test_it_says_what_it_is_asked_to_say(hostile: HostileAcp, tmp_path: Path) -> None:
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        known = await agent.greet()
        session = await agent.new(tmp_path)
        assert await agent.say(session, "no directive") == "echo: no directive"
        words = "before [[SAY old]] between [[SAY héllo]] [[SAY , good bye]] after"
        assert await agent.ask(session, words) == ("end_turn", "héllo, good bye")
        assert await agent.say(session, "[[SLOW 3 x]]") == "x000....x001....x002...."
        assert await agent.ask(session, "[[STOP refusal]]") == ("refusal", "")
        with pytest.raises(RequestError, match="too much") as caught:
            await agent.ask(session, "[[ERR 429 too much]]")
    capabilities = known.agent_capabilities
    assert caught.value.code == 429
    assert capabilities is not None
    assert capabilities.load_session
    assert capabilities.mcp_capabilities is not None
    assert capabilities.mcp_capabilities.http
    assert capabilities.session_capabilities is not None
    assert capabilities.session_capabilities.close is not None


async def test_it_tells_everything_that_agents_tell(hostile: HostileAcp, tmp_path: Path) -> None:
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        await agent.greet()
        session = await agent.new(tmp_path)
        words = "[[THINK hmm]][[PLAN one|two]][[EDIT /a/b new]][[MODE code]][[USAGE 7]][[SAY x]]"
        await agent.say(session, words)
        await agent.connection.set_session_mode(session_id=session, mode_id="ask")
        await agent.person.until(lambda: len(agent.person.kind(session, "current_mode_update")) > 1)
        told = agent.person.updates[session]
    kinds = [each.session_update for each in told]
    assert kinds == [
        *("available_commands_update", "agent_thought_chunk", "plan", "tool_call"),
        *("tool_call_update", "current_mode_update", "usage_update", "agent_message_chunk"),
        "current_mode_update",
    ]
    assert [each.content for each in told[2].entries] == ["one", "two"]
    assert told[3].content[0].type == "diff"
    assert told[3].content[0].new_text == "new"


async def test_it_asks_its_client(hostile: HostileAcp, tmp_path: Path) -> None:
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        await agent.greet()
        session = await agent.new(tmp_path)
        for choice, words in [("allow_once", "once"), ("reject_once", "no")]:
            agent.person.choice = choice
            assert await agent.say(session, "[[ASK Delete?]]") == f"ASKED<{words}>"
        assert await agent.say(session, "[[READ /a]]") == "READ<content of /a>"
        assert await agent.say(session, "[[WRITE /a text]]") == "WROTE<>"
        assert await agent.say(session, "[[SHELL ls]]") == "SHELL<printed>"


async def test_it_tells_what_it_knows(hostile: HostileAcp, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    home = tmp_path / "home"
    async with spoken(hostile.command(), home, CANARY="yellow") as agent:
        await agent.greet()
        session = await agent.new(tmp_path)
        known = named(await agent.say(session, "[[WHOAMI]]"), "WHOAMI")
        assert await agent.say(session, f"[[PEEK {tmp_path / 'secret'}]]") == "PEEK<canary>"
        assert "secret" in await agent.say(session, f"[[PEEK {tmp_path}]]")
        assert await agent.say(session, "[[PEEK /nowhere]]") == "PEEK<FileNotFoundError>"
    assert known["environ"]["CANARY"] == "yellow"
    assert (known["cwd"], known["session_cwd"]) == (str(home), str(tmp_path))
    assert known["pid"] == known["group"] == agent.process.pid


async def test_a_cancelled_prompt_ends_as_cancelled(hostile: HostileAcp, tmp_path: Path) -> None:
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        await agent.greet()
        session = await agent.new(tmp_path)
        for words in ("[[SLOW 1000 x]]", f"[[HOLD {tmp_path / 'go'}]]", "[[ASK May I?]]"):
            assert (await agent.cancel(session, words))[0] == "cancelled"
        assert await agent.say(session, "[[SAY usable]]") == "usable"


async def test_a_second_prompt_beside_the_first_is_refused(
    hostile: HostileAcp, tmp_path: Path
) -> None:
    path = tmp_path / "go"
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        await agent.greet()
        session, other = await agent.new(tmp_path), await agent.new(tmp_path)
        async with asyncio.TaskGroup() as tasks:
            held = tasks.create_task(agent.ask(session, f"[[THINK x]][[HOLD {path}]][[SAY a]]"))
            await agent.person.until(lambda: agent.person.kind(session, "agent_thought_chunk"))
            assert await agent.say(other, "[[SAY beside]]") == "beside"
            with pytest.raises(RequestError, match="already running"):
                await agent.ask(session, "[[SAY too early]]")
            path.touch()
            assert await held == ("end_turn", "a")


async def test_sessions_outlive_the_process(hostile: HostileAcp, tmp_path: Path) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    command = hostile.command(mischief, keep=tmp_path / "kept")
    async with spoken(command, tmp_path / "home") as agent:
        await agent.greet()
        session = await agent.new(tmp_path)
        await agent.say(session, "[[SAY kept]]")
    for is_load in (True, False):
        async with spoken(command, tmp_path / "home") as agent:
            await agent.greet()
            connection = agent.connection
            revive = connection.load_session if is_load else connection.resume_session
            await revive(session_id=session, cwd=str(tmp_path), mcp_servers=[])
            told = named(await agent.say(session, "[[HISTORY]]"), "HISTORY")
            replayed = agent.person.kind(session, "user_message_chunk")
            assert len(replayed) == is_load
            await connection.close_session(session_id=session)
            with pytest.raises(RequestError, match="no such session"):
                await agent.ask(session, "x")
        assert told[:2] == [["user", "[[SAY kept]]"], ["agent", "kept"]]
    ran = [each.tool for each in mischief.ran()]
    first = ["start", "session/new", "session/prompt"]
    later = ["start", "session/load", "session/prompt", "session/close"]
    again = ["start", "session/resume", "session/prompt", "session/close"]
    assert ran == [*first, *later, *again]
    assert len({each.pid for each in mischief.ran()}) == 3


def over_stdio(bridge: HostileMcp, mischief: Mischief | None = None) -> McpServerStdio:
    program, *words = bridge.command(mischief)
    env = [EnvVariable(name="TOKEN", value="stdio")]
    return McpServerStdio(name="gw", command=program, args=words, env=env)


def over_http(url: str, token: str = "") -> HttpMcpServer:
    headers = [HttpHeader(name="Authorization", value=f"Bearer {token}")] if token else []
    return HttpMcpServer(type="http", name="gw", url=url, headers=headers)


async def check_tools(agent: Spoken, session: str) -> None:
    """Call tools of the bridge: one that answers, one that fails, and one that is cancelled."""
    assert "echo" in await agent.say(session, "[[TOOLS]]")
    words = '[[TOOL echo {"text": "héllo"}]] [[TOOL fail {"text": "no"}]] [[TOOL nothing]]'
    said = await agent.say(session, words)
    assert said == "TOOLRESULT<héllo>TOOLRESULT<no>NOTOOL nothing"
    ended = agent.person.kind(session, "tool_call_update")
    assert [each.status for each in ended] == ["completed", "failed"]
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(agent.ask(session, '[[TOOL slow {"seconds": 60}]]'))
        await agent.person.until(lambda: len(agent.person.kind(session, "tool_call")) == 3)
        await agent.connection.cancel(session_id=session)
        assert (await slow)[0] == "cancelled"


async def test_it_calls_the_tools_of_its_client_over_standard_io(
    hostile: HostileAcp, bridge: HostileMcp, tmp_path: Path
) -> None:
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        await agent.greet()
        session = await agent.new(tmp_path, over_stdio(bridge))
        await check_tools(agent, session)
        known = named(await agent.say(session, "[[TOOL whoami]]"), "TOOLRESULT")
    assert known["environ"]["TOKEN"] == "stdio"


async def test_it_calls_the_tools_of_its_client_over_http(
    hostile: HostileAcp, bridge: HostileMcp, tmp_path: Path
) -> None:
    async with (
        bridge.over_http(token="let-me-in") as server,
        spoken(hostile.command(), tmp_path / "home") as agent,
    ):
        await agent.greet()
        session = await agent.new(tmp_path, over_http(server.url, "let-me-in"))
        await check_tools(agent, session)
        # Without its token it gets no tools, and says nothing about it, as others do.
        other = await agent.new(tmp_path, over_http(server.url))
        assert "TOOLS<> FAILED<gw: BridgeFailed: status 401" in await agent.say(other, "[[TOOLS]]")


async def test_sixteen_sessions_keep_apart(hostile: HostileAcp, tmp_path: Path) -> None:
    async with spoken(hostile.command(), tmp_path / "home") as agent:
        await agent.greet()
        sessions = [await agent.new(tmp_path) for _ in range(16)]
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(agent.say(session, f"[[SLOW 5 {number:02}-]]"))
                for number, session in enumerate(sessions)
            ]
    for number, asking in enumerate(asked):
        assert asking.result() == "".join(f"{number:02}-{at:03}.." for at in range(5))


def test_it_starts_quickly(hostile: HostileAcp) -> None:
    # The processor's time, because the machine may be busy with other tests.
    before = os.times()
    for _ in range(5):
        subprocess.run(hostile.command(), input=b"", check=True)
    after = os.times()
    spent = after.children_user + after.children_system
    assert (spent - before.children_user - before.children_system) / 5 < 0.1


async def test_only_the_first_process_is_bad_if_a_test_wants_so(
    hostile: HostileAcp, tmp_path: Path
) -> None:
    command = hostile.command(Mischief("dies_in_new"), once=tmp_path / "once")
    async with spoken(command, tmp_path / "home") as agent:
        await agent.greet()
        with pytest.raises(ConnectionError):
            await agent.new(tmp_path)
    async with spoken(command, tmp_path / "home") as agent:
        await agent.greet()
        assert await agent.say(await agent.new(tmp_path), "[[SAY well]]") == "well"
