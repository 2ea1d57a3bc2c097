"""Tells the operators' homes that a node ends, and that it is back.

Who was told when stands in the rows of the nodes, and is written in the transaction of the notice.
So each is told once, and a node that starts again and again does not tell of each time.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from perdure.domain.ids import MessageId, PartId, SessionId
from perdure.domain.journal.events import Recorded
from perdure.domain.kinds import ERRANDS
from perdure.domain.outcomes import NodeRequest
from perdure.domain.people.notices import (
    HomesTold,
    back_text,
    is_back_told,
    is_stopping_told,
    stopping_text,
)
from perdure.domain.turn.turn import State
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations.delivery import operators, part_rows
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run, sql_list

# Finds when homes were told last.
_TOLD: Final = """
    SELECT COALESCE(MAX(stopping_told_at), 0), COALESCE(MAX(back_told_at), 0) FROM nodes"""
# Finds the newest end that they were told of, if no other node has told them since that it is back.
_END_LAST: Final = """
    SELECT 1 FROM nodes e
    WHERE e.stopping_told_at = (SELECT MAX(stopping_told_at) FROM nodes)
      AND e.stopping_told_at <= $1
      AND NOT EXISTS (SELECT 1 FROM nodes b
                      WHERE b.id <> e.id AND b.back_told_at >= e.stopping_told_at)"""
# Records that this node has told them.
_TELLS_STOPPING: Final = "UPDATE nodes SET stopping_told_at = $1 WHERE id = $2"
_TELLS_BACK: Final = "UPDATE nodes SET back_told_at = $1 WHERE id = $2"
# Finds the life before this one, if it is over. Where others share the store, it has the same name.
_BEFORE: Final = """
    SELECT b.left_for FROM nodes n JOIN nodes b ON b.id <> n.id AND ({same} OR b.name = n.name)
    WHERE n.id = $1 AND (b.left_at IS NOT NULL OR b.lease_until <= {now_ms})
    ORDER BY b.id DESC LIMIT 1"""
# Counts the turns that were interrupted and go on.
_RESUMED: Final = f"""
    SELECT COUNT(*) FROM turns
    WHERE outcome IS NULL AND state = '{State.QUEUED}' AND attempts > 0
      AND kind NOT IN {sql_list(ERRANDS)}"""
# Finds the notices that a node ends which nobody can have seen yet.
_UNSEEN: Final = """
    SELECT id FROM outbox
    WHERE conversation_id = $1 AND state = 'pending' AND attempts = 0
      AND message_id LIKE 'msg%.stopping' FOR UPDATE"""
_STOPPING: Final = ".stopping"


class _Before(NamedTuple):
    left_for: str


class _Told(NamedTuple):
    stopping_at: int
    back_at: int


def end(asked: NodeRequest, stamp: Stamp, *, but: Collection[SessionId]) -> Op[list[Recorded]]:
    """Tell the homes that this node ends. The sessions `but` know it."""
    told = yield from _told(at=stamp.at)
    if not is_stopping_told(told, now=stamp.at):
        return []
    homes = yield from operators.homes()
    recorded: list[Recorded] = []
    for home in homes:
        if home.session not in but:
            message = MessageId(f"{stamp.mint('msg')}{_STOPPING}")
            recorded += yield from operators.post(home, message, stopping_text(asked), stamp)
    if homes:
        yield from run(_TELLS_STOPPING, stamp.at, stamp.node)
    return recorded


def are_back(dialect: Dialect, stamp: Stamp, *, but: Collection[SessionId]) -> Op[list[Recorded]]:
    """Tell the homes that the node is back, unless it never was there. The sessions `but` know it.
    What they were to hear before, that it ends, and have not heard, is withdrawn."""
    same = "TRUE" if dialect.is_exclusive else "FALSE"
    before = yield from one(_Before, _BEFORE.format(same=same, now_ms=dialect.now_ms), stamp.node)
    told = yield from _told(at=stamp.at)
    if before is None or not is_back_told(told, now=stamp.at):
        return []
    homes = yield from operators.homes()
    resumed = (yield from one(int, _RESUMED)) or 0 if homes else 0
    recorded: list[Recorded] = []
    for home in homes:
        for part in (yield from many(PartId, _UNSEEN, home.conversation)):
            yield from part_rows.withdraw(part, at=stamp.at)
        if home.session not in but:
            text = back_text(NodeRequest(before.left_for), resumed=resumed)
            recorded += yield from operators.post(home, MessageId(stamp.mint("msg")), text, stamp)
    if homes:
        yield from run(_TELLS_BACK, stamp.at, stamp.node)
    return recorded


def _told(*, at: int) -> Op[HomesTold]:
    found = yield from one(_Told, _TOLD)
    assert found is not None, "a maximum is always one row"
    is_end_last = yield from exists(_END_LAST, at)
    return HomesTold(stopping_at=found.stopping_at, back_at=found.back_at, is_end_last=is_end_last)
