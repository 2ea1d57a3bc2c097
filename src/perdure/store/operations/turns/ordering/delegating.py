"""Opens the errands to which agents delegate work, and stops those for which nobody waits any more.

An errand is opened in the transaction that lets its turn wait, and ends the wait in the transaction
that settles it (`returning.py`). A turn that ends while it waits closes its delegations. Its
errands are stopped after that, each in a transaction of its own, which locks the errand before the
turn as every errand does. They are found by their rows, so a crash in between changes nothing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.errors import Rejected
from perdure.domain.ids import ConversationId, MessageId, PrincipalId, TurnId
from perdure.domain.journal.attachments import given_in
from perdure.domain.journal.events import NO_TRAITS, Recorded, TurnQueued, TurnSettled
from perdure.domain.journal.question_events import WorkDelegated
from perdure.domain.journal.transcript import reply_text
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.turn import State
from perdure.ports.agents.delegations import WorkDone, WorkOrder
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import journal
from perdure.store.operations.questions import delegation_rows
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import locked
from perdure.store.operations.turns import errands, returning
from perdure.store.operations.turns.endings import Closing, end_turn
from perdure.store.statement import Op, one

# Finds for whom a turn works, and in which conversation.
_WHOSE = """
    SELECT t.principal_id, s.conversation_id FROM turns t JOIN sessions s ON s.id = t.session_id
    WHERE t.id = $1"""
TOO_MANY: Final = "too_many_errands"
UNWANTED: Final = Closing(Outcome.STOPPED, "nobody waits for it any more")


class _Whose(NamedTuple):
    principal: PrincipalId
    conversation: ConversationId


def events_of(lease: TurnLease, orders: Sequence[WorkOrder], stamp: Stamp) -> list[WorkDelegated]:
    """Return the events that record what a turn delegates."""
    return [
        WorkDelegated(
            turn=lease.turn,
            attempt=lease.attempt,
            call=order.call,
            errand=TurnId(stamp.mint("trn")),
            agent=order.agent,
            deadline=order.deadline,
            why=order.why,
        )
        for order in orders
    ]


def begin(
    lease: TurnLease,
    orders: Sequence[WorkOrder],
    delegated: Sequence[WorkDelegated],
    stamp: Stamp,
    *,
    live_max: int,
) -> Op[list[Recorded]]:
    """Open the errands. Raises `Rejected` if their person would have too many at once: then nothing
    of the transaction is written."""
    if not orders:
        return []
    whose = yield from one(_Whose, _WHOSE, lease.turn)
    assert whose is not None
    live = yield from delegation_rows.count_alone(whose.principal)
    if live + len(orders) > live_max:
        raise Rejected(
            f"{live} pieces of work are under way for this person, and {live_max} may be at once; "
            "call again when some of them are done",
            code=TOO_MANY,
        )
    queued = (yield from journal.of_turn(lease.turn))[0].event
    depth = queued.depth if isinstance(queued, TurnQueued) else 0
    recorded: list[Recorded] = []
    for order, event in zip(orders, delegated, strict=True):
        errand = errands.Order(
            TurnKind.DELEGATED,
            lease.session,
            whose.conversation,
            whose.principal,
            None,
            MessageId(stamp.mint("msg")),
            text=order.task,
            agent=order.agent,
            attachments=order.files,
            reason="delegated",
            traits=queued.traits if isinstance(queued, TurnQueued) else NO_TRAITS,
            turn=event.errand,
            ordered_by=lease.turn,
            depth=depth + 1,
        )
        recorded += yield from errands.begin(errand, stamp)
        yield from delegation_rows.put(
            event.errand,
            turn=lease.turn,
            call=order.call,
            agent=order.agent,
            at=stamp.at,
            deadline=order.deadline,
        )
    return recorded


def expire(stamp: Stamp, *, limit: int) -> Op[list[Recorded]]:
    """End the wait for errands whose deadline has passed."""
    recorded: list[Recorded] = []
    for each in (yield from delegation_rows.due(at=stamp.at, limit=limit)):
        recorded += yield from returning.expire(each.errand, stamp)
    return recorded


def stop(errand: TurnId, stamp: Stamp) -> Op[list[Recorded]]:
    """Stop an errand for which nobody waits any more, unless it has ended meanwhile."""
    found = yield from locked(errand)
    if found is None or found.state is State.SETTLED:
        return []
    return (yield from end_turn(errand, found, UNWANTED, stamp))


def result_of(turn: TurnId) -> Op[WorkDone | None]:
    """Return what came of an errand, or None if it is not over."""
    events = yield from journal.of_turn(turn)
    own = [recorded for recorded in events if recorded.turn == turn]
    settled = own[-1].event if own else None
    if not isinstance(settled, TurnSettled):
        return None
    is_done = settled.outcome is Outcome.DONE
    return WorkDone(
        outcome=settled.outcome,
        agent=settled.agent,
        text=reply_text(own),
        why="" if is_done else errands.failure(settled),
        files=given_in(own),
    )
