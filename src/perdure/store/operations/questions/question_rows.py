"""Reads and writes the rows of questions."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.ids import (
    CallId,
    ConversationId,
    MessageId,
    PartId,
    PrincipalId,
    QuestionId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.journal.records import QuestionView
from perdure.domain.outcomes import QuestionKind
from perdure.ports.records.history import Page
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.statement import Op, many, one, run

PENDING: Final = "pending"
# Adds a question.
_PUT = """
    INSERT INTO questions (id, kind, turn_id, session_id, conversation_id, principal_id, call_id,
                           tool, arguments, text, choices, offer, is_once, message_id, asked_at,
                           deadline, state)
    SELECT $1, $2, t.id, t.session_id, $3, t.principal_id, $4, $5, $6, $7, $8, $9, $10, $11, $12,
           $13, 'pending'
    FROM turns t WHERE t.id = $14"""
# Reads questions; the caller appends which.
_COLUMNS = """
    SELECT q.id, q.kind, q.turn_id, q.session_id, q.conversation_id, q.principal_id, q.call_id,
           q.tool, q.text, q.choices, q.offer, q.is_once, q.message_id, q.deadline, q.state,
           q.answer, q.scope, q.answered_by, q.answered_at
    FROM questions q """
# Reads one question.
_ONE = _COLUMNS + "WHERE q.id = $1"
# Reads the open questions of a turn, in the order in which they were asked.
_OF_TURN = _COLUMNS + "WHERE q.turn_id = $1 AND q.state = 'pending' ORDER BY q.asked_at, q.id"
# Reads the open questions in a conversation, newest first.
_HERE = _COLUMNS + "WHERE q.conversation_id = $1 AND q.state = 'pending' ORDER BY q.id DESC"
# Reads the open question that a part asks, if the part was refused or given up.
_LOST_WITH = (
    _COLUMNS
    + """
    JOIN outbox o ON o.message_id = q.message_id
    WHERE o.id = $1 AND o.step = 'post' AND o.state IN ('failed', 'expired')
      AND q.state = 'pending'"""
)
# Finds parts that were given up and that ask a question which is still open.
_LOST_PARTS = """
    SELECT o.id FROM questions q JOIN outbox o ON o.message_id = q.message_id
    WHERE q.state = 'pending' AND o.step = 'post' AND o.state IN ('failed', 'expired') LIMIT 100"""
# Reads open questions whose deadline has passed.
_DUE = (
    _COLUMNS
    + """
    WHERE q.state = 'pending' AND q.deadline > 0 AND q.deadline <= $1
    ORDER BY q.deadline, q.id LIMIT $2"""
)
# Finds the earliest deadline.
_NEXT = "SELECT MIN(deadline) FROM questions WHERE state = 'pending' AND deadline > 0"
# Finds the question that a part of the outbox asks, by the receipt of the part.
_BY_RECEIPT = (
    _COLUMNS
    + """
    JOIN outbox o ON o.message_id = q.message_id
    WHERE o.adapter = $1 AND o.account = $2 AND o.receipt = $3 AND o.step IN ('post', 'bubble')
    LIMIT 1"""
)
# Records how a question ended.
_CLOSE = """
    UPDATE questions SET state = $1, answer = $2, scope = $3, answered_by = $4, answered_at = $5
    WHERE id = $6"""
# Reads questions as people are shown them; the caller appends which.
_SHOWN = f"""
    SELECT q.id, q.kind, q.turn_id, q.call_id, q.tool, q.arguments, q.text, q.choices, q.offer,
           q.asked_at, q.deadline, q.state, q.answer, q.scope, COALESCE(p.name, ''), q.answered_at,
           {ADDRESS}
    FROM questions q JOIN conversations c ON c.id = q.conversation_id
    LEFT JOIN principals p ON p.id = q.answered_by """
# Reads one question as people are shown it.
_SHOWN_ONE = _SHOWN + "WHERE q.id = $1 AND ($2 = '' OR q.principal_id = $2)"
# Reads a page of questions, oldest first.
_PAGE = (
    _SHOWN
    + """
    WHERE ($1 = '' OR q.principal_id = $1) AND ($2 = 0 OR q.state = 'pending')
      AND (q.asked_at > $3 OR (q.asked_at = $3 AND q.id > $4))
    ORDER BY q.asked_at, q.id LIMIT $5"""
)
# Reads those questions of a turn that a person may see, in the order in which they were asked.
_SHOWN_TO = (
    _SHOWN + "WHERE q.turn_id = $1 AND ($2 = '' OR q.principal_id = $2) ORDER BY q.asked_at, q.id"
)
_BEGINNING = (-1, "")


class QuestionRow(NamedTuple):
    """Holds a question. `is_once`: an approval holds for the rest of the session."""

    id: QuestionId
    kind: str
    turn: TurnId
    session: SessionId
    conversation: ConversationId
    principal: PrincipalId
    call: CallId
    tool: str
    text: str
    choices: str
    offer: str
    is_once: int
    message: MessageId
    deadline: int
    state: str
    answer: str
    scope: str
    answered_by: PrincipalId | None
    answered_at: int | None

    @property
    def is_approval(self) -> bool:
        return self.kind == QuestionKind.APPROVAL

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words on the buttons."""
        return msgspec.json.decode(self.choices, type=tuple[str, ...])

    @property
    def granted(self) -> GrantOffer | None:
        """Return what may be granted beyond this call."""
        return msgspec.json.decode(self.offer, type=GrantOffer) if self.offer else None


