"""Deals with the occurrences of a job that are due.

One transaction reads the job again under its lock, writes the row of each occurrence, moves the job
on, and queues the turn of the run that starts. If the process dies before the commit, the job is
found due again; if it dies after, the turn waits in line like any other. A second node that has
found the same job due finds it changed, runs again, and has nothing to do.

Locks are taken in the order in which a run that ends takes them: the run's own session, the
conversation with its live session, the job.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from perdure.domain.address import HTTP
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import JobId, MessageId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.sayings.saying import worded
from perdure.domain.schedule.checklist import checklist_prompt, has_items
from perdure.domain.schedule.jobs import (
    RUNS_PER_SESSION,
    Job,
    JobKind,
    JobSession,
    JobState,
    Overlap,
    RunState,
    ScheduleTerms,
)
from perdure.domain.schedule.policy import (
    WRONG_CLOCK_MS,
    JobDecision,
    decide_due,
    is_worth_telling,
    missed_words,
    next_after,
)
from perdure.domain.schedule.recurrence import known_zone
from perdure.domain.turn.turn import State
from perdure.ports.schedule.schedule import Fired
from perdure.store.operations.delivery import operators
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.jobs import job_rows, run_rows
from perdure.store.operations.jobs.run_rows import RunKey
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked, locked
from perdure.store.operations.turns import errands
from perdure.store.operations.turns.endings import Closing, end_turn
from perdure.store.statement import Op, RaceLost, one

# Reads where a conversation is, what was chosen there, and its head.
_PLACE = """
    SELECT c.adapter, c.agent, c.persona, c.effort, s.head_turn
    FROM conversations c JOIN sessions s ON s.id = $1 WHERE c.id = $2"""
# Tells whether a session is open.
_IS_OPEN = "SELECT state FROM sessions WHERE id = $1"
REPLACED: Final = Closing(Outcome.SUPERSEDED, "the next run of its job has replaced it")
NOTHING_TO_DO: Final = "nothing is on the checklist"
REPEATED: Final = "it had run before the clock was set back"


class _Place(NamedTuple):
    adapter: str
    agent: str
    persona: str
    effort: str
    head: TurnId | None


class _Firing(NamedTuple):
    """Holds a locked job with the place that it serves, and the run that is not over."""

    job: Job
    terms: ScheduleTerms
    stamp: Stamp
    live: SessionId
    place: _Place
    running: TurnId | None
    replaced: Locked | None
    opened: list[Recorded]


def fire(which: JobId, terms: ScheduleTerms, stamp: Stamp) -> Op[Fired]:
    """Deal with the due occurrences of a job, if there still are any."""
    seen = yield from job_rows.find(which)
    if seen is None or seen.fire_at is None or seen.fire_at > stamp.at:
        return Fired()
    firing = yield from _locked(seen, terms, stamp)
    gone = _gone(firing)
    if gone:
        return (yield from _pause(firing, gone))
    waiting = yield from run_rows.waiting(which)
    tokens = (
        (yield from run_rows.tokens_today(which, at=stamp.at)) if seen.policy.tokens_daily else 0
    )
    decided = decide_due(
        firing.job,
        now=stamp.at,
        is_running=firing.running is not None,
        waiting=len(waiting),
        tokens_today=tokens,
    )
    yield from _write(firing, decided)
    recorded, ended, firing = yield from _make_way(firing, decided)
    turn: TurnId | None = None
    job = firing.job
    if firing.running is None:
        job, turn, more = yield from _start_next(firing, decided, waiting)
        recorded += more
    recorded += yield from _tell_missed(firing, decided)
    yield from _move_on(firing, job, decided, is_running=bool(turn or firing.running))
    yield from run_rows.forget_old(which, at=stamp.at)
    return Fired(turn=turn, ended=ended, recorded=(*firing.opened, *recorded))


def run_now(
    which: JobId, terms: ScheduleTerms, stamp: Stamp, *, principal: PrincipalId | None
) -> Op[Fired]:
    """Start a run of a job now, whatever its schedule says."""
    seen = yield from job_rows.find(which)
    is_own = seen is not None and principal in (None, seen.principal)
    if seen is None or not is_own or seen.state is JobState.REMOVED:
        raise NotFound(f"there is no job {which}")
    firing = yield from _locked(seen, terms, stamp)
    if firing.running is not None:
        raise Conflict(
            f"a run of this job is under way ({firing.running}); stop it or wait until it is over",
            code="already_running",
        )
    gone = _gone(firing)
    if gone:
        raise Conflict(f"the job cannot run: {gone}", code="job_paused")
    job, turn, recorded = yield from _start(firing, stamp.at, is_waiting=False)
    yield from job_rows.stand(job, at=stamp.at)
    return Fired(turn=turn, recorded=(*firing.opened, *recorded))


def _locked(seen: Job, terms: ScheduleTerms, stamp: Stamp) -> Op[_Firing]:
    """Lock everything that a run may touch, in order. Raises `RaceLost` if the job has changed
    meanwhile."""
    running = yield from run_rows.at_work(seen.id)
    replaced: Locked | None = None
    if running is not None and seen.policy.overlap is Overlap.REPLACE:
        replaced = yield from locked(running)
    live, opened = yield from errands.live_session(seen.conversation, stamp, by=seen.principal)
    job = yield from job_rows.lock(seen.id)
    if job != seen or (yield from run_rows.at_work(seen.id)) != running:
        raise RaceLost
    place = yield from one(_Place, _PLACE, live, seen.conversation)
    assert place is not None
    return _Firing(job, terms, stamp, live, place, running, replaced, opened)


def _gone(firing: _Firing) -> str:
    """Return what the job needs and does not find any more, or an empty string."""
    job, terms = firing.job, firing.terms
    if job.agent and job.agent not in terms.agents:
        return f"there is no agent {job.agent!r} any more"
    adapter = firing.place.adapter
    if adapter != HTTP and adapter not in terms.adapters:
        return f"there is no platform {adapter!r} any more"
    return ""


def _pause(firing: _Firing, why: str) -> Op[Fired]:
    """Pause a job that cannot run any more, and tell people: in its conversation or, if nothing can
    be delivered there, the operators."""
    job, stamp = firing.job, firing.stamp
    if job.next_at is not None:
        key = RunKey(job.id, job.next_at)
        yield from run_rows.add(key, RunState.SKIPPED, at=stamp.at, why=why)
    yield from run_rows.skip_waiting(job.id, why)
    yield from job_rows.stand(job_rows.paused(job, why), at=stamp.at)
    words = worded(
        "The job {name!r} is paused: {why}. /jobs resume lets it go on.", name=job.name, why=why
    )
    if firing.place.adapter in (HTTP, *firing.terms.adapters):
        recorded = yield from notice(firing.live, None, words, stamp)
    else:
        recorded = yield from operators.tell(words, stamp, but=job.conversation)
    return Fired(recorded=(*firing.opened, *recorded))


def _write(firing: _Firing, decided: JobDecision) -> Op[None]:
    """Write the rows of occurrences that do not start now."""
    job, at = firing.job.id, firing.stamp.at
    for due in decided.missed:
        yield from run_rows.add(RunKey(job, due), RunState.MISSED, at=at)
    for each in decided.skipped:
        key = RunKey(job, each.due_at)
        yield from run_rows.add(key, RunState.SKIPPED, at=at, why=each.reason)
    for due in decided.waits:
        yield from run_rows.add(RunKey(job, due), RunState.CLAIMED, at=at)


def _make_way(
    firing: _Firing, decided: JobDecision
) -> Op[tuple[list[Recorded], tuple[TurnId, ...], _Firing]]:
    """End the run that the next one replaces."""
    turn, found = firing.running, firing.replaced
    if not decided.replaces or turn is None or found is None or found.state is State.SETTLED:
        return [], (), firing
    recorded = yield from end_turn(turn, found, REPLACED, firing.stamp)
    job = yield from job_rows.find(firing.job.id)
    assert job is not None
    return recorded, (turn,), firing._replace(job=job, running=None)


def _start_next(
    firing: _Firing, decided: JobDecision, waiting: Sequence[int]
) -> Op[tuple[Job, TurnId | None, list[Recorded]]]:
    """Start the run whose turn it is: one that has waited, or the one that is due now."""
    if waiting and decided.starts is None:
        return (yield from _start(firing, waiting[0], is_waiting=True))
    if decided.starts is None:
        return firing.job, None, []
    for due in waiting:
        yield from run_rows.skip(RunKey(firing.job.id, due), REPLACED.reason)
    return (yield from _start(firing, decided.starts, is_waiting=False))


def _start(
    firing: _Firing, due: int, *, is_waiting: bool
) -> Op[tuple[Job, TurnId | None, list[Recorded]]]:
    """Queue the turn of a run, and write its row. An occurrence that is known starts nothing."""
    job, stamp = firing.job, firing.stamp
    key = RunKey(job.id, due)
    if job.kind is JobKind.HEARTBEAT and not has_items(firing.terms.checklist):
        if is_waiting:
            yield from run_rows.skip(key, NOTHING_TO_DO)
        else:
            yield from run_rows.add(key, RunState.SKIPPED, at=stamp.at, why=NOTHING_TO_DO)
        return job, None, []
    # First, as waiting: a row that is there already must not get a turn.
    if not is_waiting and not (yield from run_rows.add(key, RunState.CLAIMED, at=stamp.at)):
        return job, None, []
    order = yield from _order(firing)
    recorded = yield from errands.begin(order, stamp)
    queued = recorded[-1]
    assert isinstance(queued.event, TurnQueued)
    yield from run_rows.begin(key, queued.event.turn, at=stamp.at)
    if job.policy.session is JobSession.OWN:
        told = job.session_runs + 1 if order.within else 1
        job = msgspec.structs.replace(job, own_session=queued.session, session_runs=told)
    return job, queued.event.turn, recorded


def _order(firing: _Firing) -> Op[errands.Order]:
    """Return the errand that a run of the job is."""
    job, place = firing.job, firing.place
    is_own = job.policy.session is JobSession.OWN
    text = job.prompt
    if job.kind is JobKind.HEARTBEAT:
        text = checklist_prompt(job.prompt, firing.terms.checklist)
    return errands.Order(
        TurnKind.SCHEDULED,
        firing.live,
        job.conversation,
        job.principal,
        None if is_own else place.head,
        MessageId(firing.stamp.mint("msg")),
        text=text,
        agent=job.agent or place.agent,
        persona=place.persona,
        effort=place.effort,
        reason="schedule",
        traits=job.traits,
        within=(yield from _own_session(job)) if is_own else None,
        answer=job.prompt if job.kind is JobKind.REMINDER else "",
    )


def _own_session(job: Job) -> Op[SessionId | None]:
    """Return the session that the job's runs share, or None if a new one is to be begun: there is
    none, it was suspended, or it has grown long."""
    session = job.own_session
    if session is None or job.session_runs >= RUNS_PER_SESSION:
        return None
    return session if (yield from one(str, _IS_OPEN, session)) == "open" else None


def _tell_missed(firing: _Firing, decided: JobDecision) -> Op[list[Recorded]]:
    """Tell people of occurrences that nobody has run."""
    job, stamp = firing.job, firing.stamp
    if not decided.missed or not is_worth_telling(decided, now=stamp.at):
        return []
    zone = known_zone(job.timing.zone)
    ends = (min(decided.missed), max(decided.missed))
    times = [f"{datetime.fromtimestamp(each / 1000, zone):%Y-%m-%d %H:%M}" for each in ends]
    return (yield from notice(firing.live, None, missed_words(job.name, decided, times), stamp))


def _move_on(firing: _Firing, job: Job, decided: JobDecision, *, is_running: bool) -> Op[None]:
    """Write when something is to be done next. An occurrence that waits is looked at again when the
    run before it is over."""
    at = firing.stamp.at
    last = max(decided.last_at, job.last_at)
    # An instant far in the future was written by a wrong clock.
    since = at if last > at + WRONG_CLOCK_MS else max(at, last)
    job = msgspec.structs.replace(job, last_at=last)
    if job.state is JobState.ACTIVE:
        job = job_rows.with_next(job, next_after(job, after=since))
    else:
        job = msgspec.structs.replace(job, next_at=None, fire_at=None)
    if not is_running and (yield from run_rows.waiting(job.id)):
        job = msgspec.structs.replace(job, fire_at=at)
    yield from job_rows.stand(job, at=at)
