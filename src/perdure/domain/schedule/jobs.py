"""Defines jobs and their runs: what people order, and what is known of each occurrence."""

from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.ids import ConversationId, JobId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import NO_TRAITS, SenderTraits
from perdure.domain.schedule.recurrence import Cron, Every, Once, Recurrence, Timing

NAME_MAX: Final = 80
PROMPT_MAX: Final = 20_000
# How long after its instant an occurrence still counts as on time.
ON_TIME_MS: Final = 60_000
CATCH_UP_MAX_S: Final = 86_400
JITTER_MAX_S: Final = 3_600
# The longest that a catch-up looks back, counts missed occurrences, and runs at once.
LISTED_MAX: Final = 100
# How many occurrences may wait behind a run that is not over.
WAITING_MAX: Final = 10
# A job's own session begins anew after this many runs, so that its history stays short.
RUNS_PER_SESSION: Final = 20


class JobState(StrEnum):
    """Says whether a job runs. DONE: it has no occurrences left. REMOVED: its person does not want
    it any more."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    REMOVED = "removed"


class JobKind(StrEnum):
    """Says what a job does: ask an agent, say a text as it is, or go through a checklist."""

    PROMPT = "prompt"
    REMINDER = "reminder"
    HEARTBEAT = "heartbeat"


class Overlap(StrEnum):
    """Says what becomes of an occurrence while the run before it is not over."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class MissedPolicy(StrEnum):
    """Says which occurrences are made up for that nobody has run in time."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class JobSession(StrEnum):
    """Says what a run knows: the job's earlier runs, or the conversation up to then."""

    OWN = "own"
    CONVERSATION = "conversation"


class RunState(StrEnum):
    """Says where an occurrence stands. CLAIMED: it waits until the run before it is over. QUEUED:
    its turn waits or is at work."""

    CLAIMED = "claimed"
    QUEUED = "queued"
    SKIPPED = "skipped"
    MISSED = "missed"
    SETTLED = "settled"


class JobPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how a job is run. `catch_up_s` is how old a missed occurrence may be to be made up for.
    `quiet` are hours of the job's zone in which it does not run, such as `22:00-07:00`.
    `tokens_daily` is what its runs may use in a day (UTC). The job is paused after `failures_max`
    failed runs in a row; 0 means never, as for `tokens_daily` and `ends_at` (no end)."""

    overlap: Overlap = Overlap.SKIP
    missed: MissedPolicy = MissedPolicy.LATEST
    session: JobSession = JobSession.OWN
    catch_up_s: int = 3_600
    jitter_s: int = 0
    failures_max: int = 5
    ends_at: int = 0
    quiet: str = ""
    tokens_daily: int = 0
    may_schedule: bool = False


# A reminder is worth saying a day later too.
REMINDING: Final = JobPolicy(catch_up_s=CATCH_UP_MAX_S)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a job as it is stored. `next_at` is its next occurrence, and `fire_at` when something
    is to be done for it; both are None unless it is active. `last_at` is the last occurrence that
    was dealt with. `own_session` has told `session_runs` runs."""

    id: JobId
    principal: PrincipalId
    conversation: ConversationId
    name: str
    kind: JobKind
    prompt: str
    agent: str
    timing: Timing
    policy: JobPolicy
    state: JobState
    traits: SenderTraits = NO_TRAITS
    why: str = ""
    failures: int = 0
    next_at: int | None = None
    fire_at: int | None = None
    last_at: int = 0
    own_session: SessionId | None = None
    session_runs: int = 0


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a person orders. `zone` is empty for the person's own. Without an `id` it gets a
    new one."""

    prompt: str
    rule: Recurrence
    name: str = ""
    kind: JobKind = JobKind.PROMPT
    agent: str = ""
    zone: str = ""
    policy: JobPolicy = JobPolicy()
    id: JobId | None = None


class JobChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds what a person changes in a job; None leaves it as it is."""

    name: str | None = None
    prompt: str | None = None
    rule: Recurrence | None = None
    zone: str | None = None
    agent: str | None = None
    policy: JobPolicy | None = None
    is_paused: bool | None = None


class ScheduleTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what this node knows about jobs. `zone` is where times are read for people who have
    chosen none. `jobs_max` is how many one person may have."""

    agents: frozenset[str] = frozenset()
    adapters: frozenset[str] = frozenset()
    checklist: str = ""
    zone: str = "UTC"
    jobs_max: int = 100


NO_TERMS: Final = ScheduleTerms()


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a job to people. Times are in milliseconds."""

    id: JobId
    name: str
    person: str
    conversation: str
    prompt: str
    kind: JobKind
    rule: Recurrence
    timezone: str
    next_at: int | None
    state: JobState
    policy: JobPolicy
    agent: str = ""
    why: str = ""
    failures: int = 0
    last_at: int = 0
    last_state: str = ""
    last_outcome: str = ""
    created_at: int = 0
    anchor: int = 0


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes an occurrence to people. `outcome` is that of its turn, and `delivery` says what
    became of its result: `silent`, `here` (it stands in the conversation), `pending`, `sent`,
    `failed`, or nothing if there is none."""

    job: JobId
    due_at: int
    state: RunState
    turn: TurnId | None
    outcome: str | None
    reason: str = ""
    delivery: str = ""


def schedule_words(rule: Recurrence) -> str:
    """Return a rule as it is listed: the cron expression, the interval, or the instant."""
    from datetime import UTC, datetime  # noqa: PLC0415 - lists are rarely read

    match rule:
        case Cron(expression=expression):
            return expression
        case Every(seconds=seconds):
            return f"every {seconds} s"
        case Once(at=at):
            return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")
