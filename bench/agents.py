"""Measures external agents: what a process that is kept saves against one that is started for a
turn, how many sessions one process bears, what a call over the bridge costs, and what a pool costs
while nobody uses it.

The agent is Gemini CLI, which a person would start for a second and a half. Its model is a server
of this machine. What the model itself takes is asked of it directly, and subtracted everywhere.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

import aiohttp
import structlog

from bench.report import Findings, Gate
from perdure.agents.acp.agent import AcpAgent, AcpTerms
from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.presets import GEMINI
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.children.children import LaunchedChildren
from perdure.app.wiring.system import SystemClock
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded, TurnSettled
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import (
    ModelRequest,
    PromptMessage,
    Role,
    TextBlock,
    Window,
    assemble,
    extend,
)
from perdure.domain.turn.stream import AgentKept, AgentText, Stopped
from perdure.ports.agents.bridge import BridgeCall
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.peer import Site
from perdure.testkit.simulator.agent import LooseWork
from perdure.web.bridge.bindings import LiveBinding
from perdure.web.bridge.bridge import ToolBridge

ROOT = Path(__file__).resolve().parents[1]
COLD_ROUNDS = 5
ROUNDS = 25
WARM = 3
CALLS = 500
SESSIONS = 64
# How many pieces each of many sessions says slowly, at the same time.
PIECES = 30
IDLE_S = 10
SAYS = "Please. [[SAY a few words]]"
TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
        }
    ]
)


async def measure(folder: Path) -> Findings:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

    def site(name: str) -> Site:
        (folder / name).mkdir(parents=True, exist_ok=True)
        return Site(folder / name, {"CI": "true", **os.environ}, SystemClock())

    peers = NewPeer(ROOT, site)
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(peers.aimock())
        program = peers.published_acp().gemini(folder / "gemini", model.url)
        bench = Agents(folder, program.command, program.environ)
        model_s = await _model_s(model.url)
        cold_s = [await bench.cold(number) - model_s for number in range(COLD_ROUNDS)]
        async with bench.agent("warm") as agent:
            fresh_s, bound_s = await _warm(agent)
            many_s = await _idle_s()
        async with bench.agent("idle") as agent:
            await Conversation(agent, "idle").ask(SAYS)
            idle_s = await _idle_s()
        wrong = await bench.crowd()
    call_ms = await _call_ms()
    cold = median(cold_s)
    fresh, bound = median(fresh_s) - model_s, median(bound_s) - model_s
    return Findings(
        part="agents",
        facts=[
            f"first words after a cold start: {cold * 1e3:,.0f} ms",
            f"first words of a new session in a process that was there: {fresh * 1e3:,.1f} ms",
            f"first words of a session that was there: {bound * 1e3:,.1f} ms",
            f"the model itself took {model_s * 1e3:,.1f} ms, which is subtracted",
            f"CPU for {WARM + ROUNDS} idle sessions: {many_s * 1e3 / IDLE_S:,.2f} ms a second",
        ],
        gates=[
            Gate(name="a bound session against a cold start", measured=bound / cold, limit=0.05),
            Gate(name="a new session against a cold start", measured=fresh / cold, limit=0.15),
            Gate(name="a whole call over the bridge", measured=call_ms, limit=5, unit="ms"),
            Gate(
                name=f"wrong answers of {SESSIONS} sessions at once in one process",
                measured=wrong,
                limit=0,
                unit="answers",
            ),
            Gate(
                name="CPU of the gateway for an idle process and session",
                measured=idle_s * 1e3 / IDLE_S,
                limit=1,
                unit="ms a second",
            ),
        ],
    )


class Conversation(LooseWork):
    """Makes the turns of one conversation, as the engine would."""

    def __init__(self, agent: AcpAgent, name: str, *, tools: str = TOOLS) -> None:
        self.session = SessionId(f"ses_{name}")
        self._agent = agent
        self._tools = tools
        self._said: list[PromptMessage] = []
        self._before: list[Recorded] = []

    async def chain(self, *, limit: int) -> list[list[Recorded]]:
        return [self._before] if self._before else []

    async def ask(self, text: str) -> tuple[float, str]:
        """Let the agent answer. Returns when its first words came, in seconds, and all of them."""
        self.turn = TurnId(f"trn_{self.session}_{len(self._said)}")
        self._said.append(PromptMessage(role=Role.USER, blocks=(TextBlock(text),)))
        words, kept, first_s = "", "", 0.0
        began = time.perf_counter()
        async for event in self._agent.run(self._request(), self):
            match event:
                case AgentText(text=piece):
                    first_s = first_s or time.perf_counter() - began
                    words += piece
                case AgentKept(session=session):
                    kept = session
                case Stopped(reason=reason, detail=detail):
                    assert reason is StopReason.STOP, detail
                case _:
                    pass
        self._said.append(PromptMessage(role=Role.ASSISTANT, blocks=(TextBlock(words),)))
        settled = TurnSettled(turn=self.turn, outcome=Outcome.DONE, agent_session=kept)
        self._before = [Recorded(session=self.session, seq=1, at=1, event=settled)]
        self._agent.let_go(self.turn)
        return first_s, words

    def _request(self) -> ModelRequest:
        window = extend(Window(), self._said[:-1], encode=self._agent.encode)
        return assemble(window, self._said[-1:], tools=self._tools)


class Agents:
    """Makes pools of the agent, each with homes of its own."""

    def __init__(self, folder: Path, command: Sequence[str], environ: dict[str, str]) -> None:
        self._folder = folder
        self._command = tuple(command)
        names = ("GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL")
        self._env = {name: environ[name] for name in names}

    @asynccontextmanager
    async def agent(self, name: str) -> AsyncIterator[AcpAgent]:
        children, clock, bridge = LaunchedChildren(), SystemClock(), ToolBridge()
        program = AgentProgram(
            agent=name,
            base=self._folder / "agents",
            preset=GEMINI,
            command=self._command,
            env=self._env,
            search_path=os.environ["PATH"],
        )
        settings = PoolSettings(has_prewarm=False, sessions=SESSIONS)
        pool = ProcessPool(program, settings, children=children, clock=clock)
        notes = self._folder / "notes" / name
        terms = AcpTerms(name=name)
        agent = AcpAgent(terms, pool=pool, bridge=bridge, clock=clock, notes=notes)
        try:
            yield agent
        finally:
            await agent.close()
            await bridge.close()
            await children.close()

    async def cold(self, number: int) -> float:
        """Return when the first words came of an agent that had no process. The home is the same
        each time, as with a person who starts the program again and again."""
        async with self.agent("cold") as agent:
            first_s, _ = await Conversation(agent, f"cold{number}").ask(SAYS)
        return first_s

    async def crowd(self) -> int:
        """Let many sessions of one process answer at once. Returns how many answers were wrong."""
        async with self.agent("crowd") as agent:
            talks = [Conversation(agent, f"crowd{number}", tools="") for number in range(SESSIONS)]
            for talk in talks:
                await talk.ask("[[SAY ready]]")
            answers = await asyncio.gather(
                *(talk.ask(f"[[SLOW {PIECES} {_mark(at)}]]") for at, talk in enumerate(talks)),
                return_exceptions=True,
            )
        return sum(
            isinstance(answer, BaseException) or answer[1] != _counted(_mark(at))
            for at, answer in enumerate(answers)
        )


def _mark(number: int) -> str:
    return f"m{number:02}-"


def _counted(mark: str) -> str:
    """Return what the model says if it is to say a mark slowly."""
    return "".join(f"{mark}{at:03}".ljust(8, ".") for at in range(PIECES))


async def _warm(agent: AcpAgent) -> tuple[list[float], list[float]]:
    """Return when the first words came of new sessions in a process that was there, and of second
    turns in the same ones."""
    fresh, bound = [], []
    for number in range(WARM + ROUNDS):
        talk = Conversation(agent, f"warm{number}")
        first_s, _ = await talk.ask(SAYS)
        second_s, _ = await talk.ask(SAYS)
        if number >= WARM:
            fresh.append(first_s)
            bound.append(second_s)
    return fresh, bound


async def _idle_s() -> float:
    """Return the CPU time that this process needs while a pool is idle, in seconds."""
    await asyncio.sleep(1)
    before = time.process_time()
    await asyncio.sleep(IDLE_S)
    return time.process_time() - before


async def _model_s(url: str) -> float:
    """Return how long the model takes until its first words, asked by the same wire."""
    target = f"{url}/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
    body = {"contents": [{"role": "user", "parts": [{"text": SAYS}]}]}
    took = []
    async with aiohttp.ClientSession() as session:
        for _ in range(WARM + ROUNDS):
            began = time.perf_counter()
            async with session.post(target, json=body, headers={"x-goog-api-key": "k"}) as answer:
                assert answer.status == 200, await answer.text()
                await answer.content.readany()
                took.append(time.perf_counter() - began)
                await answer.read()
    return median(took[WARM:])


async def _call_ms() -> float:
    """Return how long a call over the bridge takes as the agent sees it, if the tool answers at
    once."""
    bridge = ToolBridge()
    bound: list[LiveBinding] = []

    def hear(call: BridgeCall) -> None:
        bound[0].answer(call.key, "what it has seen", is_error=False)

    bound.append(await bridge.bind(TOOLS, hear=hear, is_cancelled=lambda _: None))
    address = bound[0].address
    headers = {
        "Authorization": f"Bearer {address.token}",
        "Accept": "application/json, text/event-stream",
    }
    call = {"name": "look", "arguments": {}}
    took = []
    async with aiohttp.ClientSession(headers=headers) as session:
        known = await _begin(session, address.url)
        for number in range(CALLS):
            body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            began = time.perf_counter()
            async with session.post(address.url, json=body, headers=known) as answer:
                text = await answer.text()
            took.append((time.perf_counter() - began) * 1e3)
            assert "what it has seen" in text, (number, text)
    bound[0].close()
    await bridge.close()
    return median(took)


async def _begin(session: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """Begin a session of the bridge, as every agent does first. Returns the headers that name
    it."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}
    async with session.post(url, json=body) as answer:
        assert "perdure" in await answer.text()
        known = {name: answer.headers[name] for name in ("Mcp-Session-Id",)}
    known["MCP-Protocol-Version"] = "2025-06-18"
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with session.post(url, json=done, headers=known) as answer:
        await answer.read()
    return known
