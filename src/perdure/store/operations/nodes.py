"""This process among those that share the store."""

import hashlib
from functools import cache
from typing import NamedTuple

from perdure.domain.ids import NodeId, SessionId
from perdure.domain.journal.events import Recorded
from perdure.domain.turn.recovery import BACK
from perdure.domain.waits import TOLERANCE_MS
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

LEASE_MS = 15_000

# Begins the life of a node, or goes on with it.
_JOIN = """
    INSERT INTO nodes (id, name, started_at, lease_until, beat_at)
    VALUES ($1, $2, $3, {now_ms} + $4, $3) ON CONFLICT (id) DO UPDATE
    SET lease_until = excluded.lease_until, beat_at = excluded.beat_at, left_at = NULL"""
# Finds how the last life ended. On a shared store others live beside us; under the same name it was
# the process before this one.
_BEFORE = "SELECT left_at FROM nodes WHERE id <> $1 AND name = $2 ORDER BY id DESC LIMIT 1"
# Ends the lives of all others, which are gone.
_RETIRE_OTHERS = "UPDATE nodes SET left_at = $1 WHERE id <> $2 AND left_at IS NULL"
# Renews a lease. All leases are equally long: whose lease ends later than ours has lived after our
# last heartbeat.
_BEAT = """
    UPDATE nodes SET lease_until = {now_ms} + $1, beat_at = $2
    WHERE id = $3 AND left_at IS NULL
      AND (lease_until > {now_ms}
           OR NOT EXISTS (SELECT 1 FROM nodes other
                          WHERE other.id <> $3 AND other.lease_until > nodes.lease_until))
    RETURNING id"""
# Ends leases in time that are longer than any lease.
_SHORTEN_LEASES = """
    UPDATE nodes SET lease_until = {now_ms} + $1
    WHERE left_at IS NULL AND lease_until > {now_ms} + $2"""
# Ends the life of a node, and keeps who asked for the next one.
_LEAVE = "UPDATE nodes SET left_at = $1, restart_session_id = $2 WHERE id = $3"
# Finds those who wait to hear that a restart is done.
_TO_GREET = """
    SELECT id, restart_session_id FROM nodes WHERE restart_session_id IS NOT NULL FOR UPDATE"""
# Keeps that they have heard of it.
_GREETED = "UPDATE nodes SET restart_session_id = NULL WHERE id = $1"
# Writes a little.
_TOUCH = "UPDATE nodes SET name = name WHERE id = $1"
# Writes as much as a message needs.
_LENGTHEN = "UPDATE nodes SET name = name || $1 WHERE id = $2"
# Takes back what `_LENGTHEN` wrote.
_SHORTEN = "UPDATE nodes SET name = substr(name, 1, length(name) - $1) WHERE id = $2"
# A message changes pages of about a dozen tables and indexes, and may bring some text of its own.
_MESSAGE_BYTES = 64 * 1024


class _Before(NamedTuple):
    left_at: int | None


class _ToGreet(NamedTuple):
    node: NodeId
    session: SessionId


def join(dialect: Dialect, node: NodeId, name: str, *, at: int) -> Op[bool]:
    """Begin a life, and tell whether the one before it ended without a word. On an exclusive store
    the others are gone: holding the file is the lease, without an end."""
    before = yield from one(_Before, _BEFORE, node, name)
    if dialect.is_exclusive:
        yield from run(_RETIRE_OTHERS, at, node)
    yield from run(_JOIN.format(now_ms=dialect.now_ms), node, name, at, LEASE_MS)
    return before is not None and before.left_at is None


def beat(dialect: Dialect, node: NodeId, *, at: int) -> Op[bool]:
    """Renew the lease. One that ran out is revived only if no other node has lived since our last
    heartbeat: others may have taken our turns, and nobody else does. So a node that is alone on its
    store goes on after a pause as if nothing had happened. Should another join at this very moment
    and take a turn, every write of ours to that turn is refused, as after any loss of a lease."""
    return (yield from exists(_BEAT.format(now_ms=dialect.now_ms), LEASE_MS, at, node))


def shorten_leases(dialect: Dialect) -> Op[None]:
    """Let no lease run for longer than a lease does, where the clock they are measured with was set
    back. Whoever lives renews its own in time; the turns of those who are gone are not held up."""
    sql = _SHORTEN_LEASES.format(now_ms=dialect.now_ms)
    yield from run(sql, LEASE_MS, LEASE_MS + TOLERANCE_MS)


def probe(node: NodeId, *, is_whole: bool) -> Op[None]:
    """Write to this node's own row what nobody will notice, to find out whether the store takes
    writes. `is_whole`: as much as a message needs, where room may be short."""
    if not is_whole:
        yield from run(_TOUCH, node)
        return
    # Both in one transaction: the pages are written, and nobody ever sees the long name.
    yield from run(_LENGTHEN, _filler(), node)
    yield from run(_SHORTEN, len(_filler()), node)


@cache
def _filler() -> str:
    """Return text that a database cannot pack into less space."""
    each = (hashlib.sha256(str(n).encode()).hexdigest() for n in range(_MESSAGE_BYTES // 64))
    return "".join(each)


def leave(node: NodeId, *, at: int, restart_session: SessionId | None) -> Op[None]:
    """Say that this end was planned, and who waits to hear of the next beginning."""
    yield from run(_LEAVE, at, restart_session, node)


def greet(stamp: Stamp) -> Op[list[Recorded]]:
    """Tell those who asked for a restart that it is done."""
    recorded: list[Recorded] = []
    for each in (yield from many(_ToGreet, _TO_GREET)):
        recorded += yield from notice(each.session, None, BACK, stamp)
        yield from run(_GREETED, each.node)
    return recorded
