"""Ends a run with its turn, and pauses a job that keeps failing or whose person is gone."""

from typing import Final, NamedTuple

import msgspec

from perdure.domain.ids import JobId, TurnId
from perdure.domain.journal.events import TurnSettled
from perdure.domain.outcomes import Outcome
from perdure.domain.people.access import is_access_ended
from perdure.domain.schedule.jobs import Job, JobState
from perdure.store.operations.jobs import job_rows, run_rows
from perdure.store.operations.jobs.run_rows import RunEnding
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op

_FAILED: Final = (Outcome.FAILED, Outcome.SUSPENDED, Outcome.REFUSED)


class JobAfter(NamedTuple):
    """Holds a job after one of its runs. `is_paused_now`: this run has paused it."""

    job: Job
    is_paused_now: bool


def job_of(turn: TurnId) -> Op[JobId | None]:
    """Return the job that a turn is a run of, or None."""
    key = yield from run_rows.of_turn(turn)
    return key.job if key else None


def name_of(turn: TurnId) -> Op[str]:
    """Return the name of the job that a turn is a run of, or an empty string."""
    key = yield from run_rows.of_turn(turn)
    job = (yield from job_rows.find(key.job)) if key else None
    return job.name if job else ""


def run_is_over(
    turn: TurnId, settled: TurnSettled, *, result: TurnId | None, is_silent: bool, stamp: Stamp
) -> Op[JobAfter | None]:
    """Write how a run has ended, and where its job stands now. If an occurrence waits, the job is
    due at once."""
    key = yield from run_rows.of_turn(turn)
    if key is None:
        return None
    job = yield from job_rows.lock(key.job)
    assert job is not None
    usage = settled.usage
    tokens = usage.input_tokens + usage.output_tokens
    ending = RunEnding(settled.outcome, settled.reason, result, is_silent, tokens)
    yield from run_rows.settle(key, ending, at=stamp.at)
    after = _counted(job, settled)
    is_paused_now = after.state is JobState.PAUSED and job.state is not JobState.PAUSED
    if is_paused_now:
        yield from run_rows.skip_waiting(job.id, after.why)
    elif (yield from run_rows.waiting(job.id)):
        after = msgspec.structs.replace(after, fire_at=stamp.at)
    yield from job_rows.stand(after, at=stamp.at)
    return JobAfter(after, is_paused_now)


def _counted(job: Job, settled: TurnSettled) -> Job:
    """Return the job with its failed runs counted, paused if it must not go on."""
    if settled.outcome is Outcome.DONE:
        return msgspec.structs.replace(job, failures=0)
    if settled.outcome not in _FAILED:
        return job
    counted = msgspec.structs.replace(job, failures=job.failures + 1)
    if job.state is not JobState.ACTIVE:
        return counted
    if is_access_ended(settled.reason):
        return job_rows.paused(counted, settled.reason)
    most = job.policy.failures_max
    if most and counted.failures >= most:
        return job_rows.paused(counted, f"{counted.failures} runs in a row have failed")
    return counted
