"""Recognizes a program's call that is made once more while the first one has not been answered.

A program that gets no answer repeats its call, often by itself and without a key. As long as the
turn has not ended, the first call cannot have been answered. Two people may well say the same thing
at once, so this is decided only for calls that nobody means twice: results of tool calls, of which
each call has one; and calls whose turn has waited for a person, which the program was told to
repeat.
"""

from typing import NamedTuple

from perdure.domain.ids import MessageId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.kinds import UpdateKind
from perdure.store.operations import journal
from perdure.store.operations.turn_context import TurnContext
from perdure.store.statement import Op, many

# Finds the unfinished turns of a session whose call was the same and came from the same caller.
_SAME = """
    SELECT t.id, t.message_id FROM turns t JOIN inbox i ON i.message_id = t.message_id
    WHERE t.session_id = $1 AND t.outcome IS NULL AND i.kind = $2 AND i.digest = $3
      AND i.principal_id = $4
    ORDER BY t.queued_seq"""


class _Same(NamedTuple):
    turn: TurnId
    message: MessageId


def repeated(context: TurnContext, update: Update) -> Op[Accepted | None]:
    """Return what came of the call that this update repeats, or None if it is a new one."""
    if update.kind is not UpdateKind.CALL or not context.open_turns:
        return None
    session, principal = context.session, update.principal
    same = yield from many(_Same, _SAME, session, update.kind, update.digest(), principal)
    for each in same:
        if update.results or (yield from _has_waited(each.turn)):
            return Accepted(
                conversation=context.conversation,
                session=session,
                turn=each.turn,
                message=each.message,
                is_duplicate=True,
            )
    return None


def _has_waited(turn: TurnId) -> Op[bool]:
    """Tell whether a turn waits for a person, or has done so."""
    events = yield from journal.of_turn(turn)
    return any(isinstance(each.event, AnswerAwaited) for each in events)
