"""Closes what a turn waits for if it ends before that."""

from perdure.domain.ids import TurnId
from perdure.domain.tools.asking import over_text
from perdure.store.operations.questions import delegation_rows, question_rows
from perdure.store.operations.questions.telling import close_notice
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op


def withdraw(turn: TurnId, stamp: Stamp) -> Op[None]:
    """Close the open questions of a turn, and its delegations. Its session must be locked. The end
    of the turn is in the journal, so nothing is added for them. The errands are stopped after
    this."""
    yield from delegation_rows.withdraw(turn)
    for row in (yield from question_rows.open_of(turn)):
        yield from question_rows.close(
            row.id, "withdrawn", answer="", scope="", by=None, at=stamp.at
        )
        yield from close_notice(row, over_text("withdrawn"), stamp)