class _Shown(NamedTuple):
    id: QuestionId
    kind: str
    turn: TurnId
    call: str
    tool: str
    arguments: str
    text: str
    choices: str
    offer: str
    asked_at: int
    deadline: int
    state: str
    answer: str
    scope: str
    answered_by: str
    answered_at: int | None
    adapter: str
    account: str
    place: str
    thread: str
    person: str


class _Deadline(NamedTuple):
    at: int | None


class NewQuestion(NamedTuple):
    """Holds the columns of a question that is asked now."""

    id: QuestionId
    kind: str
    conversation: ConversationId
    call: str
    tool: str
    arguments: str
    text: str
    choices: tuple[str, ...]
    offer: GrantOffer | None
    is_once: bool
    message: MessageId
    asked_at: int
    deadline: int
    turn: TurnId


def put(new: NewQuestion) -> Op[None]:
    """Add a question."""
    yield from run(
        _PUT,
        new.id, new.kind, new.conversation, new.call, new.tool, new.arguments, new.text,
        _json(new.choices), _json(new.offer) if new.offer else "", int(new.is_once), new.message,
        new.asked_at, new.deadline, new.turn,
    )  # fmt: skip


def close(
    question: QuestionId, state: str, *, answer: str, scope: str, by: PrincipalId | None, at: int
) -> Op[None]:
    """Record how a question ended."""
    yield from run(_CLOSE, state, answer, scope, by, at, question)


def question(which: QuestionId) -> Op[QuestionRow | None]:
    """Return the question with this id, or None."""
    return (yield from one(QuestionRow, _ONE, which))


def open_of(turn: TurnId) -> Op[list[QuestionRow]]:
    """Return the open questions of a turn."""
    return (yield from many(QuestionRow, _OF_TURN, turn))


def open_here(conversation: ConversationId) -> Op[list[QuestionRow]]:
    """Return the open questions in a conversation, newest first."""
    return (yield from many(QuestionRow, _HERE, conversation))


def lost_with(part: PartId) -> Op[QuestionRow | None]:
    """Return the open question that this part asks, if the part is lost for good, or None."""
    return (yield from one(QuestionRow, _LOST_WITH, part))


def lost_parts() -> Op[list[PartId]]:
    """Return parts that are lost for good and that ask a question which is still open."""
    return (yield from many(PartId, _LOST_PARTS))


def due(*, at: int, limit: int) -> Op[list[QuestionRow]]:
    """Return open questions whose deadline has passed."""
    return (yield from many(QuestionRow, _DUE, at, limit))


def next_deadline() -> Op[int | None]:
    """Return when the next deadline passes, or None."""
    found = yield from one(_Deadline, _NEXT)
    return found.at if found else None


def by_receipt(adapter: str, account: str, receipt: str) -> Op[QuestionRow | None]:
    """Return the question that the platform's message with this receipt asks, or None."""
    return (yield from one(QuestionRow, _BY_RECEIPT, adapter, account, receipt))


def page(page: Page, *, principal: PrincipalId | None, is_pending: bool) -> Op[list[QuestionView]]:
    """Return a page of questions as people are shown them."""
    at, last = page.after or _BEGINNING
    found = yield from many(_Shown, _PAGE, principal or "", int(is_pending), at, last, page.limit)
    return [_view(each) for each in found]


def of_turns(turns: Sequence[TurnId], *, principal: PrincipalId | None) -> Op[list[QuestionView]]:
    """Return all questions of these turns as people are shown them."""
    views: list[QuestionView] = []
    for turn in turns:
        found = yield from many(_Shown, _SHOWN_TO, turn, principal or "")
        views += [_view(each) for each in found]
    return views


def shown(which: QuestionId, *, principal: PrincipalId | None) -> Op[QuestionView | None]:
    """Return one question as people are shown it, or None."""
    found = yield from one(_Shown, _SHOWN_ONE, which, principal or "")
    return None if found is None else _view(found)


def _view(found: _Shown) -> QuestionView:
    """Return a row as people are shown it."""
    offer = msgspec.json.decode(found.offer, type=GrantOffer) if found.offer else None
    address = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    return QuestionView(
        id=found.id,
        kind=found.kind,
        turn=found.turn,
        call=found.call,
        conversation=address.name,
        tool=found.tool,
        arguments=found.arguments,
        text=found.text,
        choices=msgspec.json.decode(found.choices, type=tuple[str, ...]),
        deadline=found.deadline,
        asked_at=found.asked_at,
        state=found.state,
        answer=found.answer,
        scope=found.scope,
        answered_by=found.answered_by,
        answered_at=found.answered_at,
        grants=offer.words if offer else "",
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
