"""Measures what the schedule costs: how long it takes to find what is due among a hundred thousand
jobs, and to start runs within the node's bounds."""

import time
from functools import partial
from pathlib import Path
from statistics import median

from bench.report import Findings, Gate
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.ids import ConversationId, JobId, PrincipalId
from perdure.domain.people.sharing import FairShares
from perdure.domain.schedule.jobs import Job, JobKind, JobPolicy, JobState
from perdure.domain.schedule.recurrence import Every, Timing
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.operations.jobs import job_rows
from perdure.store.statement import Op
from perdure.store.store import Store

JOBS = 100_000
PEOPLE = 200
LOOKS = 50
# So many are due: a step of the pump looks at a few of them.
DUE = 32
EVERY = Every(86_400)


async def measure(folder: Path) -> Findings:
    driver = SqliteDriver(folder / "schedule.db", synchronous="OFF")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=folder / "media")
    await store.open()
    try:
        looks = await _looks_ms(store, driver)
    finally:
        await store.close()
    name = f"finding what is due among {JOBS:,} jobs"
    gates = [Gate(name=name, measured=looks, limit=5, unit="ms")]
    return Findings(part="schedule", facts=[f"{PEOPLE} people have them"], gates=gates)


def _order(person: PrincipalId, place: ConversationId, *, now_ms: int) -> Op[None]:
    """Add the jobs of one person, all of them due tomorrow."""
    for number in range(JOBS // PEOPLE):
        job = Job(
            id=JobId(f"job_{person}_{number}"),
            principal=person,
            conversation=place,
            name=f"job {number}",
            kind=JobKind.PROMPT,
            prompt="report",
            agent="",
            timing=Timing(EVERY, "UTC", now_ms),
            policy=JobPolicy(),
            state=JobState.ACTIVE,
        )
        yield from job_rows.put(job_rows.with_next(job, now_ms + 86_400_000 + number), at=now_ms)


async def _looks_ms(store: Store, driver: SqliteDriver) -> float:
    for each in range(PEOPLE):
        person = await store.principals.ensure(f"person {each}", role="member")
        place = await store.schedule.open_place("home", principal=person.id)
        await driver.write(partial(_order, person.id, place, now_ms=SystemClock().now_ms()))
    shares = FairShares(most=DUE)
    took = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        await store.schedule.next_due_ms()
        await store.schedule.due(limit=DUE, shares=shares)
        took.append((time.perf_counter() - began) * 1000)
    return median(took)
