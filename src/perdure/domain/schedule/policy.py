"""Decides what becomes of the occurrences of a job that are due: which run now, which wait, which
are skipped, and which were missed.

The decision is pure. The store takes it under the job's lock, and writes a row for each occurrence.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from zlib import crc32

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.sayings.saying import in_one_line, worded
from perdure.domain.schedule.jobs import (
    CATCH_UP_MAX_S,
    JITTER_MAX_S,
    LISTED_MAX,
    ON_TIME_MS,
    WAITING_MAX,
    Job,
    JobPolicy,
    MissedPolicy,
    Overlap,
)
from perdure.domain.schedule.recurrence import (
    Timing,
    due_between,
    known_zone,
    newest_due,
    next_due,
)

STILL_RUNNING: Final = "the run before it was not over"
TOO_MANY_WAIT: Final = "too many runs wait already"
QUIET: Final = "it fell into the quiet hours"
OVER_BUDGET: Final = "the job has used up its tokens for this day"
NOT_RUNNING: Final = "the gateway did not run then"
_QUIET_FORM: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")
# A job whose last occurrence lies further in the future was fired by a clock that was wrong.
WRONG_CLOCK_MS: Final = 86_400_000


class Skipped(msgspec.Struct, frozen=True):
    """Names an occurrence that does not run, and why."""

    due_at: int
    reason: str


class JobDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Says what becomes of the due occurrences. `starts` runs now, after the run before it was
    ended if `replaces`. `waits` run after it, in this order. `is_more` says that more were missed
    than are listed. `last_at` is the newest occurrence that was decided about."""

    starts: int | None = None
    waits: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    missed: tuple[int, ...] = ()
    replaces: bool = False
    is_more: bool = False
    last_at: int = 0


def decide_due(
    job: Job, *, now: int, is_running: bool, waiting: int = 0, tokens_today: int = 0
) -> JobDecision:
    """Decide about all occurrences of a job that are due. `waiting` counts those that wait
    already."""
    if job.next_at is None or job.next_at > now:
        return JobDecision(last_at=job.last_at)
    chosen, missed, is_more = _chosen(job, now)
    last_at = max([*chosen, *missed, job.last_at])
    runs, skipped = _allowed(job, chosen, tokens_today)
    decided = JobDecision(skipped=skipped, missed=missed, is_more=is_more, last_at=last_at)
    return _placed(job, runs, decided, is_running=is_running, waiting=waiting)


def _chosen(job: Job, now: int) -> tuple[list[int], tuple[int, ...], bool]:
    """Return which due occurrences are made up for, which were missed, and whether more were."""
    assert job.next_at is not None
    since = job.next_at - 1
    listed = due_between(job.timing, after=since, until=now, limit=LISTED_MAX + 1)
    is_more = len(listed) > LISTED_MAX
    listed = listed[:LISTED_MAX] or [job.next_at]
    window = job.policy.catch_up_s * 1000
    if job.policy.missed is MissedPolicy.SKIP:
        window = 0
    oldest = now - max(window, ON_TIME_MS)
    if is_more:
        newest = newest_due(job.timing, after=max(since, oldest - 1), until=now)
        listed += [newest] if newest is not None and newest not in listed else []
    timely = [due for due in listed if due >= oldest]
    kept = timely[-WAITING_MAX:] if job.policy.missed is MissedPolicy.ALL else timely[-1:]
    return kept, tuple(due for due in listed if due not in kept), is_more


def _allowed(
    job: Job, chosen: Sequence[int], tokens_today: int
) -> tuple[list[int], tuple[Skipped, ...]]:
    """Sort out occurrences in quiet hours, and all of them if the budget is used up."""
    budget = job.policy.tokens_daily
    is_over = bool(budget) and tokens_today >= budget
    runs, skipped = [], []
    for due in chosen:
        if job.policy.quiet and is_quiet(job.policy.quiet, job.timing.zone, due):
            skipped.append(Skipped(due, QUIET))
        elif is_over:
            skipped.append(Skipped(due, OVER_BUDGET))
        else:
            runs.append(due)
    return runs, tuple(skipped)


