"""This process among those that share the store."""

from perdure.domain.events import Recorded
from perdure.domain.ids import NodeId, SessionId
from perdure.domain.recovery import BACK
from perdure.store.dialect import Dialect
from perdure.store.operations.notices import notice
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, row, rows, run

LEASE_MS = 15_000

_JOIN = """
    INSERT INTO nodes (id, name, started_at, lease_until, beat_at)
    VALUES ($1, $2, $3, {now_ms} + $4, $3) ON CONFLICT (id) DO UPDATE
    SET lease_until = excluded.lease_until, beat_at = excluded.beat_at, left_at = NULL"""
_RETIRE_OTHERS = "UPDATE nodes SET left_at = $1 WHERE id <> $2 AND left_at IS NULL"
_BEAT = """
    UPDATE nodes SET lease_until = {now_ms} + $1, beat_at = $2
    WHERE id = $3 AND left_at IS NULL AND lease_until > {now_ms} RETURNING id"""
_LEAVE = "UPDATE nodes SET left_at = $1, restart_session_id = $2 WHERE id = $3"
_TO_GREET = """
    SELECT id, restart_session_id FROM nodes WHERE restart_session_id IS NOT NULL FOR UPDATE"""
_GREETED = "UPDATE nodes SET restart_session_id = NULL WHERE id = $1"


def join(dialect: Dialect, node: NodeId, name: str, *, at: int) -> Op[None]:
    """On an exclusive store the others are gone: holding the file is the lease, without an end."""
    if dialect.is_exclusive:
        yield from run(_RETIRE_OTHERS, at, node)
    yield from run(_JOIN.format(now_ms=dialect.now_ms), node, name, at, LEASE_MS)


def beat(dialect: Dialect, node: NodeId, *, at: int) -> Op[bool]:
    """Renew the lease. One that ran out is not revived: others may have taken our turns."""
    renewed = yield from row(_BEAT.format(now_ms=dialect.now_ms), LEASE_MS, at, node)
    return renewed is not None


def leave(node: NodeId, *, at: int, restart_session: SessionId | None) -> Op[None]:
    """Say that this end was planned, and who waits to hear of the next beginning."""
    yield from run(_LEAVE, at, restart_session, node)


def greet(dialect: Dialect, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell those who asked for a restart that it is done."""
    recorded: list[Recorded] = []
    for node, session in (yield from rows(_TO_GREET)):
        recorded += yield from notice(dialect, session, None, BACK, stamp)
        yield from run(_GREETED, node)
    return recorded
