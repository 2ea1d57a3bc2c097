"""Finds jobs that are due, and shows people their jobs and runs. Nothing here changes anything."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from perdure.domain.address import HTTP
from perdure.domain.errors import NotFound
from perdure.domain.ids import JobId, PrincipalId, TurnId
from perdure.domain.people.sharing import FairShares, fairly
from perdure.domain.schedule.jobs import JobView, RunState, RunView
from perdure.ports.records.history import Page
from perdure.ports.schedule.schedule import DueJob
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.jobs.job_rows import COLUMNS, JobRow, job_of
from perdure.store.statement import Op, listed, many, one

# Finds jobs for which something is to be done; `_due_sql` adds the rest.
_DUE = "SELECT id, principal_id FROM jobs WHERE fire_at <= $1"
# Finds when something is to be done next.
_NEXT = "SELECT MIN(fire_at) FROM jobs WHERE fire_at IS NOT NULL"
# Counts the runs of each person that are not over.
_UNDER_WAY = f"""
    SELECT j.principal_id, COUNT(*) FROM runs r JOIN jobs j ON j.id = r.job_id
    WHERE r.state = '{RunState.QUEUED}' GROUP BY j.principal_id"""
# Reads jobs as people are shown them, with their newest runs; the caller appends which.
_SHOWN = f"""
    SELECT {COLUMNS}, p.name, {ADDRESS}, r.state, r.outcome, j.created_at
    FROM jobs j JOIN principals p ON p.id = j.principal_id
    JOIN conversations c ON c.id = j.conversation_id
    LEFT JOIN runs r ON r.job_id = j.id AND r.due_at = (
        SELECT MAX(newest.due_at) FROM runs newest WHERE newest.job_id = j.id) """
_ONE = _SHOWN + "WHERE j.id = $1 AND j.state <> 'removed'"
_AFTER: Final = "AND (j.created_at > $1 OR (j.created_at = $1 AND j.id > $2))"
# Reads a page of everybody's jobs, oldest first.
_ALL = _SHOWN + f"WHERE j.state <> 'removed' {_AFTER} ORDER BY j.created_at, j.id LIMIT $3"
# Reads a page of a person's jobs, oldest first.
_OWN = (
    _SHOWN
    + f"""
    WHERE j.state <> 'removed' {_AFTER} AND j.principal_id = $3
    ORDER BY j.created_at, j.id LIMIT $4"""
)
# Reads the newest runs of a job, with what became of their results.
_RUNS = """
    SELECT r.job_id, r.due_at, r.state, r.turn_id, r.outcome, r.reason, r.is_silent,
           r.result_turn_id, c.adapter, t.outcome,
           (SELECT COUNT(*) FROM outbox o WHERE o.turn_id = r.result_turn_id
            AND o.state IN ('pending', 'attempting')),
           (SELECT COUNT(*) FROM outbox o WHERE o.turn_id = r.result_turn_id
            AND o.state IN ('failed', 'expired', 'unknown'))
    FROM runs r JOIN jobs j ON j.id = r.job_id
    JOIN conversations c ON c.id = j.conversation_id
    LEFT JOIN turns t ON t.id = r.result_turn_id
    WHERE r.job_id = $1 AND r.due_at < $2 ORDER BY r.due_at DESC LIMIT $3"""
_BEGINNING: Final = (-1, "")
_END: Final = 2**62
# How many due jobs are looked at beyond those that may start, so that `fairly` can choose.
WINDOW: Final = 64


class _Count(NamedTuple):
    principal: PrincipalId
    runs: int


class _Next(NamedTuple):
    fire_at: int | None


class _RunRow(NamedTuple):
    job: JobId
    due_at: int
    state: str
    turn: TurnId | None
    outcome: str | None
    reason: str
    is_silent: int
    result: TurnId | None
    adapter: str
    said: str | None
    on_its_way: int
    lost: int


def due(*, at: int, limit: int, shares: FairShares) -> Op[Sequence[DueJob]]:
    """Return due jobs, fairly among their people."""
    full = shares.full
    found = yield from many(DueJob, due_sql(len(full)), at, *full, limit + WINDOW)
    return fairly(found, by=lambda each: each.principal, shares=shares, limit=limit)


def due_sql(full: int) -> str:
    """Return the query for due jobs, given how many people may start no more runs."""
    without = f" AND principal_id NOT IN {listed(2, full)}" if full else ""
    return f"{_DUE}{without} ORDER BY fire_at, id LIMIT ${2 + full}"


def next_due() -> Op[int | None]:
    """Return when something is to be done next for any job."""
    found = yield from one(_Next, _NEXT)
    return found.fire_at if found else None


def under_way() -> Op[Mapping[PrincipalId, int]]:
    """Return how many runs of each person are not over."""
    return {each.principal: each.runs for each in (yield from many(_Count, _UNDER_WAY))}


def one_job(which: JobId, *, principal: PrincipalId | None) -> Op[JobView]:
    """Return one job as it is shown. Raises `NotFound` if the person has none with this id."""
    row = yield from one(_row, _ONE, which)
    if row is None or principal not in (None, row[0]):
        raise NotFound(f"there is no job {which}; /jobs lists yours")
    return row[1]


def page(page: Page, *, principal: PrincipalId | None) -> Op[list[JobView]]:
    """Return a page of jobs, oldest first."""
    after, last = page.after or _BEGINNING
    if principal is None:
        rows = yield from many(_row, _ALL, after, last, page.limit)
    else:
        rows = yield from many(_row, _OWN, after, last, principal, page.limit)
    return [view for _, view in rows]


def runs(
    which: JobId, *, before: int | None, limit: int, principal: PrincipalId | None
) -> Op[list[RunView]]:
    """Return runs of a job, newest first."""
    yield from one_job(which, principal=principal)
    upto = _END if before is None else before
    return [_run(each) for each in (yield from many(_RunRow, _RUNS, which, upto, limit))]


def _row(*columns: str | int | None) -> tuple[PrincipalId, JobView]:
    """Return whose job a row holds, and the job as it is shown."""
    row = JobRow(*columns[:20])  # type: ignore[arg-type]
    person, *address, state, outcome, created_at = columns[20:]
    job = job_of(row)
    view = JobView(
        id=job.id,
        name=job.name,
        person=str(person),
        conversation=address_of(*map(str, address)).name,
        prompt=job.prompt,
        kind=job.kind,
        rule=job.timing.rule,
        timezone=job.timing.zone,
        next_at=job.next_at,
        state=job.state,
        policy=job.policy,
        agent=job.agent,
        why=job.why,
        failures=job.failures,
        last_at=job.last_at,
        last_state=str(state or ""),
        last_outcome=str(outcome or ""),
        created_at=int(created_at or 0),
        anchor=job.timing.anchor,
    )
    return job.principal, view


def _run(row: _RunRow) -> RunView:
    return RunView(
        job=row.job,
        due_at=row.due_at,
        state=RunState(row.state),
        turn=row.turn,
        outcome=row.outcome,
        reason=row.reason,
        delivery=_delivery(row),
    )


def _delivery(row: _RunRow) -> str:
    """Return what became of the result of a run. That is read from the turn that brings it and from
    its parts, which know it."""
    if row.is_silent:
        return "silent"
    if row.result is None:
        return ""
    if row.said is None or row.on_its_way:
        return "pending"
    if row.lost:
        return "failed"
    return "here" if row.adapter == HTTP else "sent"
