"""Checks that agents by others, and a client by others, run here without the internet: against a
model on loopback, each with a home of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from acp.exceptions import RequestError
from acp.schema import HttpMcpServer
from tests.contract.acp_client import WAIT_S, Spoken, spoken

from perdure.testkit.peers.acp.aimock import HELLO, AimockControl
from perdure.testkit.peers.acp.published_acp import AgentProgram, PublishedAcp
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcpServer, Mischief

NAMES = ["gemini", "codex"]


@pytest.fixture
def published(new_peer: NewPeer) -> PublishedAcp:
    return new_peer.published_acp()


def program(published: PublishedAcp, name: str, home: Path, url: str) -> AgentProgram:
    return {"gemini": published.gemini, "codex": published.codex}[name](home, url)


@asynccontextmanager
async def running(
    published: PublishedAcp, name: str, home: Path, model: AimockControl
) -> AsyncIterator[Spoken]:
    """Start an agent, and shake hands."""
    agent = program(published, name, home, model.url)
    async with spoken(list(agent.command), home, **agent.environ) as speaking:
        await speaking.greet()
        yield speaking


async def called(agent: Spoken, cwd: Path, server: HostileMcpServer) -> str:
    """Return what is said after a call of the bridge's tool `note`."""
    entry = HttpMcpServer(type="http", name="gw", url=server.url, headers=[])
    session = await agent.new(cwd, entry)
    agent.person.choice = "allow_once"
    return await agent.say(session, 'Please. [[TOOL note {"text": "through the bridge"}]]')


@pytest.mark.parametrize("name", NAMES)
async def test_it_answers_streams_fails_and_calls_tools(
    published: PublishedAcp,
    new_peer: NewPeer,
    aimock: AimockControl,
    tmp_path: Path,
    name: str,
) -> None:
    # One process does everything, because a start takes long.
    mischief = Mischief(calls=tmp_path / "calls")
    async with (
        new_peer.hostile_mcp().over_http(mischief) as server,
        running(published, name, tmp_path / "home", aimock) as agent,
    ):
        session = await agent.new(tmp_path)
        assert await agent.ask(session, "Hello, canary-1.") == ("end_turn", HELLO)
        assert await agent.say(session, "[[SLOW 5 x]]") == "".join(
            f"x{at:03}...." for at in range(5)
        )
        assert len(agent.person.kind(session, "agent_message_chunk")) > 5
        stopped = await cancelled(agent, session)
        assert "kept" in await called(agent, tmp_path, server)
        # Codex may not hear a prompt that comes right after an error, so this one is the last.
        with pytest.raises(RequestError):
            await agent.ask(session, "[[ERR 500]]")
    assert stopped == "cancelled"
    assert len(await aimock.asked("canary-1")) >= 2
    assert await aimock.asked("canary-2") == []
    assert [each.arguments for each in mischief.ran()] == [{"text": "through the bridge"}]
    assert agent.person.asked


async def cancelled(agent: Spoken, session: str) -> str:
    """Cancel a prompt when its answer has begun, and return why it ended."""
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(agent.ask(session, "[[SLOW 400 y]]"))
        await agent.person.until(lambda: "y000" in agent.person.said(session))
        await agent.connection.cancel(session_id=session)
    return asking.result()[0]


async def test_acpx_speaks_with_the_scripted_agent(
    published: PublishedAcp, new_peer: NewPeer, tmp_path: Path
) -> None:
    agent = " ".join(new_peer.hostile_acp().command())
    words = ["--agent", agent, "--approve-all", "--format", "json", "exec", "[[SAY hello, client]]"]
    client = published.acpx(tmp_path / "home", *words)
    process = await asyncio.create_subprocess_exec(
        *client.command,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", **client.environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(WAIT_S):
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed
    assert b"hello, clien" in printed
