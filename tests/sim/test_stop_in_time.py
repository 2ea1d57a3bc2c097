"""Checks that words for a running turn are heard in time: a stop before heavy work begins or while
it goes on, and other words before the next model call."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import Address
from perdure.domain.checking.checker import violations
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import ToolCall
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Busy, Repeat, StopReason
from perdure.domain.people.menu import PLAIN, Menu
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.domain.turn.watching import Delta
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.ports.turns.inbox import Reception
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.store.ports.turns.turns import StoredInbox
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, said
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock


class Talk:
    """Plays a person who talks to an engine, and holds the turn they began."""

    def __init__(self, store: Store, parts: NodeParts, feed: Feed, person: PrincipalId) -> None:
        self.store = store
        self.parts = parts
        self.feed = feed
        self.turn = TurnId("")
        self._person = person
        self._said = 0

    async def begins(self, text: str) -> None:
        turn = (await self.says(text)).turn
        assert turn is not None
        self.turn = turn

    async def says(self, text: str, *, busy: Busy = Busy.QUEUE) -> Accepted:
        self._said += 1
        update = Update(
            address=Address(adapter="http", account=self._person, place="main"),
            external_id=f"u{self._said}",
            kind=UpdateKind.MESSAGE,
            principal=self._person,
            text=text,
            busy=busy,
        )
        return await self.parts.door.accept(update)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until the condition holds, within the promised second."""
        async with asyncio.timeout(1):
            while not is_so():
                await asyncio.sleep(0.001)


@asynccontextmanager
async def talking(folder: Path, agent: ScriptedAgent, tools: CountingTools) -> AsyncIterator[Talk]:
    clock, entropy = SystemClock(), SeededEntropy()
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder / "media")
    await store.open()
    backend = Backend(name="main", kind="s", agent=agent, tools=tools)
    try:
        async with Supervisor() as supervisor:
            dependencies = NodeDependencies(
                store=store,
                roster=Roster({"main": backend}),
                clock=clock,
                entropy=entropy,
                limits=Limits(drain_timeout_s=0, has_titles=False),
            )
            feed = Feed()
            parts = compose_node(dependencies, supervisor.start, feed=feed)
            await parts.gateway.begin(name="sim")
            person = (await store.principals.ensure("ada", role="member")).id
            try:
                yield Talk(store, parts, feed, person)
            finally:
                await parts.gateway.drain()
    finally:
        await store.close()


class StopsDuringClaim:
    """Stops a turn that was claimed with its acceptance, before the answer arrives. With
    `has_step` the pump looks for other turns after the stop, and still before the answer."""

    def __init__(self, inner: StoredInbox) -> None:
        self._inner = inner
        self.parts: NodeParts | None = None
        self.has_step = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def accept_and_start(
        self, update: Update, *, queue_max: int, menu: Menu = PLAIN
    ) -> Reception:
        received = await self._inner.accept_and_start(update, queue_max=queue_max, menu=menu)
        assert received.claimed is not None
        assert self.parts is not None
        await self.parts.door.stop(received.claimed.lease.turn, by=None)
        if self.has_step:
            assert not await self.parts.turns.step()
        return received


class StopsBeforeSecondCall(CountingTools):
    """Stops the turn while its first tool runs."""

    parts: NodeParts | None = None

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        result = await super().call(call, caller)
        assert self.parts is not None
        await self.parts.door.stop(caller.turn, by=None)
        return result


async def run(
    tmp_path: Path, text: str, *, at_claim: bool, has_step: bool = False
) -> tuple[ScriptedAgent, list[str], str]:
    clock, entropy, agent = VirtualClock(is_eager=True), SeededEntropy(), ScriptedAgent()
    driver = sqlite_on(tmp_path / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=tmp_path / "media")
    await store.open()
    await store.nodes.join(name="sim")
    tools = CountingTools([]) if at_claim else StopsBeforeSecondCall([])
    claims = StopsDuringClaim(store.inbox)
    if at_claim:
        store.inbox = claims  # type: ignore[assignment]
    backend = Backend(name="main", kind="s", agent=agent, tools=tools)
    async with Supervisor() as supervisor:
        dependencies = NodeDependencies(
            store=store, roster=Roster({"main": backend}), clock=clock, entropy=entropy
        )
        parts = compose_node(dependencies, supervisor.start, feed=Feed())
        claims.parts = parts
        claims.has_step = has_step
        if isinstance(tools, StopsBeforeSecondCall):
            tools.parts = parts
        turn = await _accept(store, parts, text)
        await parts.turns.step()
        await parts.turns.finished()
    outcome = (await store.archive.turn(turn, principal=None)).outcome
    await store.close()
    return agent, tools.ran, outcome or ""