def _placed(
    job: Job, runs: list[int], decided: JobDecision, *, is_running: bool, waiting: int
) -> JobDecision:
    """Say which of these occurrences starts now, and what becomes of the others."""
    if not runs:
        return decided
    if not is_running and not waiting:
        return msgspec.structs.replace(decided, starts=runs[0], waits=tuple(runs[1:]))
    match job.policy.overlap:
        case Overlap.REPLACE:
            dropped = tuple(Skipped(due, STILL_RUNNING) for due in runs[:-1])
            skipped = (*decided.skipped, *dropped)
            return msgspec.structs.replace(
                decided, starts=runs[-1], skipped=skipped, replaces=is_running
            )
        case Overlap.QUEUE:
            room = max(WAITING_MAX - waiting, 0)
            full = tuple(Skipped(due, TOO_MANY_WAIT) for due in runs[room:])
            waits = tuple(runs[:room])
            return msgspec.structs.replace(decided, waits=waits, skipped=(*decided.skipped, *full))
        case Overlap.SKIP:
            late = tuple(Skipped(due, STILL_RUNNING) for due in runs)
            return msgspec.structs.replace(decided, skipped=(*decided.skipped, *late))


def next_after(job: Job, *, after: int) -> int | None:
    """Return the job's first occurrence later than `after`, unless the job has ended by then."""
    due = next_due(job.timing, after=after)
    ends_at = job.policy.ends_at
    return None if due is None or (ends_at and due > ends_at) else due


def fires_at(job: Job, due: int) -> int:
    """Return when an occurrence is to be run: somewhat later than it is due, if the job has jitter.
    How much later follows from the job and the instant, so every node and every start agrees."""
    jitter = job.policy.jitter_s
    return due + crc32(f"{job.id} {due}".encode()) % (jitter + 1) * 1000 if jitter else due


def is_quiet(quiet: str, zone: str, at: int) -> bool:
    """Tell whether an instant falls into quiet hours such as `22:00-07:00`."""
    then = datetime.fromtimestamp(at / 1000, known_zone(zone))
    begins, ends = quiet_minutes(quiet)
    minute = then.hour * 60 + then.minute
    return begins <= minute < ends if begins <= ends else minute >= begins or minute < ends


def quiet_minutes(quiet: str) -> tuple[int, int]:
    """Return the minutes of the day at which quiet hours begin and end."""
    found = _QUIET_FORM.fullmatch(quiet.strip())
    if found is None:
        raise Rejected(
            f"{quiet[:40]!r} are no quiet hours; write them like 22:00-07:00", code="invalid_policy"
        )
    hour, minute, last_hour, last_minute = map(int, found.groups())
    return hour * 60 + minute, last_hour * 60 + last_minute


def missed_words(name: str, decided: JobDecision, times: Sequence[str]) -> str:
    """Return what people are told of missed occurrences. `times` are the first and the last of
    them."""
    count = len(decided.missed)
    if decided.is_more:
        what = worded("more than {count} runs", count=count)
    else:
        what = worded("one run") if count == 1 else worded("{count} runs", count=count)
    when = worded("{first} to {last}", first=times[0], last=times[-1])
    missed = worded(
        "The job {name!r} has missed {what} ({when}), because the gateway did not run then.",
        name=name,
        what=what,
        when=times[0] if times[0] == times[-1] else when,
    )
    made_up = decided.starts is not None or decided.waits
    return in_one_line(missed, worded("The newest one is made up for now.") if made_up else "")


def is_worth_telling(decided: JobDecision, *, now: int) -> bool:
    """Tell whether people are told of the missed occurrences: not of a short delay."""
    return any(due < now - ON_TIME_MS for due in decided.missed)


def checked(policy: JobPolicy, timing: Timing) -> JobPolicy:
    """Return a policy if its numbers are usable. Raises `Rejected` if not."""
    bounds = {
        "catch_up_s": (policy.catch_up_s, CATCH_UP_MAX_S),
        "jitter_s": (policy.jitter_s, JITTER_MAX_S),
        "failures_max": (policy.failures_max, 1_000),
        "tokens_daily": (policy.tokens_daily, 10**12),
        "ends_at": (policy.ends_at, 10**14),
    }
    for name, (value, most) in bounds.items():
        if not 0 <= value <= most:
            raise Rejected(f"`{name}` is between 0 and {most:,}", code="invalid_policy")
    if policy.quiet:
        quiet_minutes(policy.quiet)
    known_zone(timing.zone)
    return policy
