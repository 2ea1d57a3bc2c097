"""Writes down what hooks must hear of, and who is telling them.

A row is written in the transaction of the fact that it is about, by one statement that writes
nothing while no node has a hook for it. If the process dies before the row is deleted, the hooks
are told again.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.delivery import WITHDRAWN, DeliveryStep, PartState
from perdure.domain.hooks.occasions import HookCall, Occasion
from perdure.domain.ids import NodeId, PartId, SessionId, TurnId
from perdure.domain.kinds import ERRANDS
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, listed, many, one, run, sql_list

# How long a row is kept that no node takes, such as one for a hook that is gone.
_KEPT_MS: Final = 86_400_000
_HEARD_OF: Final = (DeliveryStep.POST, DeliveryStep.EDIT, DeliveryStep.UPLOAD)
_FINAL: Final = (PartState.SENT, PartState.FAILED, PartState.UNKNOWN, PartState.EXPIRED)

# Writes what a turn's hooks are to hear of. Errands are not told of: no person knows them.
_SETTLED: Final = f"""
    INSERT INTO occasions (event, subject_id, outcome, session_id, turn_id, adapter, reason, at)
    SELECT h.event, t.id, t.outcome, t.session_id, t.id, '', t.reason, t.settled_at
    FROM hooked h JOIN turns t ON t.id = $1
    WHERE h.event = '{Occasion.TURN_SETTLED}' AND t.kind NOT IN {sql_list(ERRANDS)}
    ON CONFLICT DO NOTHING"""
# Writes what hooks are to hear of a part that has come to an end.
_DELIVERED: Final = f"""
    INSERT INTO occasions (event, subject_id, outcome, session_id, turn_id, adapter, reason, at)
    SELECT h.event, o.id, o.state, o.session_id, o.turn_id, o.adapter, o.error, o.changed_at
    FROM hooked h JOIN outbox o ON o.id = $1
    WHERE h.event = '{Occasion.DELIVERY}' AND o.step IN {sql_list(_HEARD_OF)}
      AND o.state IN {sql_list(_FINAL)} AND o.error <> $2
    ON CONFLICT DO NOTHING"""
# Reads for which occasions rows are written.
_HOOKED: Final = "SELECT event FROM hooked"
# Lets rows be written for an occasion.
_HOOK: Final = "INSERT INTO hooked (event) VALUES ($1) ON CONFLICT DO NOTHING"
# Lets no more rows be written for an occasion.
_UNHOOK: Final = "DELETE FROM hooked WHERE event = $1"
# Deletes rows that nobody has taken for long.
_FORGET: Final = "DELETE FROM occasions WHERE at < $1 AND node_id IS NULL"
# Finds the oldest rows that no other living node is telling.
_DUE: Final = f"""
    SELECT o.event, o.subject_id, o.outcome, o.session_id, o.turn_id, o.adapter, o.reason, o.at,
           {ADDRESS}
    FROM occasions o JOIN sessions s ON s.id = o.session_id
    JOIN conversations c ON c.id = s.conversation_id
    WHERE (o.node_id IS NULL OR o.node_id = $1 OR NOT EXISTS (
               SELECT 1 FROM nodes n WHERE n.id = o.node_id AND n.left_at IS NULL
                  AND n.lease_until > {{now_ms}}))
      AND o.event IN """
_IN_ORDER: Final = " ORDER BY o.at, o.subject_id LIMIT "
_SKIPPING: Final = " FOR UPDATE OF o SKIP LOCKED"
# Marks a row as being told by a node.
_TAKE: Final = """
    UPDATE occasions SET node_id = $1 WHERE event = $2 AND subject_id = $3 AND outcome = $4"""
# Deletes a row.
_HEARD: Final = "DELETE FROM occasions WHERE event = $1 AND subject_id = $2 AND outcome = $3"
# Names the conversation of a session, and whether the session is an errand's.
_NAMED: Final = f"""
    SELECT s.kind, {ADDRESS} FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    WHERE s.id = $1"""


class _Due(NamedTuple):
    """Holds an occasion, and the conversation that it is about."""

    event: str
    subject: str
    outcome: str
    session: SessionId
    turn: TurnId | None
    adapter: str
    reason: str
    at: int
    platform: str
    account: str
    place: str
    thread: str
    person: str


class _Named(NamedTuple):
    kind: str
    platform: str
    account: str
    place: str
    thread: str
    person: str


def settled(turn: TurnId) -> Op[None]:
    """Write down that hooks are to hear of a turn's end. Call it after the turn's row says so."""
    yield from run(_SETTLED, turn)


def delivered(part: PartId) -> Op[None]:
    """Write down that hooks are to hear of a part, if it has come to an end."""
    yield from run(_DELIVERED, part, WITHDRAWN)


def is_anybody_listening() -> Op[bool]:
    """Tell whether rows are written for any occasion."""
    return (yield from exists(_HOOKED))


def listen(dialect: Dialect, to: Collection[Occasion], stamp: Stamp) -> Op[None]:
    """Let rows be written for these occasions. Where the store has one owner, no rows are written
    for others any more; another node may have hooks for them."""
    known = set((yield from many(str, _HOOKED)))
    for event in sorted(set(to) - known):
        yield from run(_HOOK, event)
    if dialect.is_exclusive:
        for stale in sorted(known - set(to)):
            yield from run(_UNHOOK, stale)
    if known:
        yield from run(_FORGET, stamp.at - _KEPT_MS)


def take(
    dialect: Dialect, of: Sequence[Occasion], node: NodeId, *, limit: int
) -> Op[list[HookCall]]:
    """Take the oldest occasions of these kinds for a node. It has ended what it took before, so
    what is still marked with its name was taken by a call whose answer was lost."""
    sql = _DUE.format(now_ms=dialect.now_ms) + listed(2, len(of))
    due = yield from many(_Due, f"{sql}{_IN_ORDER}${2 + len(of)}{_SKIPPING}", node, *of, limit)
    for each in due:
        yield from run(_TAKE, node, each.event, each.subject, each.outcome)
    return [_call(each, node) for each in due]


def _call(due: _Due, node: NodeId) -> HookCall:
    is_part = due.event == Occasion.DELIVERY
    address = address_of(due.platform, due.account, due.place, due.thread, due.person)
    return HookCall(
        event=Occasion(due.event),
        at=due.at,
        node=node,
        conversation=address.name,
        session=due.session,
        turn=due.turn or "",
        outcome=due.outcome,
        reason=due.reason,
        part=PartId(due.subject) if is_part else "",
        adapter=due.adapter,
    )


def heard(call: HookCall) -> Op[None]:
    """Delete an occasion of which the hooks have heard."""
    yield from run(_HEARD, call.event, call.part or call.turn, call.outcome)


def named(call: HookCall) -> Op[HookCall | None]:
    """Return a call with the name of its conversation, or None for an errand's session."""
    found = yield from one(_Named, _NAMED, call.session)
    if found is None or found.kind:
        return None
    return msgspec.structs.replace(call, conversation=address_of(*found[1:]).name)
