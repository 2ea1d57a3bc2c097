"""Divides a part whose text turned out to be too long for its platform."""

from collections.abc import Sequence
from typing import NamedTuple

from perdure.domain.delivery import DELETIONS, REPLY, PartState
from perdure.domain.ids import ConversationId, PartId, QuestionId, SessionId, TurnId
from perdure.domain.waits import AT_ONCE
from perdure.store.operations.delivery.outbox import DeliveryLine, PartText, put, record
from perdure.store.operations.delivery.part_rows import choices_of, part_progress
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, many, one, run

# Reads what a part belongs to that is to be divided, and the last part of its message.
_WHOLE = """
    SELECT o.conversation_id, o.session_id, o.turn_id, o.message_id, o.choices, o.question_id,
           o.place_in_line,
           (SELECT MAX(p.part) FROM outbox p WHERE p.message_id = o.message_id)
    FROM outbox o WHERE o.id = $1"""
# Locks the pending deletions of a turn's bubbles. Such a bubble can show the text that does not fit
# elsewhere, instead of being deleted.
_SPARE = """
    SELECT d.id, d.place_in_line FROM outbox d JOIN outbox b ON b.id = d.target
    WHERE d.message_id = $1 AND d.step = 'delete' AND d.state = 'pending' AND b.step = 'bubble'
    ORDER BY b.part FOR UPDATE OF d"""
# Turns the deletion of a bubble into an edit that shows text in it.
_SHOW_IN = """
    UPDATE outbox SET step = 'edit', text = $1, message_id = $2, part = $3 WHERE id = $4"""
# Leaves a part with the first piece of its text, and without buttons.
_SHORTEN = "UPDATE outbox SET text = $1, choices = '', question_id = NULL WHERE id = $2"


class _Whole(NamedTuple):
    """Holds what a part belongs to that is to be divided. `last` is the number of its message's
    last part."""

    conversation: ConversationId
    session: SessionId
    turn: TurnId | None
    message: str
    choices: str
    question: QuestionId | None
    place: int
    last: int


class _Spare(NamedTuple):
    """Holds the deletion of a bubble, and its place in line."""

    id: PartId
    place: int


def divide(part: PartId, texts: Sequence[str], stamp: Stamp, *, attempt: int) -> Op[None]:
    """Divide a part whose text is too long for its platform into several. The further pieces go
    into bubbles that would be deleted, then directly behind the part, the last one with the
    buttons; what was added to the line meanwhile comes after all of them. Does nothing if the part
    is pending: it was divided and the answer was lost, or it was released and is taken again. One
    transaction: after a crash there is either the whole part or all its pieces."""
    now = yield from part_progress(part)
    if now is not None and now.state == PartState.PENDING:
        return
    whole = yield from one(_Whole, _WHOLE, part)
    assert whole is not None
    at = stamp.at
    yield from record(
        part, PartState.PENDING, receipt="", error="", due_at=AT_ONCE, at=at, attempt=attempt
    )
    now = yield from part_progress(part)
    if now is None or now.state != PartState.PENDING:
        return  # it was withdrawn meanwhile
    yield from run(_SHORTEN, texts[0], part)
    rest, last, place = list(texts[1:]), whole.last, whole.place
    for bubble in (yield from _spare_of(whole))[: len(rest)]:
        last += 1
        place = max(place, bubble.place)
        yield from run(_SHOW_IN, rest.pop(0), whole.message, last, bubble.id)
    words = [PartText(text) for text in rest]
    if words:
        choices = choices_of(whole.choices)
        words[-1] = words[-1]._replace(choices=choices, question=whole.question)
    line = DeliveryLine(whole.conversation, whole.session, whole.turn, whole.message)
    yield from put(line, words, stamp, first=last + 1, behind=place)


def _spare_of(whole: _Whole) -> Op[list[_Spare]]:
    """Return the deletions of bubbles that can show pieces of a turn's final words."""
    if whole.message != f"{whole.turn}{REPLY}":
        return []
    return (yield from many(_Spare, _SPARE, f"{whole.turn}{DELETIONS}"))
