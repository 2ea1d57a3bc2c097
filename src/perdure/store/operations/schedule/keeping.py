"""Adds and changes and removes jobs, as their people order."""

from typing import Final

import msgspec

from perdure.domain.address import HTTP, Address
from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import ConversationId, JobId, PrincipalId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import TurnKind, UpdateKind
from perdure.domain.schedule.jobs import (
    NAME_MAX,
    PROMPT_MAX,
    Job,
    JobChange,
    JobKind,
    JobState,
    JobView,
    NewJob,
    ScheduleTerms,
)
from perdure.domain.schedule.policy import WRONG_CLOCK_MS, checked, next_after
from perdure.domain.schedule.recurrence import INVALID, Timing
from perdure.ports.schedule.schedule import JobOwner
from perdure.store.operations.jobs import job_rows, run_rows
from perdure.store.operations.schedule import listing
from perdure.store.operations.sessions import places
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one, run

# Locks a person, so that nobody counts their jobs at the same time, and reads their zone.
_PERSON = "SELECT zone FROM principals WHERE id = $1 FOR UPDATE"
# Reads the zone that a person has chosen.
_ZONE = "SELECT zone FROM principals WHERE id = $1"
# Chooses a zone.
_CHOOSE = "UPDATE principals SET zone = $1 WHERE id = $2"
# Reads what a turn is for.
_KIND = "SELECT kind FROM turns WHERE id = $1"
# Counts the jobs of a person that may still run.
_COUNT = "SELECT COUNT(*) FROM jobs WHERE principal_id = $1 AND state IN ('active', 'paused')"
WITHIN_A_RUN: Final = (
    "a run of a job orders no jobs, unless the job was allowed to (may_schedule); tell the person "
    "what should be ordered"
)
WITHIN_AN_ERRAND: Final = (
    "work that another agent has given you orders no jobs; say in your answer what is to be ordered"
)
REMOVED: Final = "its job was removed"
PAUSED: Final = "its job was paused"


def add(new: NewJob, owner: JobOwner, terms: ScheduleTerms, stamp: Stamp) -> Op[JobView]:
    """Add a job. Raises `Rejected` if its person has too many, or if nothing of it lies ahead."""
    yield from _insist_may_order(owner.turn)
    zone = yield from one(str, _PERSON, owner.principal)
    if zone is None:
        raise NotFound(f"there is no person {owner.principal}")
    count = (yield from one(int, _COUNT, owner.principal)) or 0
    if count >= terms.jobs_max:
        raise Rejected(
            f"one person may have {terms.jobs_max:,} jobs here, and you have {count:,}; remove one "
            "first",
            code="too_many_jobs",
        )
    timing = Timing(new.rule, new.zone or zone or terms.zone, stamp.at)
    job = _insist_on_words(
        Job(
            id=new.id or JobId(stamp.mint("job")),
            principal=owner.principal,
            conversation=owner.conversation,
            name=_name(new),
            kind=new.kind,
            prompt=new.prompt,
            agent=new.agent,
            timing=timing,
            policy=checked(new.policy, timing),
            traits=owner.traits,
            state=JobState.ACTIVE,
        ),
        terms,
    )
    job = _ahead(job, at=stamp.at)
    yield from job_rows.put(job, at=stamp.at)
    return (yield from listing.one_job(job.id, principal=None))


def change(
    which: JobId,
    wish: JobChange,
    terms: ScheduleTerms,
    stamp: Stamp,
    *,
    principal: PrincipalId | None,
) -> Op[JobView]:
    """Change a job, pause it or let it go on."""
    job = yield from _own(which, principal)
    timing = Timing(
        wish.rule or job.timing.rule,
        job.timing.zone if wish.zone is None else wish.zone,
        stamp.at if wish.rule is not None else job.timing.anchor,
    )
    changed = _insist_on_words(
        msgspec.structs.replace(
            job,
            name=job.name if wish.name is None else wish.name[:NAME_MAX],
            prompt=job.prompt if wish.prompt is None else wish.prompt,
            agent=job.agent if wish.agent is None else wish.agent,
            timing=timing,
            policy=checked(wish.policy or job.policy, timing),
        ),
        terms,
    )
    if wish.is_paused:
        changed = job_rows.paused(changed, "") if changed.state is JobState.ACTIVE else changed
        yield from run_rows.skip_waiting(which, PAUSED)
    elif wish.is_paused is False or wish.rule is not None or changed.state is JobState.ACTIVE:
        changed = _going_on(changed, is_resumed=wish.is_paused is False, at=stamp.at)
    yield from job_rows.order(changed, at=stamp.at)
    yield from job_rows.stand(changed, at=stamp.at)
    return (yield from listing.one_job(which, principal=None))


