"""Checks agents by others, Gemini CLI and Codex, as the engine sees them: in their sandbox, without
the internet, with the gateway's tools over the real bridge."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.contract.test_acp_agent import TOOLS, Conversation

from perdure.agents.acp.agent import AcpAgent, AcpTerms
from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.presets import PRESETS
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.children.children import LaunchedChildren
from perdure.app.wiring.system import SystemClock
from perdure.domain.outcomes import StopReason
from perdure.domain.turn.stream import AgentActed, AgentCall
from perdure.testkit.peers.acp.aimock import HELLO, AimockControl
from perdure.testkit.peers.fixtures import NewPeer
from perdure.web.bridge.bridge import ToolBridge

pytestmark = pytest.mark.timeout(120)
KEPT = ("GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL", "CODEX_HOME", "MODEL_KEY")

Make = Callable[..., AcpAgent]


@pytest.fixture
async def make(new_peer: NewPeer, aimock: AimockControl, tmp_path: Path) -> AsyncIterator[Make]:
    published = new_peer.published_acp()
    new_peer.bubblewrap()
    children, bridge, clock = LaunchedChildren(), ToolBridge(), SystemClock()
    made: list[AcpAgent] = []

    def agent(name: str, *, key: str = "", sessions: int = 0) -> AcpAgent:
        theirs = {"gemini": published.gemini, "codex": published.codex}[name](
            tmp_path / f"theirs-{len(made)}", aimock.url
        )
        env = {name: text for name, text in theirs.environ.items() if name in KEPT}
        program = AgentProgram(
            agent=name,
            base=tmp_path / f"agents-{len(made)}",
            preset=PRESETS[name],
            command=theirs.command,
            env={name: key if key and name.endswith("_KEY") else env[name] for name in env},
            search_path=os.environ["PATH"],
        )
        settings = PoolSettings(has_prewarm=False, sessions=sessions)
        pool = ProcessPool(program, settings, children=children, clock=clock)
        terms = AcpTerms(name=name)
        notes = tmp_path / "notes"
        made.append(AcpAgent(terms, pool=pool, bridge=bridge, clock=clock, notes=notes))
        return made[-1]

    yield agent
    for each in made:
        await each.close()
    await bridge.close()
    await children.close()


@pytest.mark.parametrize("name", ["gemini", "codex"])
async def test_it_calls_our_tools_without_a_question_of_its_own(make: Make, name: str) -> None:
    talk = Conversation(make(name))
    stopped = await talk.ask("Hello.", TOOLS)
    assert (stopped.reason, talk.text) == (StopReason.STOP, HELLO)
    talk.settle()
    stopped = await talk.ask('Please. [[TOOL mail {"to": "ada"}]]', TOOLS)
    assert stopped.reason is StopReason.TOOL_CALLS, talk.heard
    assert [call.name for call in talk.kinds(AgentCall)] == ["mail"], [
        c.arguments for c in talk.kinds(AgentCall)
    ]
    stopped = await talk.results(("sent to ada", False))
    assert stopped.reason is StopReason.STOP
    assert "sent to ada" in talk.text
    assert talk.kinds(AgentActed) == []


@pytest.mark.parametrize(
    ("name", "number"),
    [("gemini", 2), ("codex", 2), pytest.param("gemini", 64, marks=pytest.mark.chaos)],
)
async def test_sessions_of_one_process_never_meet(
    make: Make, aimock: AimockControl, name: str, number: int
) -> None:
    agents = [make(name, key="canary-0-key", sessions=number), make(name, key="canary-1-key")]
    talks = [Conversation(agents[0], f"ses_{mark}") for mark in range(number)]
    # One more person has another key, and so a process of their own.
    talks.append(Conversation(agents[1], f"ses_{number}"))
    for mark, talk in enumerate(talks):
        folder = talk._agent._pool.folder("", talk.session)
        folder.mkdir(parents=True)
        (folder / f"canary-{mark}-file").touch()

    async def talked(mark: int, talk: Conversation) -> None:
        words = f'I am canary-{mark}-words. [[TOOL mail {{"to": "canary-{mark}-call"}}]]'
        stopped = await talk.ask(words, TOOLS)
        assert stopped.reason is StopReason.TOOL_CALLS, stopped
        (call,) = talk.kinds(AgentCall)
        assert f"canary-{mark}-call" in call.arguments
        stopped = await talk.results((f"canary-{mark}-result", False))
        assert stopped.reason is StopReason.STOP, stopped
        assert f"canary-{mark}-result" in talk.text
        talk.settle()

    for talk in talks:  # sessions are opened one after another, which takes long
        assert (await talk.ask("Hello.", TOOLS)).reason is StopReason.STOP
        talk.settle()
    await asyncio.gather(*(talked(mark, talk) for mark, talk in enumerate(talks)))
    assert [len(each._pool.view().processes) for each in agents] == [1, 1]  # type: ignore[attr-defined]
    sent = await aimock.asked("canary-")
    met = [set(re.findall(r"canary-(\d+)-(?!key)", each.text)) for each in sent]
    assert all(len(each) == 1 for each in met)
    assert len(set.union(*met)) == number + 1
    keys = {
        (int(mark) == number, key)
        for each, (mark,) in zip(sent, met, strict=True)
        for key in re.findall(r"canary-\d-key", str(each.headers))
    }
    assert keys == {(False, "canary-0-key"), (True, "canary-1-key")}
    bound = [binding for each in agents for binding in each._bound.values()]
    tokens = {binding._calls.bridge.address.token for binding in bound if binding._calls.bridge}
    assert len(tokens) == number + 1
    everything = "".join(each.text for each in sent)
    assert not [token for token in tokens if token in everything]
    assert not re.search(r"canary-\d-key", everything)
