"""Changes notices that people have been shown: the buttons of a question become what came of it,
and a list shows its present state."""

from typing import Final, NamedTuple

from perdure.domain.delivery import DeliveryStep, PartState
from perdure.domain.ids import ConversationId, MessageId, PartId, SessionId
from perdure.store.operations.delivery import part_rows
from perdure.store.operations.delivery.outbox import DeliveryLine, PartText, put
from perdure.store.operations.questions.question_rows import QuestionRow
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one, run

# Finds the last part of a message; a question has its buttons there.
_LAST_PART = """
    SELECT id, state, attempts, text, conversation_id, session_id FROM outbox
    WHERE message_id = $1 AND step = 'post' ORDER BY part DESC LIMIT 1"""
# Changes the text of a part that was not sent yet.
_REWORD = "UPDATE outbox SET text = $1 WHERE id = $2"
# Parts that people see, or may see soon.
_MAY_BE_SEEN: Final = (PartState.PENDING, PartState.ATTEMPTING, PartState.SENT)
_ANSWERED: Final = ".answered"


class _Told(NamedTuple):
    id: PartId
    state: str
    attempts: int
    text: str
    conversation: ConversationId
    session: SessionId

    @property
    def is_unseen(self) -> bool:
        """Tell whether nobody can have seen the part. One that waits to be sent again may have been
        shown by the attempt before."""
        return self.state == PartState.PENDING and not self.attempts


def close_notice(row: QuestionRow, line: str, stamp: Stamp) -> Op[None]:
    """Replace the buttons of a question by what came of it. If the question was not sent yet, it is
    withdrawn. Over HTTP there is nothing to change: clients read the journal."""
    told = yield from one(_Told, _LAST_PART, row.message)
    if told is None:
        return
    if told.is_unseen:
        yield from part_rows.withdraw(told.id, at=stamp.at)
    else:
        yield from _edit(told, row.message, f"{told.text}\n\n{line}", stamp, suffix=_ANSWERED)


def change_notice(message: MessageId, text: str, stamp: Stamp, *, suffix: str) -> Op[None]:
    """Show another text in the place of a notice. `suffix` tells the change from others of the same
    notice."""
    told = yield from one(_Told, _LAST_PART, message)
    if told is None:
        return
    if told.is_unseen:
        yield from run(_REWORD, text, told.id)
    else:
        yield from _edit(told, message, text, stamp, suffix=suffix)


def _edit(told: _Told, message: MessageId, text: str, stamp: Stamp, *, suffix: str) -> Op[None]:
    """Put the change of a part into the outbox, if people see the part or may see it soon."""
    if told.state in _MAY_BE_SEEN:
        words = PartText(text, DeliveryStep.EDIT, told.id)
        place = DeliveryLine(told.conversation, told.session, None, f"{message}{suffix}")
        yield from put(place, [words], stamp)
