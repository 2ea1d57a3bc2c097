"""Reads and writes the rows of runs: one for each occurrence of a job."""

from typing import Final, NamedTuple

from perdure.domain.ids import JobId, TurnId
from perdure.domain.schedule.jobs import RunState
from perdure.store.statement import Op, exists, many, one, run, sql_list

_OVER: Final = sql_list((RunState.SETTLED, RunState.SKIPPED, RunState.MISSED))
# Adds an occurrence, unless it is known.
_ADD = """
    INSERT INTO runs (job_id, due_at, state, turn_id, outcome, reason, at)
    VALUES ($1, $2, $3, $4, NULL, $5, $6)
    ON CONFLICT (job_id, due_at) DO NOTHING RETURNING due_at"""
# Begins an occurrence that has waited.
_BEGIN = f"""
    UPDATE runs SET state = '{RunState.QUEUED}', turn_id = $1, at = $2
    WHERE job_id = $3 AND due_at = $4"""
# Gives up an occurrence that has waited.
_SKIP = (
    f"UPDATE runs SET state = '{RunState.SKIPPED}', reason = $1 WHERE job_id = $2 AND due_at = $3"
)
# Gives up all occurrences of a job that wait.
_SKIP_ALL = f"""
    UPDATE runs SET state = '{RunState.SKIPPED}', reason = $1
    WHERE job_id = $2 AND state = '{RunState.CLAIMED}'"""
# Finds the run of a job that is not over.
_AT_WORK = f"SELECT turn_id FROM runs WHERE job_id = $1 AND state = '{RunState.QUEUED}'"
# Finds a run of a job that was over between two instants or, if it is not over, has begun then.
_RAN_BETWEEN: Final = """
    SELECT 1 FROM runs WHERE job_id = $1 AND turn_id IS NOT NULL
      AND COALESCE(settled_at, at) > $2 AND COALESCE(settled_at, at) < $3 LIMIT 1"""
# Finds the occurrences of a job that wait.
_WAITING = (
    f"SELECT due_at FROM runs WHERE job_id = $1 AND state = '{RunState.CLAIMED}' ORDER BY due_at"
)
# Finds the run that a turn is.
_OF_TURN = "SELECT job_id, due_at FROM runs WHERE turn_id = $1"
# Ends a run.
_SETTLE = f"""
    UPDATE runs SET state = '{RunState.SETTLED}', outcome = $1, reason = $2, result_turn_id = $3,
                    is_silent = $4, tokens = $5, settled_at = $6
    WHERE job_id = $7 AND due_at = $8"""
# Counts what the runs of a job have used since an instant.
_TOKENS = """
    SELECT COALESCE(SUM(tokens), 0) FROM runs
    WHERE job_id = $1 AND due_at >= $2 AND settled_at >= $3"""
# Deletes the oldest runs of a job, all of them over.
_FORGET = f"""
    DELETE FROM runs WHERE job_id = $1 AND due_at < $2
      AND state IN {_OVER}"""
DAY_MS: Final = 86_400_000
# Runs are kept for so long.
KEPT_MS: Final = 90 * DAY_MS


class RunKey(NamedTuple):
    """Names an occurrence of a job."""

    job: JobId
    due_at: int


class RunEnding(NamedTuple):
    """Holds how a run has ended, and the turn that brings its result into the conversation."""

    outcome: str
    reason: str
    result: TurnId | None
    is_silent: bool
    tokens: int


def add(
    key: RunKey, state: RunState, *, at: int, turn: TurnId | None = None, why: str = ""
) -> Op[bool]:
    """Add an occurrence. Returns False if it was known, and nothing is to be done for it."""
    return (yield from exists(_ADD, key.job, key.due_at, state, turn, why, at))


def begin(key: RunKey, turn: TurnId, *, at: int) -> Op[None]:
    """Begin an occurrence that has waited."""
    yield from run(_BEGIN, turn, at, key.job, key.due_at)


def skip(key: RunKey, why: str) -> Op[None]:
    """Give up an occurrence that has waited."""
    yield from run(_SKIP, why, key.job, key.due_at)


def skip_waiting(job: JobId, why: str) -> Op[None]:
    """Give up all occurrences of a job that wait."""
    yield from run(_SKIP_ALL, why, job)


def at_work(job: JobId) -> Op[TurnId | None]:
    """Return the turn of the run that is not over, or None."""
    return (yield from one(TurnId, _AT_WORK, job))


def has_run_near(job: JobId, *, at: int, within_ms: int) -> Op[bool]:
    """Tell whether a job has run close to an instant, before it or, by a wrong clock, after it."""
    return (yield from exists(_RAN_BETWEEN, job, at - within_ms, at + within_ms))


def waiting(job: JobId) -> Op[list[int]]:
    """Return the occurrences of a job that wait, oldest first."""
    return (yield from many(int, _WAITING, job))


def of_turn(turn: TurnId) -> Op[RunKey | None]:
    """Return the occurrence that a turn is, or None if it is none."""
    return (yield from one(RunKey, _OF_TURN, turn))


def settle(key: RunKey, ending: RunEnding, *, at: int) -> Op[None]:
    """End a run."""
    yield from run(
        _SETTLE,
        ending.outcome, ending.reason, ending.result, int(ending.is_silent), ending.tokens, at,
        key.job, key.due_at,
    )  # fmt: skip


def tokens_today(job: JobId, *, at: int) -> Op[int]:
    """Return how many tokens the runs of a job have used on this day (UTC)."""
    day = at // DAY_MS * DAY_MS
    found = yield from one(int, _TOKENS, job, day - 2 * DAY_MS, day)
    return found or 0


def forget_old(job: JobId, *, at: int) -> Op[None]:
    """Delete the runs of a job that were over long ago."""
    yield from run(_FORGET, job, at - KEPT_MS)
