"""Keeps the heartbeat that the configuration asks for: one job, in the home conversation of the
operator. It is a job like any other, whose checklist is read when it is due."""

from typing import Final

import msgspec

from perdure.domain.ids import JobId
from perdure.domain.schedule.jobs import Job, JobKind, JobPolicy, JobState
from perdure.domain.schedule.policy import next_after
from perdure.domain.schedule.recurrence import Every, Timing
from perdure.store.operations.delivery import operators
from perdure.store.operations.delivery.operators import FirstHome
from perdure.store.operations.jobs import job_rows
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op

HEARTBEAT: Final = JobId("job_heartbeat")


def is_kept(every_s: int) -> Op[bool]:
    """Tell whether the heartbeat is as it should be, or cannot be made yet."""
    job = yield from job_rows.find(HEARTBEAT)
    if not every_s:
        return job is None or job.state is JobState.REMOVED
    home = yield from operators.first_home()
    return home is None or (job is not None and _fits(job, home, every_s))


def _fits(job: Job, home: FirstHome, every_s: int) -> bool:
    is_there = (job.principal, job.conversation) == home
    return is_there and job.timing.rule == Every(every_s) and job.state is not JobState.REMOVED


def keep(every_s: int, stamp: Stamp) -> Op[None]:
    """Make or change or remove the heartbeat."""
    job = yield from job_rows.lock(HEARTBEAT)
    home = yield from operators.first_home()
    if not every_s or home is None:
        if job is not None and not every_s:
            gone = msgspec.structs.replace(job, next_at=None, fire_at=None)
            gone = msgspec.structs.replace(gone, state=JobState.REMOVED)
            yield from job_rows.stand(gone, at=stamp.at)
        return
    timing = Timing(Every(every_s), "UTC", stamp.at)
    fresh = Job(
        id=HEARTBEAT,
        principal=home.principal,
        conversation=home.conversation,
        name="heartbeat",
        kind=JobKind.HEARTBEAT,
        prompt="",
        agent="",
        timing=timing,
        policy=JobPolicy(),
        state=JobState.ACTIVE,
        last_at=job.last_at if job else 0,
    )
    fresh = job_rows.with_next(fresh, next_after(fresh, after=stamp.at))
    if job is None:
        yield from job_rows.put(fresh, at=stamp.at)
    else:
        yield from job_rows.move(fresh, at=stamp.at)
        yield from job_rows.stand(fresh, at=stamp.at)
