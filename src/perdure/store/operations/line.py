"""The line in which a session's turns wait."""

from collections.abc import Sequence

from perdure.domain.events import Recorded, TurnQueued
from perdure.domain.ids import SessionId
from perdure.store.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, run

_QUEUE = """
    INSERT INTO turns (id, session_id, message_id, kind, state, reason, detail, attempts,
                       queued_seq, queued_at, alive_at, origin_id)
    VALUES ($1, $2, $3, $4, 'queued', '', '', 0, $5, $6, $6, $7)"""
NOT_READY = "UPDATE sessions SET ready_at = NULL WHERE id = $1"
_MAKE_READY = """
    UPDATE sessions SET ready_at = CASE WHEN hold_until > $1 THEN hold_until ELSE $1 END
    WHERE id = $2 AND ready_at IS NULL AND state = 'open'
      AND EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                  AND t.outcome IS NULL AND t.state = 'queued')
      AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.session_id = sessions.id
                      AND t.outcome IS NULL AND t.state <> 'queued')
    RETURNING id"""


def queue_rows(recorded: Sequence[Recorded], *, place: int | None = None) -> Op[None]:
    """The rows beside each `TurnQueued`. They stand at the end of the line, or at `place`."""
    for each in recorded:
        event = each.event
        if isinstance(event, TurnQueued):
            at = each.seq if place is None else place
            yield from run(
                _QUEUE,
                event.turn, each.session, event.message, event.kind, at, each.at, event.origin,
            )  # fmt: skip


def queue_turn(
    dialect: Dialect, session: SessionId, queued: TurnQueued, stamp: Stamp
) -> Op[list[Recorded]]:
    """Put a turn at the end of the line."""
    recorded = yield from journal.append(dialect, session, [queued], at=stamp.at)
    yield from queue_rows(recorded)
    yield from make_ready(session, stamp)
    return recorded


def make_ready(session: SessionId, stamp: Stamp) -> Op[bool]:
    """Let the next turn be claimed, if there is one and nothing is before it."""
    return (yield from row(_MAKE_READY, stamp.at, session)) is not None
