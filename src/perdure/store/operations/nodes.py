"""Records the life of this process among the nodes that share the store.

A node's row holds its lease. When the process dies, nothing is written; other nodes (or the next
start) see that the lease has run out and take over its turns.
"""

import hashlib
from functools import cache
from typing import NamedTuple

from perdure.domain.ids import NodeId, SessionId
from perdure.domain.journal.events import Recorded
from perdure.domain.outcomes import NodeRequest
from perdure.domain.turn.recovery import BACK
from perdure.domain.waits import TOLERANCE_MS
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.people import homes, overhearing
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

# How long a node keeps its turns without a heartbeat, and so how long its turns wait after a kill
# on a store with several nodes.
LEASE_MS = 15_000

# Starts the life of a node, or continues it.
_JOIN = """
    INSERT INTO nodes (id, name, started_at, lease_until, beat_at)
    VALUES ($1, $2, $3, {now_ms} + $4, $3) ON CONFLICT (id) DO UPDATE
    SET lease_until = excluded.lease_until, beat_at = excluded.beat_at, left_at = NULL"""
# Finds how the previous life ended. On a shared store other nodes live beside this one; the one
# with the same name was the process before this one.
_BEFORE = "SELECT left_at FROM nodes WHERE id <> $1 AND name = $2 ORDER BY id DESC LIMIT 1"
# Marks all other nodes as gone.
_RETIRE_OTHERS = "UPDATE nodes SET left_at = $1 WHERE id <> $2 AND left_at IS NULL"
# Renews a lease. All leases are equally long, so a node whose lease ends later than ours has lived
# after our last heartbeat.
_BEAT = """
    UPDATE nodes SET lease_until = {now_ms} + $1, beat_at = $2
    WHERE id = $3 AND left_at IS NULL
      AND (lease_until > {now_ms}
           OR NOT EXISTS (SELECT 1 FROM nodes other
                          WHERE other.id <> $3 AND other.lease_until > nodes.lease_until))
    RETURNING id"""
# Shortens leases that end later than any lease can.
_SHORTEN_LEASES = """
    UPDATE nodes SET lease_until = {now_ms} + $1
    WHERE left_at IS NULL AND lease_until > {now_ms} + $2"""
# Ends the life of a node, and records which session asked for the restart.
_LEAVE = "UPDATE nodes SET left_at = $1, restart_session_id = $2, left_for = $3 WHERE id = $4"
# Finds sessions that wait to hear that a restart is done.
_TO_GREET = """
    SELECT id, restart_session_id FROM nodes WHERE restart_session_id IS NOT NULL FOR UPDATE"""
# Records that they were told.
_GREETED = "UPDATE nodes SET restart_session_id = NULL WHERE id = $1"
# Writes very little.
_TOUCH = "UPDATE nodes SET name = name WHERE id = $1"
# Writes as much as a message needs.
_LENGTHEN = "UPDATE nodes SET name = name || $1 WHERE id = $2"
# Undoes what `_LENGTHEN` wrote.
_SHORTEN = "UPDATE nodes SET name = substr(name, 1, length(name) - $1) WHERE id = $2"
# What a probe writes. A message changes pages of about a dozen tables and indexes, and may bring
# some text of its own.
_MESSAGE_BYTES = 64 * 1024


class _Before(NamedTuple):
    left_at: int | None


class _ToGreet(NamedTuple):
    node: NodeId
    session: SessionId


def join(dialect: Dialect, node: NodeId, name: str, *, at: int) -> Op[bool]:
    """Start the life of a node. Returns whether the previous life of this name ended without
    `leave`, as after a crash. On an exclusive store all other nodes are marked as gone: who holds
    the file is the only one."""
    before = yield from one(_Before, _BEFORE, node, name)
    if dialect.is_exclusive:
        yield from run(_RETIRE_OTHERS, at, node)
    yield from overhearing.forget_old(at=at)
    yield from run(_JOIN.format(now_ms=dialect.now_ms), node, name, at, LEASE_MS)
    return before is not None and before.left_at is None


def beat(dialect: Dialect, node: NodeId, *, at: int) -> Op[bool]:
    """Renew this node's lease. Returns whether the node still has one.

    A lease that ran out is revived only if no other node has lived since our last heartbeat: only
    another node could have taken our turns. So a node that is alone on its store continues after a
    pause. If another node joins at this very moment and takes a turn, all our writes to that turn
    are refused by its epoch.
    """
    return (yield from exists(_BEAT.format(now_ms=dialect.now_ms), LEASE_MS, at, node))


def shorten_leases(dialect: Dialect) -> Op[None]:
    """Shorten leases that end too far in the future, because the clock that measures them was set
    back. Living nodes renew theirs in time; without this, the turns of dead nodes would wait for
    the old clock time."""
    sql = _SHORTEN_LEASES.format(now_ms=dialect.now_ms)
    yield from run(sql, LEASE_MS, LEASE_MS + TOLERANCE_MS)


def probe(node: NodeId, *, is_whole: bool) -> Op[None]:
    """Write something invisible to this node's own row, to learn whether the store takes writes.
    With `is_whole` it writes as much as a message needs."""
    if not is_whole:
        yield from run(_TOUCH, node)
        return
    # Both statements are in one transaction: the pages are written, but nobody ever sees the long
    # name.
    yield from run(_LENGTHEN, _filler(), node)
    yield from run(_SHORTEN, len(_filler()), node)


@cache
def _filler() -> str:
    """Return text that a database cannot compress."""
    each = (hashlib.sha256(str(n).encode()).hexdigest() for n in range(_MESSAGE_BYTES // 64))
    return "".join(each)


def leave(
    node: NodeId, *, at: int, restart_session: SessionId | None, asked: NodeRequest
) -> Op[None]:
    """Record that this life ended as planned, what was asked for, and which session asked for the
    restart, if one did."""
    yield from run(_LEAVE, at, restart_session, asked, node)


def greet(dialect: Dialect, stamp: Stamp, *, tells_homes: bool) -> Op[list[Recorded]]:
    """Tell the sessions that asked for a restart that it is done and, with `tells_homes`, the
    operators' homes. The notices and the marks are one transaction, so each is told once."""
    recorded: list[Recorded] = []
    greeted = yield from many(_ToGreet, _TO_GREET)
    for each in greeted:
        recorded += yield from notice(each.session, None, BACK, stamp)
        yield from run(_GREETED, each.node)
    if tells_homes:
        sessions = {each.session for each in greeted}
        recorded += yield from homes.are_back(dialect, stamp, but=sessions)
    return recorded
