"""Checks the pool and its sandbox with agents by others, Gemini CLI and Codex, as their presets
start them: offline, against a model on loopback."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.acp_pooled import WAIT_S, Pooled, Prompt

from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.seam import AgentLost
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.presets import PRESETS
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.children.children import LaunchedChildren
from perdure.app.wiring.system import SystemClock
from perdure.ports.agents.bridge import BridgeAddress
from perdure.testkit.peers.acp.aimock import AimockControl
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief

Make = Callable[..., Pooled]


@pytest.fixture
async def make(new_peer: NewPeer, aimock: AimockControl, tmp_path: Path) -> AsyncIterator[Make]:
    """Provide pools of real agents, by the names of their presets."""
    published = new_peer.published_acp()
    new_peer.bubblewrap()
    children = LaunchedChildren()
    made: list[Pooled] = []

    def pool(name: str, *, sessions: int = 0) -> Pooled:
        theirs = {"gemini": published.gemini, "codex": published.codex}[name](
            tmp_path / "theirs", aimock.url
        )
        # A person configures a key, a model and where it is; the rest is what the preset does.
        kept = {"GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL"}
        kept |= {"CODEX_HOME", "MODEL_KEY"}
        program = AgentProgram(
            agent=name,
            base=tmp_path / "agents",
            preset=PRESETS[name],
            command=theirs.command,
            env={key: text for key, text in theirs.environ.items() if key in kept},
            search_path=os.environ["PATH"],
        )
        settings = PoolSettings(has_prewarm=False, sessions=sessions)
        pool = ProcessPool(program, settings, children=children, clock=SystemClock())
        made.append(Pooled(pool, tmp_path / "none"))
        return made[-1]

    yield pool
    async with asyncio.timeout(WAIT_S):
        for each in made:
            await each.pool.close()
        await children.close()


def offered(asked: Any) -> list[str]:
    """Return the names of the tools that an agent has offered to its model."""
    tools = asked.body.get("tools") or []
    declared = [each for tool in tools for each in tool.get("functionDeclarations", [tool])]
    return [str(each.get("name")) for each in declared]


@pytest.mark.parametrize("name", ["gemini", "codex"])
async def test_it_answers_in_a_sandbox_with_no_tools_but_ours(
    make: Make, aimock: AimockControl, new_peer: NewPeer, name: str, tmp_path: Path
) -> None:
    # One process does everything, because a start takes long.
    pool = make(name)
    mischief = Mischief(calls=tmp_path / "calls")
    async with new_peer.hostile_mcp().over_http(mischief) as server:
        connected = asyncio.Event()
        connected.set()
        bridge = BridgeAddress(name="gw", url=server.url, token="t", connected=connected)
        first, second = await pool.session(bridge=bridge), await pool.session(name="b")
        said = await asyncio.gather(
            pool.say(first, "[[SAY canary-a]]"), pool.say(second, "[[SAY canary-b]]")
        )
        assert tuple(said) == ("canary-a", "canary-b")
        call = Prompt(first, 'Please. [[TOOL note {"text": "through the bridge"}]]')
        asked = await call.asked()
        first.answer(asked.key, is_allowed=True)
        await call.end()
        assert "kept" in call.said
        stopped = Prompt(second, "[[SLOW 1000 x]]")
        await stopped.begun()
        second.release()
        assert await pool.say(first, "[[SAY on]]") == "on"
    assert [each.arguments for each in mischief.ran()] == [{"text": "through the bridge"}]
    (process,) = pool.pool.view().processes
    assert process.has_sandbox
    assert process.leaving == ""
    told, *_ = await aimock.asked("canary-b")
    assert set(offered(told)) <= {"update_plan", "request_user_input"}


async def test_a_session_of_codex_outlives_its_process(make: Make, aimock: AimockControl) -> None:
    pool = make("codex")
    session = await pool.session()
    assert await pool.say(session, "[[SAY canary-kept]]") == "canary-kept"
    going = Prompt(session, "[[SLOW 1000 x]]")
    await going.begun()
    (process,) = pool.pool.view().processes
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(AgentLost):
        await going.end()
    again = await pool.session(kept_as=session.kept_as)
    assert await pool.say(again, "[[SAY after]]") == "after"
    (asked,) = await aimock.asked("SAY after")
    assert "canary-kept" in asked.text


@pytest.mark.chaos
async def test_64_sessions_of_one_process_never_meet(make: Make, aimock: AimockControl) -> None:
    pool = make("gemini", sessions=64)
    sessions = [await pool.session(name=f"{n}") for n in range(64)]
    said = await asyncio.gather(
        *(pool.say(each, f"[[SLOW 10 {n}-]]") for n, each in enumerate(sessions))
    )
    for n, text in enumerate(said):
        assert text == "".join(f"{n}-{at:03}".ljust(8, ".") for at in range(10))
    assert len(pool.pool.view().processes) == 1
