"""Lets a simulated year pass in five zones, with restarts and outages, and compares every run with
an independent expansion of the schedules.

The whole year is a chaos test. Every run of the tests has a month around each clock change of each
zone.
"""

from collections.abc import Awaitable, Callable, Sequence
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
# A month around a clock change.
BEFORE_A_CHANGE: Final = timedelta(days=15)
DAYS_AROUND_A_CHANGE: Final = 30
# Where the clocks never change, these months are as good as any.
WITHOUT_CHANGES: Final = (START + timedelta(days=90), START + timedelta(days=270))


def changes_of(zone: str) -> tuple[datetime, datetime]:
    """Return the days before the clock changes of a zone in the year."""
    days = [START + timedelta(days=number) for number in range(DAYS)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    changes = [days[n] for n in range(DAYS - 1) if offsets[n] != offsets[n + 1]]
    if not changes:
        return WITHOUT_CHANGES
    first, second = changes
    return first, second


def walked(zone: str, hour: int, minute: int, start: datetime, days_passed: int) -> set[int]:
    """Return the instants of a daily time, minute by minute."""
    place, found = ZoneInfo(zone), set()
    days: set[object] = set()
    then = start - timedelta(days=1)
    before = then.astimezone(place).replace(tzinfo=None)
    while then < start + timedelta(days=days_passed):
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
            if then > start:
                found.add(int(then.timestamp() * 1000))
        before = local
    return found


Passing = Callable[..., Awaitable[None]]


@pytest.fixture
def passing(
    store: Store, clock: VirtualClock, ada: Person, open_store: OpenStore, seed: int
) -> Passing:
    """Let time pass from `start` on, and compare what has run."""

    async def let_pass(jobs: Sequence[tuple[str, int, int]], start: datetime, days: int) -> None:
        await let_time_pass(store, clock, ada, open_store, Random(seed), jobs, start, days)

    return let_pass


@pytest.mark.chaos
@pytest.mark.usefixtures("everything_ends_sound")
async def test_a_year_with_restarts_and_clock_changes_is_the_independent_expansion(
    passing: Passing,
) -> None:
    await passing(JOBS, START, DAYS)


@pytest.mark.parametrize("change", [0, 1])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job[0])
@pytest.mark.usefixtures("everything_ends_sound")
async def test_a_month_around_a_clock_change_is_the_independent_expansion(
    passing: Passing, job: tuple[str, int, int], change: int
) -> None:
    await passing([job], changes_of(job[0])[change] - BEFORE_A_CHANGE, DAYS_AROUND_A_CHANGE)


async def let_time_pass(
    store: Store,
    clock: VirtualClock,
    ada: Person,
    open_store: OpenStore,
    dice: Random,
    scheduled: Sequence[tuple[str, int, int]],
    start: datetime,
    days: int,
) -> None:
    clock.jump((start.timestamp() * 1000 - clock.now_ms()) / 1000)
    place = await store.schedule.open_place("home", principal=ada.id)
    owner = JobOwner(principal=ada.id, conversation=place)
    jobs: dict[str, JobView] = {}
    for zone, hour, minute in scheduled:
        policy = JobPolicy(missed=MissedPolicy.LATEST, catch_up_s=3_600)
        rule = read_cron(f"{minute} {hour} * * *")
        new = NewJob(prompt="report", rule=rule, zone=zone, name=zone, policy=policy)
        jobs[zone] = await store.schedule.add(new, owner, TERMS)
    found: dict[str, dict[int, str]] = {zone: {} for zone in jobs}
    outages: list[tuple[int, int]] = []
    until = clock.now_ms() + days * 86_400_000
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
    for zone, hour, minute in scheduled:
        compare(zone, walked(zone, hour, minute, start, days), found[zone], outages, upto=until)


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
