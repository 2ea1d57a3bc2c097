"""Checks one turn in its runner: which agent is asked, who pays, and for whom a tool works."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.errors import NotFound
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import (
    AssistantSaid,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import CallEnding, Outcome, Repeat, StopReason
from perdure.domain.people.budgets import Budget, BudgetRefusal, DailyBudgets
from perdure.domain.prompt.bounds import Bounds
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentSpent, AgentText, Stopped
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.turns.tools.tool_calls import RESULT_MAX
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.agent import Work
from perdure.ports.turns.budgets import Reservation
from perdure.ports.turns.tools import ToolCaller, ToolFile, ToolResult
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.stores import only
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

SOON_S = 5
ROOMY = DailyBudgets(person=Budget(tokens=1_000_000), agent=Budget(tokens=1_000_000))


class Noting(CountingTools):
    """Notes for whom it was called."""

    def __init__(self) -> None:
        super().__init__([])
        self.callers: list[ToolCaller] = []

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        self.callers.append(caller)
        return await super().call(call, caller)


class Node:
    def __init__(self, store: Store, parts: NodeParts, people: Mapping[str, PrincipalId]) -> None:
        self.store = store
        self.parts = parts
        self.people = people
        self._said = 0

    async def hears(self, who: str, text: str, *, agent: str = "") -> Accepted:
        """Let a person speak in a group whose every message is taken, and wait until the turn is
        over."""
        self._said += 1
        accepted = await self.parts.door.accept(
            Update(
                address=Address(adapter="chat", account="bot", place="club"),
                external_id=str(self._said),
                kind=UpdateKind.MESSAGE,
                principal=self.people[who],
                text=text,
                agent=agent,
                sender=who,
                place_kind="group",
            )
        )
        assert accepted.turn is not None
        async with asyncio.timeout(SOON_S):
            while (await self.store.archive.turn(accepted.turn, principal=None)).outcome is None:
                await asyncio.sleep(0.002)
        return accepted


@asynccontextmanager
async def a_node(
    folder: Path,
    agents: Mapping[str, ScriptedAgent],
    *,
    tools: CountingTools | None = None,
    budgets: DailyBudgets | None = None,
    bounds: Bounds | None = None,
    turn_timeout_s: float = 1800,
) -> AsyncIterator[Node]:
    clock, entropy = VirtualClock(is_eager=True), SeededEntropy()
    driver = sqlite_on(folder / "perdure.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder / "media")
    await store.open()
    others = tuple(agents)[1:]
    backends = {
        name: Backend(
            name=name,
            kind="s",
            agent=agent,
            tools=tools or CountingTools([]),
            fallbacks=others if name not in others else (),
        )
        for name, agent in agents.items()
    }
    dependencies = NodeDependencies(
        store=store,
        roster=Roster(backends),
        clock=clock,
        entropy=entropy,
        limits=Limits(
            drain_timeout_s=0,
            has_titles=False,
            bounds=bounds or Bounds(),
            turn_timeout_s=turn_timeout_s,
        ),
        budgets=budgets or DailyBudgets(),
    )
    try:
        async with Supervisor() as supervisor:
            parts = compose_node(dependencies, supervisor.start, feed=Feed())
            await parts.gateway.begin(name="sim")
            people = {
                name: (await store.principals.ensure(name, role="member")).id
                for name in ("ada", "bob")
            }
            try:
                yield Node(store, parts, people)
            finally:
                await parts.gateway.drain()
    finally:
        await store.close()


Steps = list[Sequence[AgentEvent]]
FAILED = Stopped(reason=StopReason.PROVIDER_ERROR, detail="it broke")
DONE = Stopped(reason=StopReason.STOP)
_TOOLS = Stopped(reason=StopReason.TOOL_CALLS)


@pytest.mark.parametrize("has_spoken", [False, True], ids=["silent", "spoke"])
async def test_another_agent_stands_in_only_while_nobody_has_seen_anything(
    tmp_path: Path, has_spoken: bool
) -> None:
    first = ScriptedAgent(lambda _: [*([AgentText("Well, ")] if has_spoken else []), FAILED])
    second = ScriptedAgent(lambda _: [AgentText("I stand in."), DONE])
    async with a_node(tmp_path, {"main": first, "other": second}) as node:
        accepted = await node.hears("ada", "hello")
        record = await node.store.diagnostics.record(accepted.session)
    said = [each.text for each in only(AssistantSaid, record.events)]
    assert said == (["Well, "] if has_spoken else ["I stand in."])
    assert len(second.requests) == (0 if has_spoken else 1)


async def test_a_tool_works_for_the_one_who_asked_and_knows_who_reads_along(
    tmp_path: Path,
) -> None:
    tools = Noting()
    steps: Steps = [
        [DONE],
        [AgentCall(id="1", name="look", arguments="{}"), _TOOLS],
        [AgentText("Trees."), DONE],
    ]
    agent = ScriptedAgent(lambda _: steps.pop(0))
    async with a_node(tmp_path, {"main": agent}, tools=tools) as node:
        opened = await node.hears("ada", "hello")
        asked = await node.hears("bob", "look around")
        (caller,) = tools.callers
        assert caller == ToolCaller(
            principal=node.people["bob"],
            conversation=opened.conversation,
            session=opened.session,
            turn=asked.turn or caller.turn,
            is_shared=True,
            can_ask=True,
            report=caller.report,
            ask_model=caller.ask_model,
        )
        assert caller.turn == asked.turn


class Telling(CountingTools):
    """Returns one given text, and files."""

    def __init__(self, text: str, *files: ToolFile) -> None:
        super().__init__([], repeat=Repeat.PURE)
        self._text = text
        self._files = files

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        return ToolResult(ending=CallEnding.RETURNED, text=self._text, files=self._files)


async def a_result(
    folder: Path, tools: CountingTools, *, of: str = "bob"
) -> tuple[ToolFinished, str, str]:
    """Let an agent call a tool for somebody. Returns the result as it is stored, the whole of it,
    and what the model reads of it."""
    steps: Steps = [
        [AgentCall(id="1", name="look", arguments="{}"), _TOOLS],
        [AgentText("Trees."), DONE],
    ]
    agent = ScriptedAgent(lambda _: steps.pop(0))
    async with a_node(folder, {"main": agent}, tools=tools) as node:
        asked = await node.hears(of, "look around")
        record = await node.store.diagnostics.record(asked.session)
        (finished,) = only(ToolFinished, record.events)
        whole = finished.result
        if finished.whole is not None:
            await node.store.media.get(finished.whole, principal=node.people[of])
            with pytest.raises(NotFound):
                await node.store.media.get(finished.whole, principal=node.people["ada"])
            whole = (await node.store.media.read(finished.whole)).decode()
    (block,) = [
        block
        for message in agent.requests[1].messages
        for block in message.blocks
        if isinstance(block, ResultBlock)
    ]
    return finished, whole, block.text


async def test_a_result_that_fits_is_shown_whole(tmp_path: Path) -> None:
    text = "é" * RESULT_MAX

    finished, whole, shown = await a_result(tmp_path, Telling(text))

    assert (finished.result, finished.whole, finished.size, whole) == (text, None, 0, text)
    assert text in shown
    assert "left out" not in shown


async def test_a_long_result_is_kept_as_a_file_of_its_person_and_its_beginning_is_shown(
    tmp_path: Path,
) -> None:
    text = "é" * RESULT_MAX + "x" * 1234

    finished, whole, shown = await a_result(tmp_path, Telling(text))

    assert finished.result == text[:RESULT_MAX]
    assert (whole, finished.size) == (text, len(text))
    assert f"{text[:RESULT_MAX]}\n[" in shown, "the frame ends with what was shown"
    assert "x" * 1234 not in shown
    assert "1,234 more characters were left out" in shown
    assert f'"handle": "{finished.whole}", "offset": {RESULT_MAX}' in shown


async def test_a_file_that_a_tool_has_made_goes_to_the_people(tmp_path: Path) -> None:
    made = ToolFile(name="plan.txt", mime="text/plain", data=b"trees and more trees")

    finished, _, shown = await a_result(tmp_path, Telling("Here it is.", made))

    (attachment,) = finished.attachments
    assert (attachment.name, attachment.mime, attachment.size) == ("plan.txt", "text/plain", 20)
    assert "plan.txt" in shown


async def test_each_call_reserves_for_its_agent_and_asker_on_top_of_what_was_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = Usage(input_tokens=5_000, output_tokens=500, model_calls=1)
    steps: Steps = [
        [AgentCall(id="1", name="look", arguments="{}"), AgentSpent(used), _TOOLS],
        [AgentText("Trees."), AgentSpent(used), DONE],
    ]
    agent = ScriptedAgent(lambda _: steps.pop(0))
    async with a_node(tmp_path, {"main": ScriptedAgent(), "other": agent}, budgets=ROOMY) as node:
        await node.hears("ada", "hello")
        reserve, wanted = node.store.budgets.reserve, list[Reservation]()

        async def noted(each: Reservation, *, limits: DailyBudgets) -> BudgetRefusal | None:
            wanted.append(each)
            return await reserve(each, limits=limits)

        monkeypatch.setattr(node.store.budgets, "reserve", noted)
        await node.hears("bob", "look around", agent="other")

        first, second = wanted
        assert {(each.agent, each.principal) for each in wanted} == {("other", node.people["bob"])}
        assert second.amount.tokens >= first.amount.tokens + 5_500
        tight = DailyBudgets(agent=Budget(tokens=0))
        refused = await reserve(await _next(node, second), limits=tight)
        assert refused is not None
        assert (refused.spent, refused.reserved) == (11_000, 0), "charged, and held no longer"


async def test_an_agent_that_stands_in_gets_a_request_and_a_reservation_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ScriptedAgent(lambda _: [FAILED])
    agents = {"main": first, "other": ScriptedAgent()}
    async with a_node(tmp_path, agents, budgets=ROOMY) as node:
        reserve, wanted = node.store.budgets.reserve, list[str]()

        async def noted(each: Reservation, *, limits: DailyBudgets) -> BudgetRefusal | None:
            wanted.append(each.agent)
            return await reserve(each, limits=limits)

        monkeypatch.setattr(node.store.budgets, "reserve", noted)
        await node.hears("ada", "hello")

    assert wanted == ["main", "other"]


async def _next(node: Node, reservation: Reservation) -> Reservation:
    """Return the same reservation for another turn that is running."""
    update = Update(
        address=Address(adapter="chat", account="bot", place="elsewhere"),
        external_id="next",
        kind=UpdateKind.MESSAGE,
        principal=node.people["bob"],
        text="hello",
    )
    claimed = (await node.store.inbox.accept_and_start(update, queue_max=9)).claimed
    assert claimed is not None
    return Reservation(
        lease=claimed.lease,
        principal=reservation.principal,
        conversation=reservation.conversation,
        agent=reservation.agent,
        amount=reservation.amount,
    )


async def test_no_model_is_asked_where_the_budget_has_no_room(tmp_path: Path) -> None:
    agent = ScriptedAgent()
    budgets = DailyBudgets(person=Budget(tokens=1))
    async with a_node(tmp_path, {"main": agent}, budgets=budgets) as node:
        accepted = await node.hears("ada", "hello")
        assert accepted.turn is not None
        turn = await node.store.archive.turn(accepted.turn, principal=None)
    assert (turn.outcome, turn.reason) == (Outcome.REFUSED, StopReason.BUDGET)
    assert not agent.requests


class NeverEnding(ScriptedAgent):
    """Begins an answer and never ends it."""

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        yield AgentText("Well, ")
        await asyncio.Event().wait()


async def test_a_turn_that_takes_too_long_is_ended_and_keeps_what_was_said(tmp_path: Path) -> None:
    async with a_node(tmp_path, {"main": NeverEnding()}, turn_timeout_s=0.1) as node:
        accepted = await node.hears("ada", "hello")
        assert accepted.turn is not None
        turn = await node.store.archive.turn(accepted.turn, principal=None)
        record = await node.store.diagnostics.record(accepted.session)
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, StopReason.TURN_TIMEOUT)
    assert [each.text for each in only(AssistantSaid, record.events)] == ["Well, "]


LOOK = AgentCall(id="1", name="look", arguments='{"at": "the sea"}')


@pytest.mark.parametrize(
    ("answer", "setting"),
    [
        ([AgentText("Well, "), *[AgentText("x" * 100)] * 20, DONE], "answer_bytes"),
        (
            [AgentText("Well, "), AgentCall(id="1", name="look", arguments="x" * 2_000), _TOOLS],
            "answer_bytes",
        ),
        ([AgentText("Well, "), *[LOOK] * 6, _TOOLS], "answer_calls"),
        ([AgentText("Well, "), *[LOOK] * 4, _TOOLS], "turn_calls"),
        ([AgentText("Well, " + "x" * 900), LOOK, _TOOLS], "turn_bytes"),
    ],
    ids=["text", "arguments", "calls", "calls of a turn", "bytes of a turn"],
)
async def test_a_model_says_no_more_than_it_may(
    tmp_path: Path, answer: list[AgentEvent], setting: str
) -> None:
    # The bound holds for every agent, also for one that does not count by itself.
    bounds = Bounds(answer_bytes=1_000, answer_calls=5, turn_bytes=3_000, turn_calls=10)
    second = ScriptedAgent()
    agents = {"main": ScriptedAgent(lambda _: answer), "other": second}
    async with a_node(tmp_path, agents, bounds=bounds) as node:
        accepted = await node.hears("ada", "hello")
        assert accepted.turn is not None
        turn = await node.store.archive.turn(accepted.turn, principal=None)
        record = await node.store.diagnostics.record(accepted.session)
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, StopReason.ANSWER_EXCEEDED)
    assert setting in turn.detail
    said = only(AssistantSaid, record.events)
    assert all(each.text.startswith("Well, ") for each in said), "what was said is kept"
    assert sum(len(each.text) for each in said) <= bounds.turn_bytes
    assert sum(len(each.calls) for each in said) <= bounds.turn_calls
    assert not said[-1].calls
    assert not second.requests


async def test_an_agent_is_shown_where_its_turn_stands(tmp_path: Path) -> None:
    # An agent with sessions of its own needs this to know whether its session still matches the
    # conversation.
    steps: Steps = [
        [DONE],
        [AgentCall(id="1", name="look", arguments="{}"), _TOOLS],
        [AgentText("Trees."), DONE],
    ]
    agent = ScriptedAgent(lambda _: steps.pop(0))
    async with a_node(tmp_path, {"main": agent}, tools=Noting()) as node:
        first = await node.hears("ada", "hello")
        second = await node.hears("bob", "look")

        work = agent.works[-1]
        assert (work.session, work.turn, work.attempt) == (second.session, second.turn, 1)
        assert (work.conversation, work.principal) == (second.conversation, node.people["bob"])
        assert work.parent == first.turn
        (before,) = await work.chain(limit=10)
        assert {recorded.turn for recorded in before} == {first.turn}
        assert await agent.works[0].chain(limit=10) == []
        kinds = {type(recorded.event) for recorded in work.events}
        assert {ToolStarted, ToolFinished} <= kinds, "what the turn has done is there"
