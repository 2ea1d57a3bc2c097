"""Checks agents by others, Gemini CLI and Codex, as the engine sees them: in their sandbox, without
the internet, with the gateway's tools over the real bridge."""

import os
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


@pytest.fixture
async def make(
    new_peer: NewPeer, aimock: AimockControl, tmp_path: Path
) -> AsyncIterator[Callable[[str], AcpAgent]]:
    published = new_peer.published_acp()
    new_peer.bubblewrap()
    children, bridge, clock = LaunchedChildren(), ToolBridge(), SystemClock()
    made: list[AcpAgent] = []

    def agent(name: str) -> AcpAgent:
        theirs = {"gemini": published.gemini, "codex": published.codex}[name](
            tmp_path / "theirs", aimock.url
        )
        program = AgentProgram(
            agent=name,
            base=tmp_path / "agents",
            preset=PRESETS[name],
            command=theirs.command,
            env={key: text for key, text in theirs.environ.items() if key in KEPT},
            search_path=os.environ["PATH"],
        )
        settings = PoolSettings(has_prewarm=False)
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
async def test_it_calls_our_tools_without_a_question_of_its_own(
    make: Callable[[str], AcpAgent], name: str
) -> None:
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
