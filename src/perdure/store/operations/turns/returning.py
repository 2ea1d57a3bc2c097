"""Puts a turn that waits back in line, once it has everything that it waits for.

It may wait for answers of people and for the work of other agents at once. Whoever brings the last
of these requeues the turn, in the same transaction. The turn's session must be locked, so that two
who come at once see each other.
"""

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import AnyEvent, Recorded
from perdure.domain.journal.question_events import AnswerReceived, WaitEnded, WorkReturned
from perdure.domain.turn.turn import State
from perdure.store.operations import journal
from perdure.store.operations.questions import delegation_rows, question_rows
from perdure.store.operations.questions.delegation_rows import OPEN
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked, locked
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op


def go_on(
    found: Locked, received: AnswerReceived | WorkReturned, stamp: Stamp
) -> Op[list[Recorded]]:
    """Write down what a waiting turn has got; its row must say so already. With the last thing the
    turn goes on."""
    turn = received.turn
    assert found.state is State.WAITING, f"{turn} does not wait for {received}"
    events: list[AnyEvent] = [received]
    is_last = not (yield from question_rows.open_of(turn))
    is_last = is_last and not (yield from delegation_rows.open_of(turn))
    ended = WaitEnded(turn=turn)
    if is_last:
        events.append(ended)
    recorded = yield from journal.append(found.session, events, at=stamp.at)
    if is_last:
        yield from turn_rows.requeue(ended, found.state)
        yield from make_ready(found.session, stamp)
    return recorded


def errand_is_over(errand: TurnId, stamp: Stamp) -> Op[list[Recorded]]:
    """Note that the errand of a delegation is over. If a turn waits for it, the turn has it now."""
    held = yield from _held(errand)
    yield from delegation_rows.end(errand)
    return [] if held is None else (yield from go_on(*held, stamp))


def expire(errand: TurnId, stamp: Stamp) -> Op[list[Recorded]]:
    """End the wait for an errand whose deadline has passed, unless the errand was faster."""
    held = yield from _held(errand, reason="deadline")
    if held is None:
        return []
    yield from delegation_rows.close(errand, "expired")
    return (yield from go_on(*held, stamp))


def _held(errand: TurnId, *, reason: str = "") -> Op[tuple[Locked, WorkReturned] | None]:
    """Lock the turn that waits for an errand, and return it with what it gets. None if no turn
    waits for it. The row is read again behind the lock: only who holds it ends a wait."""
    row: delegation_rows.DelegationRow | None = yield from delegation_rows.of_errand(errand)
    if row is None or row.state != OPEN:
        return None
    found = yield from locked(row.turn)
    row = yield from delegation_rows.of_errand(errand)
    if found is None or row is None or row.state != OPEN:
        return None
    return found, WorkReturned(turn=row.turn, call=row.call, errand=errand, reason=reason)
