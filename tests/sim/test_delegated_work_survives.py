"""Checks work that an agent gives to other agents, with a death, a lost answer or a refusal at
every instant: of the turn that waits, of the errands, between an errand's end and the result of its
call.

Whatever happens, each piece of work is done in one turn, its result is the result of its call,
once, and the turn that waited goes on. If that turn ends first, its errands end too.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.journal.events import AnyEvent, ToolFinished, ToolStarted, TurnQueued
from perdure.domain.journal.question_events import WorkDelegated, WorkReturned
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest, ResultBlock
from perdure.domain.turn.stream import AgentCall, AgentEvent, AgentText, Stopped
from perdure.ports.turns.tools import Tools
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.striking import Run, Simulator
from perdure.testkit.simulator.world import Act, Life, Setup, World, patiently, rest, until
from perdure.tools.builtin.delegate import DelegateTool
from perdure.tools.toolbox import Toolbox

pytestmark = pytest.mark.timeout(100)
NEMESES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
HOUR_S = 3_600
SETUP = Setup(asks=True)
TASKS = ("count the boats", "count the nets")


def words(request: ModelRequest) -> str:
    return str(request.messages)


def calling(*tasks: str) -> Sequence[AgentEvent]:
    arguments = [msgspec.json.encode({"agent": "main", "task": task}).decode() for task in tasks]
    calls = [
        AgentCall(id=f"given-{n}", name="delegate", arguments=each)
        for n, each in enumerate(arguments)
    ]
    return [AgentText("Let me ask. "), *calls, Stopped(reason=StopReason.TOOL_CALLS)]


def rule(request: ModelRequest) -> Sequence[AgentEvent]:
    """Answer as an agent that gives two pieces of work away, and as the ones that do them."""
    text = words(request)
    has_result = any(isinstance(b, ResultBlock) for b in request.messages[-1].blocks)
    if request.purpose != TurnKind.DELEGATED:
        if not has_result:
            return calling(*TASKS)
        return [AgentText("All is counted."), Stopped(reason=StopReason.STOP)]
    for task in TASKS:
        if task in text:
            return [AgentText(f"done: {task}"), Stopped(reason=StopReason.STOP)]
    raise AssertionError(text)


@asynccontextmanager
async def made(_: Fuse) -> AsyncIterator[Tools]:
    yield Toolbox([DelegateTool({"main": "counts things"})])


async def world_of(simulator: Simulator, *, commits: bool = False) -> World:
    setup = msgspec.structs.replace(SETUP, strikes_commits=commits)
    world = await simulator.world(setup=setup)
    world.make_tools = made
    world.agent = ScriptedAgent(rule)
    world.say("ask around")
    return world


async def work(life: Life) -> None:
    await life.work()


def facts_in(records: Sequence[SessionRecord]) -> list[AnyEvent]:
    return [recorded.event for record in records for recorded in record.events]


def errands_in(records: Sequence[SessionRecord]) -> list[SessionRecord]:
    return [record for record in records if record.session.kind == TurnKind.DELEGATED]


def unfinished(records: Sequence[SessionRecord]) -> list[str]:
    """Return what has not come to its end."""
    turns = [turn for record in records for turn in record.turns]
    found = [f"{turn.id} is {turn.state}" for turn in turns if turn.outcome is None]
    rows = [row for record in records for row in record.delegations]
    return found + [f"{row.errand} is {row.state}, and live" for row in rows if row.is_live]


def problems(world: World, records: Sequence[SessionRecord]) -> list[str]:
    """Return what must not be, after everything has come to rest and nobody has stopped it."""
    facts = facts_in(records)
    found = [each for record in records for each in violations(record)] + unfinished(records)
    outcomes = [turn.outcome for record in records for turn in record.turns]
    if outcomes != [Outcome.DONE] * (1 + len(TASKS)):
        found.append(f"the turns ended as {outcomes}")
    asked = [e for e in facts if isinstance(e, TurnQueued) and e.kind is TurnKind.DELEGATED]
    if sorted(each.text for each in asked) != sorted(TASKS):
        found.append(f"the errands are {asked}")
    counts = Counter(type(each) for each in facts)
    if [counts[WorkDelegated], counts[WorkReturned]] != [len(TASKS), len(TASKS)]:
        found.append(f"given and returned as {counts}")
    ended = [each for each in facts if isinstance(each, ToolFinished)]
    results = sorted((each.ending, each.result) for each in ended)
    if results != sorted((CallEnding.RETURNED, f"done: {task}") for task in TASKS):
        found.append(f"the calls ended as {ended}")
    shown = [each.text.strip() for each in world.platform.visible]
    if len(shown) != 1 or not shown[0].endswith("All is counted."):
        found.append(f"people see {shown}")
    found += [f"{part} was shown twice" for part in world.platform.repeated()]
    return found


def on(simulator: Simulator, *, commits: bool = False) -> Run:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator, commits=commits)
        records = await world.play([work, rest], *fuses)
        return problems(world, records)

    return run


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_instant_loses_a_result_or_does_the_work_twice(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(on(simulator), nemesis, every=2)


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_no_commit_loses_a_result_or_does_the_work_twice(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    await simulator.strike(on(simulator, commits=True), nemesis, every=2)


@pytest.mark.parametrize("nemesis", [*NEMESES, Nemesis.PAUSE])
async def test_no_instant_loses_a_result_on_postgres(
    simulator_on_postgres: Simulator, nemesis: Nemesis
) -> None:
    # While a process stands still, another one takes over all that it was doing.
    async def run(fuse: Fuse) -> list[str]:
        world = await world_of(simulator_on_postgres)

        async def take_over() -> None:
            await world.take_over()

        fuse.meanwhile = take_over
        records = await world.play([work, rest], fuse)
        return problems(world, records)

    await simulator_on_postgres.strike(run, nemesis, every=6)


@pytest.mark.chaos
async def test_no_two_deaths_lose_a_result(simulator: Simulator) -> None:
    await simulator.strike_twice(on(simulator), most=150)


async def test_the_work_is_told_alone_and_its_result_as_words_of_a_tool(
    simulator: Simulator,
) -> None:
    world = await world_of(simulator)
    records = await world.play([work, rest])

    assert problems(world, records) == []
    given = [r for r in world.agent.requests if r.purpose == TurnKind.DELEGATED]
    assert len(given) == len(TASKS)
    assert not [r for r in given if "ask around" in words(r)]
    last = world.agent.requests[-1]
    results = [b.text for m in last.messages for b in m.blocks if isinstance(b, ResultBlock)]
    assert len(results) == len(TASKS)
    assert all("done: " in text and text != "done: " for text in results)
    assert not [e for e in facts_in(records) if isinstance(e, ToolStarted)]
    parents = {record.session.parent for record in errands_in(records)}
    assert parents == {record.session.id for record in records if not record.session.kind}


# A turn that ends before its errands.


async def stop(life: Life) -> None:
    """Let the turn wait, and stop it before its errands have begun."""
    await life.receive()
    await life.parts.turns.finished()
    await end(life)


async def stop_in_the_middle(life: Life) -> None:
    """Stop the turn while its errands are in the middle of their answers."""
    gate, turns = life.world.gate, life.parts.turns
    life.world.holds = lambda request: request.purpose == TurnKind.DELEGATED
    gate.close()
    await life.receive()
    for _ in range(5):
        await patiently(turns.step)
        await until(lambda: gate.reached.is_set() or not turns.running)
        if gate.reached.is_set():
            break
    # The gate stays closed: runners end because their errands are stopped.
    await end(life)


async def end(life: Life) -> None:
    """Stop the turn, and do what follows from that."""
    await life.stop(life.world.platform.sent[0].id)
    while await patiently(life.deadlines.step):
        pass
    await life.parts.turns.finished()


@pytest.mark.parametrize("act", [stop, stop_in_the_middle])
@pytest.mark.parametrize("nemesis", [Nemesis.DIE, Nemesis.LOSE_REPLY])
async def test_a_stop_at_any_instant_leaves_no_errand_behind(
    simulator: Simulator, nemesis: Nemesis, act: Act
) -> None:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator)
        records = await world.play([act, rest], *fuses)
        found = [each for record in records for each in violations(record)]
        ended = {turn.outcome for record in records for turn in record.turns}
        if not ended <= {Outcome.STOPPED, Outcome.DONE}:
            found.append(f"the turns ended as {ended}")
        return found + unfinished(records)

    await simulator.strike(run, nemesis, every=2)


@pytest.mark.parametrize("act", [stop, stop_in_the_middle])
async def test_a_stop_ends_the_work_that_was_given_away(simulator: Simulator, act: Act) -> None:
    world = await world_of(simulator)
    records = await world.play([act, rest])

    outcomes = {turn.outcome for record in errands_in(records) for turn in record.turns}
    assert outcomes == {Outcome.STOPPED}
    assert unfinished(records) == []


# Deadlines.


async def pass_time(life: Life) -> None:
    """Let the turn wait, and let an hour pass before anything else is done."""
    await life.receive()
    await patiently(life.parts.turns.step)
    await life.parts.turns.finished()
    life.world.clock.advance(HOUR_S + 1)
    while await patiently(life.deadlines.step):
        pass


async def test_work_that_is_not_done_in_time_is_stopped_and_the_turn_told(
    simulator: Simulator,
) -> None:
    world = await world_of(simulator)
    records = await world.play([pass_time, rest])

    results = [e for e in facts_in(records) if isinstance(e, ToolFinished)]
    assert [each.ending for each in results] == [CallEnding.FAILED] * len(TASKS)
    assert all("has not answered in time" in each.result for each in results)
    outcomes = {turn.outcome for record in errands_in(records) for turn in record.turns}
    assert outcomes == {Outcome.STOPPED}
    assert unfinished(records) == []
    assert [each for record in records for each in violations(record)] == []


@pytest.mark.parametrize("nemesis", NEMESES)
async def test_a_deadline_may_pass_at_any_instant(simulator: Simulator, nemesis: Nemesis) -> None:
    async def run(*fuses: Fuse) -> list[str]:
        world = await world_of(simulator)
        records = await world.play([pass_time, rest], *fuses)
        found = [each for record in records for each in violations(record)]
        ended = [e for e in facts_in(records) if isinstance(e, ToolFinished)]
        if len(ended) != len(TASKS):
            found.append(f"the calls ended as {ended}")
        return found + unfinished(records)

    await simulator.strike(run, nemesis, every=2)


# Failures.


async def test_work_that_fails_is_told_with_its_reason(simulator: Simulator) -> None:
    def failing(request: ModelRequest) -> Sequence[AgentEvent]:
        if request.purpose == TurnKind.DELEGATED and TASKS[0] in words(request):
            return [
                AgentText("I begin. "),
                Stopped(reason=StopReason.PROVIDER_REJECTED, detail="no such model"),
            ]
        return rule(request)

    world = await world_of(simulator)
    world.agent = ScriptedAgent(failing)
    records = await world.play([work, rest])

    failed, returned = sorted(
        (e for e in facts_in(records) if isinstance(e, ToolFinished)), key=lambda e: e.ending
    )
    assert (failed.ending, returned.ending) == (CallEnding.FAILED, CallEnding.RETURNED)
    assert "main has not done the work: it ended as failed" in failed.result
    assert "I begin." in failed.result
    assert unfinished(records) == []


async def test_an_agent_that_was_given_work_gives_none_away(simulator: Simulator) -> None:
    def passing_on(request: ModelRequest) -> Sequence[AgentEvent]:
        has_result = any(isinstance(b, ResultBlock) for b in request.messages[-1].blocks)
        if request.purpose == TurnKind.DELEGATED and not has_result:
            return calling("somebody else's work")
        return rule(request)

    world = await world_of(simulator)
    world.agent = ScriptedAgent(passing_on)
    records = await world.play([work, rest])

    refused = [
        each.result
        for record in errands_in(records)
        for recorded in record.events
        if isinstance(each := recorded.event, ToolFinished)
    ]
    assert len(errands_in(records)) == len(TASKS)
    assert len(refused) == len(TASKS)
    assert all("may not be passed on" in text for text in refused)