async def test_a_turn_stopped_before_its_first_step_is_not_waited_for(tmp_path: Path) -> None:
    # A task that is cancelled before it has begun does not run its own clean-up.
    clock, entropy = VirtualClock(is_eager=True), SeededEntropy()
    driver = sqlite_on(tmp_path / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=tmp_path / "media")
    await store.open()
    await store.nodes.join(name="sim")
    backend = Backend(name="main", kind="s", agent=ScriptedAgent(), tools=CountingTools([]))
    roster = Roster({"main": backend})
    async with Supervisor() as supervisor:
        dependencies = NodeDependencies(store=store, roster=roster, clock=clock, entropy=entropy)
        parts = compose_node(dependencies, supervisor.start, feed=Feed())
        turn = await _accept(store, parts, "hello")
        if not parts.turns.running:
            await parts.turns.step()
        parts.turns.abandon(turn)
        async with asyncio.timeout(5):
            await parts.turns.finished()
        assert parts.turns.running == 0
    await store.close()


async def _accept(store: Store, parts: NodeParts, text: str) -> TurnId:
    person = await admitted(store, "ada")
    update = Update(
        address=Address(adapter="http", account=person, place="main"),
        external_id="u1",
        kind=UpdateKind.MESSAGE,
        principal=person,
        text=text,
    )
    accepted = await parts.door.accept(update)
    assert accepted.turn is not None
    return accepted.turn


@pytest.mark.parametrize("has_step", [False, True])
async def test_a_turn_stopped_while_it_is_claimed_asks_no_model(
    tmp_path: Path, has_step: bool
) -> None:
    agent, _, outcome = await run(tmp_path, "hello", at_claim=True, has_step=has_step)
    assert (agent.requests, outcome) == ([], "stopped")


async def test_a_turn_stopped_during_a_tool_makes_no_further_call(tmp_path: Path) -> None:
    agent, ran, outcome = await run(tmp_path, "tool look", at_claim=False)
    assert (len(ran), len(agent.requests), outcome) == (1, 1, "stopped")


