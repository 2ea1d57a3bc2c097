"""Finds parts whose fate is unknown: left as `attempting` by a dead process, or sent without an
answer where the platform could not say yet whether they arrived.

They stay `attempting`, so nothing behind them in their line overtakes them, and they have no owner.
After a crash any process may ask the platform next.
"""

from perdure.domain.delivery import PartState
from perdure.domain.errors import Conflict
from perdure.domain.ids import NodeId, PartId
from perdure.domain.waits import TOLERANCE_MS
from perdure.ports.delivery.outbox import Part, Rivals
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations.delivery.part_rows import PART, PartRow, part_of, part_progress
from perdure.store.statement import Op, exists, many, run

# Reads the parts of an adapter whose owner is gone, and those in doubt whose time has come. The
# node that asks counts as alive, even if its lease has run out.
_STRANDED = (
    PART
    + """
    WHERE o.adapter = $1 AND o.state = 'attempting'
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.node_id AND n.left_at IS NULL
                      AND (n.lease_until > {now_ms} OR n.id = $2))
      AND (o.node_id IS NOT NULL OR o.due_at <= $3 OR o.changed_at > $4)
    ORDER BY o.changed_at LIMIT 1000"""
)
# Leaves a part in doubt. `changed_at` stays unchanged: it is when the part was sent.
_DOUBT = "UPDATE outbox SET node_id = NULL, due_at = $1, error = $2 WHERE id = $3"
# Reads the receipts that other parts of a place got since then.
_RECEIPTS = """
    SELECT o.receipt FROM outbox o JOIN conversations c ON c.id = o.conversation_id
    WHERE o.attempts > 0 AND o.changed_at >= $1 AND o.receipt <> '' AND o.id <> $2
      AND c.adapter = $3 AND c.account = $4 AND c.place = $5
    LIMIT 2000"""
# Finds another part with the same text that is being sent to the same place right now.
_TWIN = """
    SELECT 1 FROM outbox o JOIN conversations c ON c.id = o.conversation_id
    WHERE o.adapter = $1 AND o.state = 'attempting' AND o.node_id IS NOT NULL AND o.id <> $2
      AND o.text = $3 AND c.account = $4 AND c.place = $5 LIMIT 1"""
# How far the clocks of a platform and ours may differ.
_SKEW_MS = 600_000


def stranded(dialect: Dialect, adapter: str, node: NodeId, *, at: int) -> Op[list[Part]]:
    """Return the parts of unknown fate that this node may ask about now."""
    found = yield from many(
        PartRow, _STRANDED.format(now_ms=dialect.now_ms), adapter, node, at, at + TOLERANCE_MS
    )
    return [part_of(each) for each in found]


def doubt(part: PartId, *, error: str, due_at: int, attempt: int) -> Op[None]:
    """Leave a part in doubt until `due_at`. Raises `Conflict` if its fate is settled already."""
    now = yield from part_progress(part)
    state, attempts = (now.state, now.attempts) if now else (None, None)
    if (state, attempts) != (PartState.ATTEMPTING, attempt):
        raise Conflict(f"part {part} is {state} (try {attempts}) and its fate is settled")
    yield from run(_DOUBT, due_at, error, part)


def rivals(part: Part) -> Op[Rivals]:
    """Return what is known of other parts in the same place: messages found on the platform that
    belong to them are not this part's."""
    where = part.address
    since = part.changed_at - _SKEW_MS
    receipts = yield from many(
        str, _RECEIPTS, since, part.id, where.adapter, where.account, where.place
    )
    has_twin = yield from exists(
        _TWIN, where.adapter, part.id, part.text, where.account, where.place
    )
    return Rivals(receipts=frozenset(receipts), has_twin=has_twin)
