"""Tells people what could not be delivered: the person it was for, in another place, and the
operators.

The notice is written in the transaction that records the failure, so a crash loses neither. A place
that takes nothing any more fails with every part, so about one conversation the operators, and each
person, are told at most once an hour. A notice that fails is never reported itself.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.delivery import WITHDRAWN, DeliveryStep, PartState
from perdure.domain.ids import ConversationId, MessageId, PartId, PrincipalId, SessionId
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.domain.text import harmless_line, sentence
from perdure.ports.delivery.outbox import Expired
from perdure.store.operations import journal, occasions
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.delivery import operators, outbox
from perdure.store.operations.delivery.outbox import PartText, put_unless_read
from perdure.store.operations.sessions import relocating
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, exists, many, one, run

# The shortest time between two notices about the same conversation.
AGAIN_MS: Final = 3_600_000
# What people would miss. A failed preview, deletion or reaction is not reported.
_FINAL: Final = (DeliveryStep.POST, DeliveryStep.EDIT, DeliveryStep.UPLOAD)
# Reads a part after its result was recorded, and whom it was for.
_PART = """
    SELECT o.state, o.step, o.error, o.told_at, o.conversation_id, o.session_id, m.name, c.label,
           c.adapter, c.place, COALESCE(t.principal_id, c.principal_id)
    FROM outbox o JOIN conversations c ON c.id = o.conversation_id
    LEFT JOIN turns t ON t.id = o.turn_id LEFT JOIN media m ON m.id = o.media_id
    WHERE o.id = $1"""
# Reads the address at which a part was shown.
_SENT_TO = f"""
    SELECT {ADDRESS} FROM outbox o JOIN conversations c ON c.id = o.conversation_id
    WHERE o.id = $1"""
# Finds when the operators were told about a conversation, if that was after an instant.
_OPERATORS_TOLD = """
    SELECT MAX(told_at) FROM outbox WHERE conversation_id = $1 AND told_at > $2"""
# Finds a lost part of the same person and conversation that they were told about since then.
_IS_PERSON_TOLD = """
    SELECT 1 FROM outbox o JOIN conversations c ON c.id = o.conversation_id
    LEFT JOIN turns t ON t.id = o.turn_id
    WHERE o.conversation_id = $1 AND o.told_at > 0 AND o.changed_at > $2
      AND o.state IN ('failed', 'expired') AND COALESCE(t.principal_id, c.principal_id) = $3
    LIMIT 1"""
# Records that people were told about a part, and when the operators were told last.
_TOLD = "UPDATE outbox SET told_at = $1 WHERE id = $2"
# Marks a notice as told, so that its own failure is not reported.
_IS_TELLING = "UPDATE outbox SET told_at = 0 WHERE message_id = $1"
# Finds a place where only this person reads, their home first. A linked conversation continues in
# the session of another one.
_ELSEWHERE = """
    SELECT c.id, COALESCE(l.session_id, c.session_id)
    FROM conversations c LEFT JOIN conversations l ON l.id = c.linked_id
    WHERE c.principal_id = $1 AND c.is_listed = 1 AND (c.kind = 'private' OR c.adapter = 'http')
      AND NOT (c.adapter = $2 AND c.place = $3)
    ORDER BY (c.id = COALESCE((SELECT p.home_conversation_id FROM principals p
                               WHERE p.id = c.principal_id), '')) DESC,
             c.active_span DESC, c.active_at DESC, c.id LIMIT 1"""
_HAPPENED: Final = {
    PartState.FAILED: "was refused",
    PartState.EXPIRED: "could not be delivered in time",
    PartState.UNKNOWN: "may not have arrived",
}


class _Lost(NamedTuple):
    """Holds a part after its result was recorded."""

    state: str
    step: str
    error: str
    told_at: int | None
    conversation: ConversationId
    session: SessionId
    file: str | None
    label: str
    adapter: str
    place: str
    principal: PrincipalId

    @property
    def where(self) -> str:
        """Return where the part was to be seen, in words."""
        label = harmless_line(self.label)
        return f"{label} ({self.adapter})" if label else f"{self.adapter}:{self.place}"

    @property
    def what(self) -> str:
        """Return what was lost, in words."""
        if self.step == DeliveryStep.UPLOAD and not self.file:
            return f"My spoken answer to you in {self.where}"
        if self.file:
            return f"The file {harmless_line(self.file)}"
        return f"My message to you in {self.where}"

    @property
    def happened(self) -> str:
        """Return what became of it, in words."""
        return _HAPPENED[PartState(self.state)]


class _Told(NamedTuple):
    at: int | None


class _Way(NamedTuple):
    """Holds a conversation in which somebody can be told, and its live session."""

    conversation: ConversationId
    session: SessionId


def record(  # noqa: PLR0913 - all that is known of a try
    part: PartId,
    state: PartState,
    stamp: Stamp,
    *,
    receipt: str,
    error: str,
    due_at: int,
    attempt: int,
    moved_to: str = "",
) -> Op[list[Recorded]]:
    """Record the result of an attempt, and tell people if the part is lost. If the platform has
    said that the place has another id now, everything in it moves along."""
    yield from outbox.record(
        part, state, receipt=receipt, error=error, due_at=due_at, at=stamp.at, attempt=attempt
    )
    yield from occasions.delivered(part)
    if moved_to:
        where = yield from one(address_of, _SENT_TO, part)
        assert where is not None
        yield from relocating.relocate(where, moved_to, stamp)
    return (yield from _tell(part, stamp))


def expire(stamp: Stamp, *, before: int) -> Op[Expired]:
    """Give up parts that could not be sent in time, and tell people."""
    recorded: list[Recorded] = []
    parts = yield from outbox.expire(before=before, at=stamp.at)
    for part in parts:
        yield from occasions.delivered(part)
        recorded += yield from _tell(part, stamp)
    return Expired(parts=len(parts), recorded=recorded)


def _tell(part: PartId, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell people about a part, if it is lost for good and they were not told yet."""
    lost = yield from one(_Lost, _PART, part)
    assert lost is not None
    is_final = lost.state in _HAPPENED and lost.step in _FINAL and lost.error != WITHDRAWN
    if not is_final or lost.told_at is not None:
        return []
    since = stamp.at - AGAIN_MS
    told = yield from one(_Told, _OPERATORS_TOLD, lost.conversation, since)
    operators_told_at = told.at if told else None
    is_for_person = not (yield from _knows(lost, since))
    if operators_told_at is not None and not is_for_person:
        return []
    yield from run(_TOLD, operators_told_at or stamp.at, part)
    homes = [_Way(home, session) for home, session in (yield from operators.homes())]
    homes = [each for each in homes if each.conversation != lost.conversation]
    recorded: list[Recorded] = []
    if operators_told_at is None:
        text = (
            f"⚠️ A message to {lost.where} {lost.happened}: {sentence(lost.error)} `perdure parked "
            f"show {part}` tells more. You are told of this conversation once an hour at most."
        )
        recorded += yield from _post(homes, text, stamp)
    if is_for_person:
        others = [each for each in (yield from _ways(lost)) if each not in homes]
        text = f"⚠️ {lost.what} {lost.happened}, so you do not see it there."
        recorded += yield from _post(others, text, stamp)
    return recorded


def _knows(lost: _Lost, since: int) -> Op[bool]:
    """Tell whether the person knows of other losses in the conversation. They are not told of a
    part that may have arrived: they may have read it."""
    if lost.state == PartState.UNKNOWN:
        return True
    return (yield from exists(_IS_PERSON_TOLD, lost.conversation, since, lost.principal))


def _ways(lost: _Lost) -> Op[list[_Way]]:
    """Return where the person can be told. If a file was refused, words may still be accepted in
    the same place."""
    if lost.step == DeliveryStep.UPLOAD:
        return [_Way(lost.conversation, lost.session)]
    return (yield from many(_Way, _ELSEWHERE, lost.principal, lost.adapter, lost.place))


def _post(to: Sequence[_Way], text: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Post a notice in these conversations."""
    recorded: list[Recorded] = []
    for conversation, session in to:
        message = MessageId(stamp.mint("msg"))
        posted = NoticePosted(message=message, text=text)
        recorded += yield from journal.append(session, [posted], at=stamp.at)
        yield from put_unless_read(session, None, message, PartText(text), stamp, to=conversation)
        yield from run(_IS_TELLING, message)
    return recorded
