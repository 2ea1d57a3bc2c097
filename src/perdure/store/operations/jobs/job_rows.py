"""Reads and writes the rows of jobs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.ids import ConversationId, JobId, PrincipalId, SessionId
from perdure.domain.journal.events import SenderTraits
from perdure.domain.schedule.jobs import Job, JobKind, JobPolicy, JobState
from perdure.domain.schedule.policy import fires_at
from perdure.domain.schedule.recurrence import Recurrence, Timing
from perdure.store.statement import Op, many, one, run

COLUMNS: Final = """
    j.id, j.principal_id, j.conversation_id, j.name, j.kind, j.prompt, j.agent, j.rule, j.zone,
    j.anchor, j.policy, j.traits, j.state, j.why, j.failures, j.next_at, j.fire_at, j.last_at,
    j.session_id, j.session_runs"""
# Reads a job.
_ONE = f"SELECT {COLUMNS} FROM jobs j WHERE j.id = $1"
# Locks a job.
_LOCK = f"{_ONE} FOR UPDATE"
# Adds a job.
_ADD = """
    INSERT INTO jobs (id, principal_id, conversation_id, name, kind, prompt, agent, rule, zone,
                      anchor, policy, traits, state, next_at, fire_at, created_at, changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16)"""
# Changes what its person has ordered.
_ORDER = """
    UPDATE jobs SET name = $1, prompt = $2, agent = $3, rule = $4, zone = $5, policy = $6,
                    anchor = $7, changed_at = $8 WHERE id = $9"""
# Gives a job to another person.
_MOVE = "UPDATE jobs SET principal_id = $1, conversation_id = $2 WHERE id = $3"
# Changes where a job stands.
_STAND = """
    UPDATE jobs SET state = $1, why = $2, failures = $3, next_at = $4, fire_at = $5, last_at = $6,
                    session_id = $7, session_runs = $8, changed_at = $9 WHERE id = $10"""


class JobRow(NamedTuple):
    """Holds a job as its row has it."""

    id: JobId
    principal: PrincipalId
    conversation: ConversationId
    name: str
    kind: str
    prompt: str
    agent: str
    rule: str
    zone: str
    anchor: int
    policy: str
    traits: str
    state: str
    why: str
    failures: int
    next_at: int | None
    fire_at: int | None
    last_at: int
    session: SessionId | None
    session_runs: int


def job_of(row: JobRow) -> Job:
    """Return the job that a row holds."""
    rule: Recurrence = msgspec.json.decode(row.rule, type=Recurrence)
    return Job(
        id=row.id,
        principal=row.principal,
        conversation=row.conversation,
        name=row.name,
        kind=JobKind(row.kind),
        prompt=row.prompt,
        agent=row.agent,
        timing=Timing(rule, row.zone, row.anchor),
        policy=msgspec.json.decode(row.policy, type=JobPolicy),
        traits=msgspec.json.decode(row.traits, type=SenderTraits),
        state=JobState(row.state),
        why=row.why,
        failures=row.failures,
        next_at=row.next_at,
        fire_at=row.fire_at,
        last_at=row.last_at,
        own_session=row.session,
        session_runs=row.session_runs,
    )


def find(job: JobId) -> Op[Job | None]:
    """Return a job, or None if there is none with this id."""
    row = yield from one(JobRow, _ONE, job)
    return job_of(row) if row else None


def lock(job: JobId) -> Op[Job | None]:
    """Lock a job until the transaction ends, and return it."""
    row = yield from one(JobRow, _LOCK, job)
    return job_of(row) if row else None


def read(sql: str, *values: str | int | None) -> Op[list[Job]]:
    """Return the jobs that a query finds, whose columns are `COLUMNS`."""
    return [job_of(row) for row in (yield from many(JobRow, sql, *values))]


def put(job: Job, *, at: int) -> Op[None]:
    """Add a job."""
    yield from run(
        _ADD,
        job.id, job.principal, job.conversation, job.name, job.kind, job.prompt, job.agent,
        _json(job.timing.rule), job.timing.zone, job.timing.anchor, _json(job.policy),
        _json(job.traits), job.state, job.next_at, job.fire_at, at,
    )  # fmt: skip


def order(job: Job, *, at: int) -> Op[None]:
    """Write what the person has ordered."""
    yield from run(
        _ORDER,
        job.name, job.prompt, job.agent, _json(job.timing.rule), job.timing.zone,
        _json(job.policy), job.timing.anchor, at, job.id,
    )  # fmt: skip


def move(job: Job, *, at: int) -> Op[None]:
    """Give a job to another person, in another conversation, with what is ordered there."""
    yield from run(_MOVE, job.principal, job.conversation, job.id)
    yield from order(job, at=at)


def stand(job: Job, *, at: int) -> Op[None]:
    """Write where a job stands."""
    yield from run(
        _STAND,
        job.state, job.why, job.failures, job.next_at, job.fire_at, job.last_at, job.own_session,
        job.session_runs, at, job.id,
    )  # fmt: skip


def with_next(job: Job, due: int | None) -> Job:
    """Return a job whose next occurrence is this one. Without one it is done."""
    if due is None:
        return msgspec.structs.replace(job, state=JobState.DONE, next_at=None, fire_at=None)
    return msgspec.structs.replace(job, next_at=due, fire_at=fires_at(job, due))


def paused(job: Job, why: str) -> Job:
    """Return a job that is paused for this reason."""
    return msgspec.structs.replace(job, state=JobState.PAUSED, why=why, next_at=None, fire_at=None)


def _json(value: Sequence[object] | object) -> str:
    return msgspec.json.encode(value).decode()
