"""Runs the instructions for the start, as a run of a job in the operator's home conversation.

One transaction looks whether they may run, and starts the run. So whoever starts, and whatever is
lost on the way, a start has one run at most: the next look finds its row. Two nodes that start at
the same time take turns, because both lock the conversation first.
"""

from typing import Final

import msgspec

from perdure.domain.ids import ConversationId
from perdure.domain.kinds import TurnKind
from perdure.domain.schedule.boot import BOOT, BOOT_AGAIN_MS, BOOT_FILE, BootState
from perdure.domain.schedule.jobs import Job, JobKind, JobPolicy, JobState, ScheduleTerms
from perdure.domain.schedule.recurrence import Once, Timing
from perdure.domain.turn.recovery import Policy, Resume
from perdure.domain.turn.turn import State
from perdure.ports.schedule.schedule import Booted
from perdure.store.operations.delivery import operators
from perdure.store.operations.delivery.operators import FirstHome
from perdure.store.operations.jobs import job_rows, run_rows
from perdure.store.operations.schedule import firing
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import errands
from perdure.store.statement import Op, exists

# Finds an interrupted turn of a conversation that goes on by itself now, or will soon.
_RESUMED: Final = f"""
    SELECT 1 FROM conversations c JOIN turns t ON t.session_id = c.session_id
    WHERE c.id = $1 AND t.outcome IS NULL AND t.attempts > 0
      AND (t.state = '{State.QUEUED}' OR (t.state = '{State.RUNNING}' AND t.attempts > 1)
           OR (t.state = '{State.INTERRUPTED}'
               AND (t.kind <> '{TurnKind.MESSAGE}' OR t.alive_at >= $2)))
    LIMIT 1"""
# Later than every instant.
_NEVER: Final = 2**62


def begin(text: str, terms: ScheduleTerms, policy: Policy, stamp: Stamp) -> Op[Booted]:
    """Start a run of these instructions, unless it is not the time for it. Raises `Conflict` if the
    platform of the home conversation is not configured any more."""
    home = yield from operators.first_home()
    if home is None:
        return Booted(state=BootState.NO_HOME)
    state = yield from _state(home.conversation, policy, stamp)
    if state is not BootState.STARTED:
        return Booted(state=state)
    _, opened = yield from errands.live_session(home.conversation, stamp, by=home.principal)
    job = yield from job_rows.lock(BOOT)
    # Another node may have started a run before this one held the locks.
    state = yield from _state(home.conversation, policy, stamp)
    if state is not BootState.STARTED:
        return Booted(state=state, recorded=tuple(opened))
    yield from _order(job, _job(text, home, stamp), stamp)
    fired = yield from firing.run_now(BOOT, terms, stamp, principal=None)
    return Booted(state=BootState.STARTED, turn=fired.turn, recorded=(*opened, *fired.recorded))


def _state(home: ConversationId, policy: Policy, stamp: Stamp) -> Op[BootState]:
    """Return what the rows say about a run that would start now."""
    if (yield from run_rows.at_work(BOOT)) is not None:
        return BootState.UNDER_WAY
    if (yield from run_rows.has_run_near(BOOT, at=stamp.at, within_ms=BOOT_AGAIN_MS)):
        return BootState.TOO_SOON
    oldest = stamp.at - policy.freshness_ms if policy.freshness_ms else 0
    goes_on_since = oldest if policy.resume is Resume.CONTINUE else _NEVER
    is_resumed = yield from exists(_RESUMED, home, goes_on_since)
    return BootState.WAITS if is_resumed else BootState.STARTED


def _job(text: str, home: FirstHome, stamp: Stamp) -> Job:
    """Return the job of a start. It is not due by itself, and each of its runs begins a session, so
    none knows of an earlier one."""
    return Job(
        id=BOOT,
        principal=home.principal,
        conversation=home.conversation,
        name=BOOT_FILE,
        kind=JobKind.PROMPT,
        prompt=text,
        agent="",
        timing=Timing(Once(stamp.at), "UTC", stamp.at),
        policy=JobPolicy(),
        state=JobState.DONE,
        last_at=stamp.at,
    )


def _order(known: Job | None, job: Job, stamp: Stamp) -> Op[None]:
    """Write what the file says now."""
    yield from run_rows.forget_old(BOOT, at=stamp.at)
    if known is None:
        yield from job_rows.put(job, at=stamp.at)
    else:
        yield from job_rows.move(job, at=stamp.at)
        job = msgspec.structs.replace(job, failures=known.failures)
    yield from job_rows.stand(job, at=stamp.at)