def _going_on(job: Job, *, is_resumed: bool, at: int) -> Job:
    """Return a job that runs from now on, unless it is paused and was not resumed. Occurrences that
    have passed while it was paused are not made up for, and none that was dealt with comes
    again."""
    if job.state is JobState.PAUSED and not is_resumed:
        return job
    failures = 0 if is_resumed else job.failures
    active = msgspec.structs.replace(job, state=JobState.ACTIVE, why="", failures=failures)
    last = job.last_at if job.last_at <= at + WRONG_CLOCK_MS else at
    return _ahead(active, at=max(at, last))


def remove(which: JobId, stamp: Stamp, *, principal: PrincipalId | None) -> Op[JobView]:
    """Remove a job. Its runs stay, so that what has happened can be explained."""
    job = yield from _own(which, principal)
    view = yield from listing.one_job(which, principal=None)
    yield from run_rows.skip_waiting(which, REMOVED)
    gone = msgspec.structs.replace(job, state=JobState.REMOVED, next_at=None, fire_at=None)
    yield from job_rows.stand(gone, at=stamp.at)
    return view


def open_place(name: str, stamp: Stamp, *, principal: PrincipalId) -> Op[ConversationId]:
    """Return a person's conversation over HTTP with this name, opened if there is none."""
    update = Update(
        address=Address(adapter=HTTP, account=principal, place=name),
        external_id="",
        kind=UpdateKind.MESSAGE,
        principal=principal,
        text="",
    )
    return (yield from places.resolve(update, stamp)).conversation


def zone_of(principal: PrincipalId) -> Op[str]:
    """Return the zone that a person has chosen, or an empty string."""
    return (yield from one(str, _ZONE, principal)) or ""


def choose_zone(principal: PrincipalId, zone: str) -> Op[None]:
    """Choose the zone in which a person's times are read."""
    yield from run(_CHOOSE, zone, principal)


def _insist_may_order(turn: TurnId | None) -> Op[None]:
    """Raise `Rejected` if this turn is a run of a job that may order no jobs, or work that one
    agent does for another."""
    if turn and (yield from one(str, _KIND, turn)) == TurnKind.DELEGATED:
        raise Rejected(WITHIN_AN_ERRAND, code="forbidden")
    key = (yield from run_rows.of_turn(turn)) if turn else None
    job = (yield from job_rows.find(key.job)) if key else None
    if job is not None and not job.policy.may_schedule:
        raise Rejected(WITHIN_A_RUN, code="forbidden")


def _own(which: JobId, principal: PrincipalId | None) -> Op[Job]:
    """Lock a job of this person. Raises `NotFound` if they have none with this id."""
    job = yield from job_rows.lock(which)
    if job is None or job.state is JobState.REMOVED or principal not in (None, job.principal):
        raise NotFound(f"there is no job {which}; /jobs lists yours")
    return job


def _ahead(job: Job, *, at: int) -> Job:
    """Return the job with its next occurrence. Raises `Rejected` if there is none."""
    due = next_after(job, after=at)
    if due is None:
        raise Rejected("this lies in the past; name a time that is still to come", code=INVALID)
    return job_rows.with_next(job, due)


def _name(new: NewJob) -> str:
    """Return what a job is called: as its person says, or by how its prompt begins."""
    if new.name.strip():
        return " ".join(new.name.split())[:NAME_MAX]
    words = " ".join(new.prompt.split()) or new.kind
    return words if len(words) <= 40 else f"{words[:39]}…"


def _insist_on_words(job: Job, terms: ScheduleTerms) -> Job:
    """Raise `Rejected` if the job says nothing, or says it to an agent that does not exist."""
    if not job.prompt.strip() and job.kind is not JobKind.HEARTBEAT:
        raise Rejected("a job needs a prompt: what is to be done", code="empty_prompt")
    if len(job.prompt) > PROMPT_MAX:
        raise Rejected(f"a prompt has at most {PROMPT_MAX:,} characters", code="too_long")
    if job.agent and terms.agents and job.agent not in terms.agents:
        known = ", ".join(sorted(terms.agents))
        raise Rejected(f"there is no agent {job.agent!r}; there are {known}", code="unknown_agent")
    return job
