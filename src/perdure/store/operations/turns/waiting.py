"""Lets turns wait for somebody's answer, and takes the answer.

A waiting turn has no owner. Its lease ends with the question, so nothing of the turn is written
until the answer, a stop or a newer message changes its state. No crash interrupts it and no drain
waits for it. The answer puts it back to its place in line; from there it continues with the call
that the question was about.
"""

import msgspec

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.journal.events import AnswerAwaited, AnswerReceived, Recorded
from perdure.domain.turn.next_action import open_question
from perdure.domain.turn.spent import Spent
from perdure.domain.turn.turn import State
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import journal
from perdure.store.operations.people import spending
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.endings import locked
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op, run

# Ends the lease of the runner.
_LET_GO = "UPDATE sessions SET epoch = epoch + 1 WHERE id = $1"


def wait(
    lease: TurnLease, question: AnswerAwaited, spent: Spent, stamp: Stamp
) -> Op[list[Recorded]]:
    """Let a running turn wait for an answer. It is charged what it has spent so far, and loses its
    owner and its reservation in the budgets."""
    question = msgspec.structs.replace(question, usage=spent.usage, cost=spent.cost)
    recorded = yield from journal.append(lease.session, [question], at=stamp.at, epoch=lease.epoch)
    yield from turn_rows.wait(question)
    yield from run(_LET_GO, lease.session)
    yield from spending.spend(lease.turn, spent, stamp, turns=0)
    yield from spending.release(lease.turn)
    return recorded


def answer(received: AnswerReceived, stamp: Stamp) -> Op[list[Recorded]]:
    """Take the first answer to a question, and put its turn back in line. Raises `Conflict` if the
    turn does not wait for this answer, as for a second answer to the same question."""
    found = yield from locked(received.turn)
    if found is None:
        raise NotFound(f"there is no turn {received.turn}")
    events = [recorded.event for recorded in (yield from journal.of_turn(received.turn))]
    asked = open_question(events)
    if found.state is not State.WAITING or asked is None or asked.question != received.question:
        raise Conflict(
            f"turn {received.turn} does not wait for this answer", code="already_answered"
        )
    recorded = yield from journal.append(found.session, [received], at=stamp.at)
    yield from turn_rows.requeue(received, found.state)
    yield from make_ready(found.session, stamp)
    return recorded
