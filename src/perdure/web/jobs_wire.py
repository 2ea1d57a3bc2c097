"""Declares the bodies about jobs. Their docstrings appear in the OpenAPI document."""

from typing import Literal

import msgspec

from perdure.domain.schedule.jobs import RunView

OverlapChoice = Literal["skip", "queue", "replace"]
MissedChoice = Literal["skip", "latest", "all"]
SessionChoice = Literal["own", "conversation"]


class _Wish(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Holds what may be said about a job when it is ordered and later."""

    name: str | None = None
    cron: str | None = None
    every_s: float | None = None
    at: str | None = None
    when: str | None = None
    timezone: str | None = None
    agent: str | None = None
    overlap: OverlapChoice | None = None
    missed: MissedChoice | None = None
    session: SessionChoice | None = None
    catch_up_s: int | None = None
    jitter_s: int | None = None
    failures_max: int | None = None
    ends_at: str | None = None
    quiet: str | None = None
    tokens_daily: int | None = None
    may_schedule: bool | None = None


class JobIn(_Wish, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Orders a job: what is to be asked in which conversation, and when. One of `cron`, `every_s`,
    `at` (ISO 8601) and `when` (plain words) says when. A `reminder` says its prompt as it is; a
    `heartbeat` goes through the checklist HEARTBEAT.md of the home."""

    conversation: str
    prompt: str = ""
    kind: Literal["prompt", "reminder", "heartbeat"] = "prompt"


class JobPatch(_Wish, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Changes a job. What is left out stays as it is. `state` pauses it or lets it go on."""

    prompt: str | None = None
    state: Literal["active", "paused"] | None = None


class JobOut(msgspec.Struct, kw_only=True):
    """Describes a job. Times are in milliseconds. `schedule` is the cron expression, the interval
    or the instant; `next_runs` are the next instants at which it runs. `why` says why it is
    paused."""

    id: str
    name: str
    person: str
    conversation: str
    prompt: str
    kind: str
    schedule: str
    timezone: str
    next_at: int | None
    next_runs: list[int]
    state: str
    agent: str
    overlap: str
    missed: str
    session: str
    catch_up_s: int
    jitter_s: int
    failures_max: int
    ends_at: int | None
    quiet: str
    tokens_daily: int
    may_schedule: bool
    why: str
    failures: int
    last_at: int | None
    last_state: str | None
    last_outcome: str | None
    created_at: int


class JobsOut(msgspec.Struct):
    jobs: list[JobOut]
    next: str | None = None


class RunsOut(msgspec.Struct):
    runs: list[RunView]
    next: str | None = None


class JobStarted(msgspec.Struct):
    """Says which turn a job has started; None if there was nothing to do."""

    job: str
    turn: str | None
