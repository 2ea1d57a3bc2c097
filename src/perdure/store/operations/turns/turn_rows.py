"""Writes the rows of turns. No other module of the store changes a turn's state.

Each change belongs to an event of the turn's journal, in the same transaction. The turn machine is
asked first whether the change is legal (`domain/turn.LEGAL`). The row must still be in the state
that the caller has seen: if another transaction changed it meanwhile, the operation has lost a race
and is run again.
"""

from typing import Final, NamedTuple

from perdure.domain.journal.events import (
    AttemptInterrupted,
    Recorded,
    TurnEvent,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited, WaitEnded, WorkDelegated
from perdure.domain.turn.turn import State, require
from perdure.store.operations import occasions, pushes
from perdure.store.statement import Op, RaceLost, SqlValue, exists, run

# Inserts a turn that waits in line. Without a sender it belongs to the session's principal.
_QUEUE: Final = f"""
    INSERT INTO turns (id, session_id, message_id, kind, state, reason, detail, attempts,
                       queued_seq, queued_at, alive_at, origin_id, via_id, principal_id, album,
                       not_before)
    SELECT $1, s.id, $2, $3, '{State.QUEUED}', '', '', 0, $4, $5, $5, $6, $7,
           COALESCE($8, s.principal_id), $9, $10
    FROM sessions s WHERE s.id = $11"""
# Inserts a turn that begins in the transaction that accepts its message.
_BEGIN: Final = """
    INSERT INTO turns (id, session_id, parent_id, message_id, kind, state, reason, detail, attempts,
                       node_id, queued_seq, queued_at, started_at, alive_at, attempt_at, via_id,
                       principal_id)
    VALUES ($1, $2, $3, $4, $5, $6, '', '', 1, $7, $8, $9, $9, $9, $9, $10, $11)"""
# Starts an attempt of a turn, or goes on with it.
_START: Final = """
    UPDATE turns SET state = $1, attempts = $2, parent_id = $3, node_id = $4,
                     started_at = COALESCE(started_at, $5), attempt_at = $5, reason = ''
    WHERE id = $6 AND state = $7 RETURNING id"""
# Ends an attempt whose turn is not over. Keeps the longest time that any attempt has lived.
_INTERRUPT: Final = """
    UPDATE turns SET state = $1, reason = $2, alive_at = $3, node_id = NULL,
                     asked_at = NULL, told_at = NULL,
                     longest_ms = CASE WHEN $4 - attempt_at > longest_ms THEN $4 - attempt_at
                                       ELSE longest_ms END
    WHERE id = $5 AND state = $6 RETURNING id"""
# Lets a turn wait for an answer. It has no owner until it is answered.
_WAIT: Final = """
    UPDATE turns SET state = $1, node_id = NULL WHERE id = $2 AND state = $3 RETURNING id"""
# Puts an interrupted or answered turn back to its place in line.
_REQUEUE: Final = "UPDATE turns SET state = $1 WHERE id = $2 AND state = $3 RETURNING id"
# Ends a turn. If the caller does not know what the request was made from (`prefix`), the stored
# value stays.
_SETTLE: Final = """
    UPDATE turns SET state = $1, outcome = $2, reason = $3, detail = $4,
                     context_tokens = $5, prefix = COALESCE(NULLIF(CAST($6 AS TEXT), ''), prefix),
                     settled_at = $7, node_id = NULL
    WHERE id = $8 AND state = $9 RETURNING id"""


class Album(NamedTuple):
    """Names the album that a turn's message is part of, and until when more of it may arrive."""

    name: str
    not_before: int


ALONE = Album("", 0)


def queue(recorded: Recorded, queued: TurnQueued, *, place: int, album: Album) -> Op[None]:
    """Write the row of a turn that waits; `place` is its position in the session's line."""
    yield from run(
        _QUEUE,
        queued.turn, queued.message, queued.kind, place, recorded.at, queued.origin, queued.via,
        queued.by, album.name, album.not_before, recorded.session,
    )  # fmt: skip


def begin(recorded: Recorded, queued: TurnQueued, started: TurnStarted) -> Op[None]:
    """Write the row of a turn that begins with its message; `recorded` is the entry of
    `TurnQueued`."""
    state = require(State.QUEUED, TurnStarted, turn=queued.turn)
    assert queued.by is not None, "whoever sends a message is known"
    yield from run(
        _BEGIN,
        queued.turn, recorded.session, started.parent, queued.message, queued.kind, state,
        started.node, recorded.seq, recorded.at, queued.via, queued.by,
    )  # fmt: skip


def start(started: TurnStarted, *, at: int) -> Op[None]:
    """Write that the next attempt of a queued turn has begun."""
    yield from _change(
        _START, State.QUEUED, started, started.attempt, started.parent, started.node, at
    )


def interrupt(interrupted: AttemptInterrupted, state: State, *, ended_at: int) -> Op[None]:
    """Write that the present attempt ended at `ended_at`, but the turn is not over."""
    reason, alive_at = interrupted.reason, interrupted.alive_at
    yield from _change(_INTERRUPT, state, interrupted, reason, alive_at, ended_at)


def wait(awaited: AnswerAwaited | WorkDelegated) -> Op[None]:
    """Write that a running turn waits for an answer, or for an errand."""
    yield from _change(_WAIT, State.RUNNING, awaited)


def requeue(event: TurnRequeued | WaitEnded, state: State) -> Op[None]:
    """Write that the turn waits for its next attempt."""
    yield from _change(_REQUEUE, state, event)


def settle(
    settled: TurnSettled, state: State, *, context_tokens: int, prefix: str, at: int
) -> Op[None]:
    """Write that the turn is over."""
    ending = (settled.outcome, settled.reason, settled.detail)
    yield from _change(_SETTLE, state, settled, *ending, context_tokens, prefix, at)
    yield from occasions.settled(settled.turn)
    yield from pushes.settled(settled.turn)


def _change(sql: str, state: State, event: TurnEvent, *values: SqlValue) -> Op[None]:
    """Move a turn's row from `state` to the state that the machine names for this event. Raises
    `RaceLost` if the row is not in `state` any more."""
    after = require(state, type(event), turn=event.turn)
    if not (yield from exists(sql, after, *values, event.turn, state)):
        raise RaceLost