class Silent(ScriptedAgent):
    """Says one word, and then nothing while its stream is open. `open` counts the open streams."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.requests.append(request)
        self.open += 1
        try:
            yield AgentText("Well, ")
            await asyncio.Event().wait()
        finally:
            self.open -= 1
        yield Stopped(reason=StopReason.STOP)


class HangingTool(CountingTools):
    """Makes calls that never return, and that may be made again. `open` counts them."""

    def __init__(self) -> None:
        super().__init__([], repeat=Repeat.REPEATABLE)
        self.open = 0

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        self.open += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.open -= 1
        raise AssertionError("it never returns")


async def _press_stop(talk: Talk) -> None:
    await talk.parts.door.stop(talk.turn, by=None)


def _say(text: str, busy: Busy = Busy.QUEUE) -> Callable[[Talk], Awaitable[None]]:
    async def said(talk: Talk) -> None:
        await talk.says(text, busy=busy)

    return said


ENDINGS: dict[str, Callable[[Talk], Awaitable[None]]] = {
    "the button": _press_stop,
    "/stop": _say("/stop"),
    "/stop all": _say("/stop all"),
    "/new": _say("/new"),
    "/undo": _say("/undo"),
    "/retry": _say("/retry"),
    "/branch": _say("/branch aside"),
    "a newer message": _say("rather this", Busy.INTERRUPT),
}


@pytest.mark.parametrize("in_tool", [False, True], ids=["model", "tool"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_what_is_ended_is_let_go_of_at_once(tmp_path: Path, how: str, in_tool: bool) -> None:
    # Otherwise a silent model would be listened to, and paid for, until it says something.
    tool = HangingTool()
    agent = ScriptedAgent() if in_tool else Silent()
    busy: HangingTool | Silent = agent if isinstance(agent, Silent) else tool
    async with talking(tmp_path, agent, tool) as talk:
        await talk.begins("tool look" if in_tool else "hello")
        await talk.until(lambda: busy.open == 1)
        first = talk.turn

        await ENDINGS[how](talk)

        await talk.until(lambda: first not in talk.parts.turns._running)
        ended = await talk.store.archive.turn(first, principal=None)
        assert ended.outcome in ("stopped", "superseded")
        await talk.until(lambda: busy.open == talk.parts.turns.running)


class Waiting(CountingTools):
    """Makes calls that return once `go_on` is set."""

    def __init__(self) -> None:
        super().__init__([])
        self.go_on = asyncio.Event()

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        result = await super().call(call, caller)
        await self.go_on.wait()
        return result


async def test_what_must_not_be_repeated_is_left_to_finish_and_never_enters_the_turn(
    tmp_path: Path,
) -> None:
    # To cut it off would make its fate unknown for ever. The turn ends all the same.
    agent, tool = ScriptedAgent(), Waiting()
    async with talking(tmp_path, agent, tool) as talk:
        await talk.begins("tool look")
        await talk.until(lambda: len(tool.ran) == 1)
        first = talk.turn

        await talk.parts.door.stop(first, by=None)

        await talk.until(lambda: first not in talk.parts.turns._running)
        (unknown,) = await talk.store.effects.page(Page(limit=9), principal=None)
        assert (unknown.call, unknown.state, unknown.late_result) == (tool.ran[0], "unknown", "")
        before = await talk.store.diagnostics.record(unknown.session)
        tool.go_on.set()
        async with asyncio.timeout(1):
            while not unknown.late_result:
                await asyncio.sleep(0.001)
                (unknown,) = await talk.store.effects.page(Page(limit=9), principal=None)
        assert (unknown.late_result, unknown.state) == ("look done", "unknown")
        assert await talk.store.diagnostics.record(unknown.session) == before
        assert violations(before) == []
    assert len(agent.requests) == 1


async def test_what_is_said_while_a_tool_runs_is_heard_before_the_next_word(
    tmp_path: Path,
) -> None:
    agent, tool = ScriptedAgent(), Waiting()
    async with talking(tmp_path, agent, tool) as talk:
        await talk.begins("tool look")
        await talk.until(lambda: len(tool.ran) == 1)
        accepted = await talk.says("to the north", busy=Busy.STEER)
        assert accepted.effect is UpdateEffect.STEERED
        tool.go_on.set()
        await talk.until(lambda: len(agent.requests) == 2)
        assert said(agent.requests[1]) == "to the north"
        await talk.until(lambda: not talk.parts.turns.running)
    assert len(agent.requests) == 2, "it was no turn of its own"


class Hesitant(Silent):
    """Says a second word once `go_on` is set, and then nothing more."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.open += 1
        try:
            yield AgentText("Well, ")
            await self.go_on.wait()
            yield AgentText("no")
            await asyncio.Event().wait()
        finally:
            self.open -= 1


async def test_a_turn_that_another_node_has_ended_is_let_go_of_with_its_next_word(
    tmp_path: Path,
) -> None:
    # No wake-up tells this node. The next word cannot be stored, which must end the turn here, and
    # the word must not be shown.
    agent = Hesitant()
    async with talking(tmp_path, agent, CountingTools([])) as talk:
        await talk.begins("hello")
        await talk.until(lambda: agent.open == 1)
        accepted = await talk.store.archive.turn(talk.turn, principal=None)
        watched = talk.feed.subscribe(accepted.session)
        async with asyncio.timeout(1):
            while not (await talk.store.diagnostics.record(accepted.session)).partials:
                await asyncio.sleep(0.001)
        await talk.store.inbox.stop(talk.turn, by=None)

        agent.go_on.set()

        await talk.until(lambda: agent.open == 0)
        shown = [each.text for each in await watched.next(0) if isinstance(each, Delta)]
        assert "no" not in shown
