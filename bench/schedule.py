"""Measures what the schedule costs: finding what is due among a hundred thousand jobs, a node that
has nothing to do, and somebody's chat while ten thousand jobs are due in the same second."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median

from bench.load import Client, client
from bench.processes import Program, perdure, running
from bench.report import Findings, Gate
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.ids import ConversationId, JobId, PrincipalId
from perdure.domain.people.sharing import FairShares
from perdure.domain.schedule.jobs import Job, JobKind, JobPolicy, JobState
from perdure.domain.schedule.recurrence import Every, Timing
from perdure.ports.records.history import Page
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.operations.jobs import job_rows
from perdure.store.statement import Op
from perdure.store.store import Store

JOBS = 100_000
PEOPLE = 200
LOOKS = 50
# So many are due: a step of the pump looks at a few of them.
DUE = 32
DAY_MS = 86_400_000
EVERY = Every(DAY_MS // 1000)
IDLE_S = 10.0
STORM = 10_000
# What is measured before all of these jobs are due takes less than this.
LULL_MS = 20_000
STORM_S = 20.0
CONCURRENT = 64
THINK_MS = 20
SETTLED_S = 2.0
SETTINGS = """
[agents.main]
kind = "chat"
base_url = "{url}/v1"
model = "scripted"
[turns]
concurrent = {concurrent}
[sessions]
titles = false
"""


async def measure(folder: Path) -> Findings:
    looks = await _looks_ms(folder)
    idle, busy = await _idle_ms(folder, 0), await _idle_ms(folder, JOBS)
    facts, storm = await _storm(folder)
    gates = [
        Gate(name=f"finding what is due among {JOBS:,} jobs", measured=looks, limit=5, unit="ms"),
        Gate(
            name=f"CPU of an idle node that has {JOBS:,} jobs, more than of one that has none",
            measured=max(busy - idle, 0.0),
            limit=1,
            unit="ms a second",
        ),
        *storm,
    ]
    people = f"{PEOPLE} people have the jobs; an idle node without jobs uses {idle:.2f} ms a second"
    return Findings(part="schedule", facts=[people, *facts], gates=gates)


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[tuple[Store, SqliteDriver]]:
    """Open the store of a gateway that does not run."""
    driver = SqliteDriver(path, synchronous="OFF")
    media = path.with_name("media")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=media)
    await store.open()
    try:
        yield store, driver
    finally:
        await store.close()


async def _order(path: Path, jobs: int, *, due_ms: int) -> None:
    """Give this many jobs to people, due at this instant or up to a second later."""
    async with _opened(path) as (store, driver):
        for each in range(PEOPLE):
            person = await store.principals.ensure(f"person {each}", role="member")
            await store.principals.grant(person.id, f"token {each}")  # or their access has ended
            place = await store.schedule.open_place("home", principal=person.id)
            jobs_of_one = partial(_put, person.id, place, jobs // PEOPLE, due_ms=due_ms)
            await driver.write(jobs_of_one)


def _put(person: PrincipalId, place: ConversationId, jobs: int, *, due_ms: int) -> Op[None]:
    """Add the jobs of one person."""
    for number in range(jobs):
        job = Job(
            id=JobId(f"job_{person}_{number}"),
            principal=person,
            conversation=place,
            name=f"job {number}",
            kind=JobKind.PROMPT,
            prompt="report",
            agent="",
            timing=Timing(EVERY, "UTC", due_ms - DAY_MS),
            policy=JobPolicy(),
            state=JobState.ACTIVE,
        )
        yield from job_rows.put(job_rows.with_next(job, due_ms + number % 1000), at=due_ms)


async def _looks_ms(folder: Path) -> float:
    """Return how long the pump takes to find out what is due, if nothing is."""
    path = folder / "looks.db"
    await _order(path, JOBS, due_ms=SystemClock().now_ms() + DAY_MS)
    shares = FairShares(most=DUE)
    took = []
    async with _opened(path) as (store, _):
        for _ in range(LOOKS):
            began = time.perf_counter()
            await store.schedule.next_due_ms()
            await store.schedule.due(limit=DUE, shares=shares)
            took.append((time.perf_counter() - began) * 1000)
    return median(took)


async def _idle_ms(folder: Path, jobs: int) -> float:
    """Return the CPU time that an idle node with this many jobs takes in a second."""
    home = folder / f"idle-{jobs}"
    home.mkdir(mode=0o700)
    await _order(home / "perdure.db", jobs, due_ms=SystemClock().now_ms() + DAY_MS)
    async with perdure(home) as ours:
        await asyncio.sleep(SETTLED_S)
        before_s = ours.cpu_s()
        await asyncio.sleep(IDLE_S)
        return (ours.cpu_s() - before_s) / IDLE_S * 1000


async def _storm(folder: Path) -> tuple[list[str], list[Gate]]:
    """Let many jobs be due in the same second, and time somebody's chat before and after."""
    home = folder / "storm"
    home.mkdir(mode=0o700)
    due_ms = SystemClock().now_ms() + LULL_MS
    await _order(home / "perdure.db", STORM, due_ms=due_ms)
    thinking = ("--words", "20", "--think-ms", str(THINK_MS))
    async with running("model", *thinking) as model, client() as load:
        settings = SETTINGS.format(url=model.url, concurrent=CONCURRENT)
        async with perdure(home, settings=settings) as ours:
            calm = await _chat(load, ours, until_ms=due_ms - 500)
            stormy = await _chat(load, ours, until_ms=due_ms + STORM_S * 1000)
        seen = await load.seen(model)
    ran = await _runs(home / "perdure.db")
    facts = [
        f"{STORM:,} jobs fell due in the same second; {ran:,} had run {STORM_S:.0f} s later",
        (
            f"a chat's turn took p50 {median(calm) * 1000:.0f} ms before, and "
            f"{median(stormy) * 1000:.0f} ms meanwhile"
        ),
    ]
    gates = [
        Gate(
            name=f"model calls at once, of which jobs may have {CONCURRENT // 2}",
            measured=seen["peak"],
            limit=CONCURRENT // 2 + 1,
            unit="calls",
        ),
        Gate(
            name=f"a chat's turn while {STORM:,} jobs are due, compared with before",
            measured=median(stormy) / median(calm),
            limit=3,
        ),
    ]
    return facts, gates


async def _chat(load: Client, program: Program, *, until_ms: float) -> list[float]:
    """Run one turn after the other until this instant. Returns the time of each."""
    times = []
    while SystemClock().now_ms() < until_ms:
        times.append(await load.turn(program, "chat"))
        await asyncio.sleep(0.1)
    return times


async def _runs(path: Path) -> int:
    """Count the jobs of which a run has ended well."""
    async with _opened(path) as (store, _):
        found = [
            await store.schedule.page(Page(limit=JOBS), principal=person.id)
            for each in range(PEOPLE)
            for person in [await store.principals.ensure(f"person {each}", role="member")]
        ]
    ended = [view for views in found for view in views if view.last_outcome]
    assert all(view.last_outcome == "done" for view in ended), "runs have failed"
    return len(ended)
