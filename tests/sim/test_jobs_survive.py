"""Strike the gateway at any port call while jobs become due, run, and bring their results.

Once everything is at rest, each occurrence has one row, each row at most one turn, and each result
was shown once.
"""

from collections.abc import Sequence

import pytest

from perdure.domain.checking.checker import violations
from perdure.domain.content.silence import NOTHING_TO_SAY
from perdure.domain.journal.events import TurnQueued
from perdure.domain.journal.records import SessionRecord
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.schedule.jobs import (
    REMINDING,
    JobKind,
    JobPolicy,
    MissedPolicy,
    NewJob,
    Overlap,
    RunState,
    RunView,
    ScheduleTerms,
)
from perdure.domain.schedule.recurrence import Every, Once
from perdure.domain.turn.stream import AgentText, Stopped
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import JobOwner
from perdure.testkit.simulator.agent import ScriptedAgent
from perdure.testkit.simulator.crash import Fuse, Nemesis
from perdure.testkit.simulator.node import StorePorts
from perdure.testkit.simulator.striking import Simulator
from perdure.testkit.simulator.world import PLATFORM, Life, Setup, World

SETUP = Setup(has_jobs=True)
TERMS = ScheduleTerms(agents=frozenset({"main"}), adapters=frozenset({PLATFORM}))
STRIKES = [Nemesis.DIE, Nemesis.LOSE_REPLY, Nemesis.REFUSE]
MINUTE_MS = 60_000


async def order(life: Life) -> None:
    """Say hello in the room, and order three jobs there: one speaks, one is silent, and one is a
    reminder that is said once."""
    life.world.say("hello")
    await life.rest()
    place = (
        await life.store.conversations.find("scripted:room", principal=life.person, sees_all=True)
    ).view.id
    owner = JobOwner(principal=life.person, conversation=place)
    now = life.world.clock.now_ms()
    hourly = JobPolicy(missed=MissedPolicy.ALL, overlap=Overlap.QUEUE)
    for new in (
        NewJob(prompt="report", rule=Every(3_600), name="report", policy=hourly),
        NewJob(prompt="hush", rule=Every(3_600), name="hush"),
        NewJob(
            prompt="tea!",
            rule=Once(now + 3_600_000),
            kind=JobKind.REMINDER,
            name="tea",
            policy=REMINDING,
        ),
    ):
        await life.store.schedule.add(new, owner, TERMS)
    await life.store.nodes.leave()


async def before(world: World) -> None:
    world.agent = model()
    await world.live(order)


def model() -> ScriptedAgent:
    def rule(request: object) -> Sequence[object]:
        text = str(request)
        answer = "All is well." if "report" in text else "Hello."
        answer = NOTHING_TO_SAY if "hush" in text else answer
        return [AgentText(answer), Stopped(reason=StopReason.STOP)]

    return ScriptedAgent(rule)  # type: ignore[arg-type]


async def an_hour_passes(life: Life) -> None:
    life.world.clock.advance(3_600)
    await life.work()


async def two_hours_pass(life: Life) -> None:
    life.world.clock.advance(7_200)
    await life.work()


async def runs_of(store: StorePorts) -> dict[str, list[RunView]]:
    jobs = await store.schedule.page(Page(limit=10), principal=None)
    return {
        job.name: await store.schedule.runs(job.id, before=None, limit=100, principal=None)
        for job in jobs
    }


def shown(world: World, text: str) -> int:
    return sum(text in each.text for each in world.platform.visible)


def broken(
    world: World, runs: dict[str, list[RunView]], records: Sequence[SessionRecord]
) -> list[str]:
    """Report occurrences that did not come to exactly one end, and results that were not shown
    once."""
    found = []
    kinds = (TurnKind.SCHEDULED,)
    turns = [
        recorded.event.turn
        for record in records
        for recorded in record.events
        if isinstance(recorded.event, TurnQueued) and recorded.event.kind in kinds
    ]
    known = [each.turn for of_job in runs.values() for each in of_job if each.turn]
    if sorted(turns) != sorted(known):
        found.append(f"{len(turns)} turns, {len(known)} runs that have one")
    for name, of_job in runs.items():
        open_runs = [each for each in of_job if each.state in (RunState.CLAIMED, RunState.QUEUED)]
        if open_runs:
            found.append(f"{name} has runs that never ended: {open_runs}")
    reports = [each for each in runs["report"] if each.outcome == Outcome.DONE]
    if shown(world, "All is well.") != len(reports):
        found.append(f"{len(reports)} reports, shown {shown(world, 'All is well.')} times")
    if shown(world, "tea!") != 1:
        found.append(f"the reminder was shown {shown(world, 'tea!')} times")
    if shown(world, NOTHING_TO_SAY):
        found.append("silence was shown")
    return found


async def play(simulator: Simulator, fuse: Fuse, *second: Fuse) -> list[str]:
    world = await simulator.world(setup=SETUP, before=before)
    world.agent = model()
    found: dict[str, list[RunView]] = {}

    async def last(life: Life) -> None:
        # Two deaths may have left no time in which anything was due.
        life.world.clock.advance(7_200)
        await life.rest()
        found.update(await runs_of(life.store))

    records = await world.play([an_hour_passes, two_hours_pass], fuse, *second, last=last)
    flaws = [each for record in records for each in violations(record)]
    if not found["report"]:
        flaws.append("the job never ran")
    return flaws + broken(world, found, records)


@pytest.mark.parametrize("nemesis", STRIKES)
async def test_whatever_is_struck_a_run_is_one_turn_and_one_delivery(
    simulator: Simulator, nemesis: Nemesis
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        return await play(simulator, fuse)

    await simulator.strike(run, nemesis, every=3)


async def test_two_deaths_leave_each_run_whole(simulator: Simulator) -> None:
    async def run(one: Fuse, two: Fuse) -> list[str]:
        return await play(simulator, one, two)

    await simulator.strike_twice(run, most=40)


async def test_whatever_is_struck_on_postgres_a_run_is_one_turn_and_one_delivery(
    simulator_on_postgres: Simulator,
) -> None:
    async def run(fuse: Fuse) -> list[str]:
        return await play(simulator_on_postgres, fuse)

    await simulator_on_postgres.strike(run, Nemesis.DIE, every=12)
