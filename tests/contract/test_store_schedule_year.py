"""Lets a simulated year pass in five zones, with restarts and outages, and compares every run with
an independent expansion of the schedules."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from perdure.domain.content.silence import NOTHING_TO_SAY
from perdure.domain.people.sharing import EQUAL
from perdure.domain.schedule.jobs import (
    JobPolicy,
    JobView,
    MissedPolicy,
    NewJob,
    RunState,
    ScheduleTerms,
)
from perdure.domain.schedule.recurrence import read_cron
from perdure.ports.schedule.schedule import JobOwner
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, settle
from perdure.testkit.simulator.system import VirtualClock

OpenStore = Callable[[], Awaitable[Store]]
TERMS: Final = ScheduleTerms(jobs_max=100)
MINUTE: Final = timedelta(minutes=1)
# For each zone a fixed time, most of which a clock change skips or repeats.
JOBS: Final = (
    ("Europe/Berlin", 2, 30),
    ("America/New_York", 2, 15),
    ("Australia/Lord_Howe", 2, 10),
    ("America/Santiago", 0, 20),
    ("Asia/Kolkata", 23, 45),
)
START: Final = datetime(2026, 1, 1, 0, 7, tzinfo=UTC)
DAYS: Final = 366


def walked(zone: str, hour: int, minute: int) -> set[int]:
    """Return the instants of a daily time in a year, minute by minute."""
    place, found = ZoneInfo(zone), set()
    days: set[object] = set()
    then = START - timedelta(days=1)
    before = then.astimezone(place).replace(tzinfo=None)
    while then < START + timedelta(days=DAYS):
        then += MINUTE
        local = then.astimezone(place).replace(tzinfo=None, fold=0)
        passed = before + MINUTE
        is_due = False
        while passed <= max(local, before + MINUTE):
            is_due |= (passed.hour, passed.minute) == (hour, minute)
            passed += MINUTE
        day = local.date()
        if is_due and (local.hour, local.minute) >= (hour, minute) and day not in days:
            days.add(day)
            if then > START:
                found.add(int(then.timestamp() * 1000))
        before = local
    return found


@pytest.mark.usefixtures("everything_ends_sound")
async def test_a_year_with_restarts_and_clock_changes_is_the_independent_expansion(
    store: Store, clock: VirtualClock, ada: Person, open_store: OpenStore, seed: int
) -> None:
    dice = Random(seed)
    clock.jump((START.timestamp() * 1000 - clock.now_ms()) / 1000)
    place = await store.schedule.open_place("home", principal=ada.id)
    owner = JobOwner(principal=ada.id, conversation=place)
    jobs: dict[str, JobView] = {}
    for zone, hour, minute in JOBS:
        policy = JobPolicy(missed=MissedPolicy.LATEST, catch_up_s=3_600)
        rule = read_cron(f"{minute} {hour} * * *")
        new = NewJob(prompt="report", rule=rule, zone=zone, name=zone, policy=policy)
        jobs[zone] = await store.schedule.add(new, owner, TERMS)
    found: dict[str, dict[int, str]] = {zone: {} for zone in jobs}
    outages: list[tuple[int, int]] = []
    until = clock.now_ms() + DAYS * 86_400_000
    harvested = clock.now_ms()
    while clock.now_ms() < until:
        if dice.random() < 0.03:
            began = clock.now_ms()
            clock.advance(dice.choice((1_800, 9_000, 200_000)))
            store = await open_store()
            outages.append((began, clock.now_ms()))
        else:
            due = await store.schedule.next_due_ms()
            assert due is not None
            clock.advance(max(due - clock.now_ms(), 0) / 1000)
        await run_what_is_due(store)
        if clock.now_ms() - harvested > 30 * 86_400_000 or clock.now_ms() >= until:
            harvested = clock.now_ms()
            await harvest(store, jobs, found)
    for zone, hour, minute in JOBS:
        compare(zone, walked(zone, hour, minute), found[zone], outages, upto=until)


async def run_what_is_due(store: Store) -> None:
    """Deal with all jobs that are due, and let their runs end."""
    for due in await store.schedule.due(limit=100, shares=EQUAL):
        await store.schedule.fire(due.job, TERMS)
    while claimed := await store.turns.claim(limit=10):
        for each in claimed:
            await settle(store, each, NOTHING_TO_SAY)


async def harvest(store: Store, jobs: dict[str, JobView], found: dict[str, dict[int, str]]) -> None:
    for zone, job in jobs.items():
        for run in await store.schedule.runs(job.id, before=None, limit=1_000, principal=None):
            found[zone][run.due_at] = run.state


def compare(
    zone: str,
    expected: set[int],
    found: dict[int, str],
    outages: list[tuple[int, int]],
    *,
    upto: int,
) -> None:
    """Check that each occurrence has one row, and ran unless an outage has covered it for longer
    than the job makes up for."""
    wanted = {due for due in expected if due <= upto - 86_400_000}
    assert {due for due in found if due <= upto - 86_400_000} == wanted, zone
    for due in wanted:
        late = next((end - due for began, end in outages if began < due < end), 0)
        newest_in_outage = not any(
            due < other <= end for began, end in outages if began < due < end for other in wanted
        )
        has_run = late <= 3_600_000 and newest_in_outage
        state = RunState.SETTLED if has_run else RunState.MISSED
        assert found[due] == state, (zone, due, late)
