"""Lets turns wait for answers, and takes the answers.

A waiting turn has no owner. Its lease ends with the questions, so nothing of the turn is written
until an answer, a stop or a newer message changes its state. No crash interrupts it and no drain
waits for it.

Whoever commits first decides how a question ends: somebody has answered it, its deadline has
passed, it could not be delivered, or the agent that asked was lost. The end is in the turn's
journal. With the last one the turn goes back to its place in line, in the same transaction
(`returning.py`), so no answer is lost and no turn waits for nothing. From there it continues with
the calls that the questions were about.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.ids import MessageId, PartId, PrincipalId, QuestionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    NoticePosted,
    Recorded,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived, WorkDelegated
from perdure.domain.outcomes import QuestionKind
from perdure.domain.tools.asking import AGENT_LOST, ALLOW, DENY, answered_text, over_text
from perdure.domain.tools.grants import Scope
from perdure.domain.turn.spent import Spent
from perdure.domain.turn.turn import State
from perdure.ports.agents.delegations import WorkOrder
from perdure.ports.turns.questions import QuestionReply, QuestionTaken
from perdure.ports.turns.turns import TurnLease
from perdure.store.operations import journal, pushes
from perdure.store.operations.delivery import operators
from perdure.store.operations.delivery.outbox import PartText, conversation_of, put_unless_read
from perdure.store.operations.people import spending
from perdure.store.operations.questions import grants, question_rows
from perdure.store.operations.questions.grants import NewGrant
from perdure.store.operations.questions.question_rows import PENDING, NewQuestion, QuestionRow
from perdure.store.operations.questions.telling import close_notice
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked, locked
from perdure.store.operations.turns import turn_rows
from perdure.store.operations.turns.ordering import delegating
from perdure.store.operations.turns.returning import go_on
from perdure.store.statement import Op, many, one, run

# Ends the lease of the runner.
_LET_GO = "UPDATE sessions SET epoch = epoch + 1 WHERE id = $1"
# Reads the name of a person.
_NAME = "SELECT name FROM principals WHERE id = $1"
# Reads how the questions of a turn were answered.
_RECEIVED = f"""
    SELECT {journal.COLUMNS} FROM journal WHERE turn_id = $1 AND kind = 'answer_received'"""
ANSWER_MAX: Final = 20_000


class Ending(NamedTuple):
    """Says how a question ends: its state, the answer, and why nobody has given one."""

    state: str
    answer: str = ""
    scope: Scope | None = None
    by: PrincipalId | None = None
    reason: str = ""
    until: int = 0


def wait(
    lease: TurnLease,
    questions: Sequence[AnswerAwaited],
    work: Sequence[WorkOrder],
    spent: Spent,
    stamp: Stamp,
    *,
    live_max: int,
) -> Op[list[Recorded]]:
    """Let a running turn wait for answers and for the work of other agents: ask people, and open
    errands. The turn is charged what it has spent so far, and loses its owner and its reservation
    in the budgets. All of it is one transaction: after a crash the turn runs, or it waits, every
    question is in the outbox and every errand is in line."""
    delegated = delegating.events_of(lease, work, stamp)
    awaited: list[AnswerAwaited | WorkDelegated] = [*questions, *delegated]
    awaited[0] = msgspec.structs.replace(awaited[0], usage=spent.usage, cost=spent.cost)
    notices = [_notice(each, stamp) for each in questions]
    events: list[AnyEvent] = [*awaited, *notices]
    recorded = yield from journal.append(lease.session, events, at=stamp.at, epoch=lease.epoch)
    yield from turn_rows.wait(awaited[0])
    yield from run(_LET_GO, lease.session)
    yield from _ask(lease, questions, notices, stamp)
    recorded += yield from delegating.begin(lease, work, delegated, stamp, live_max=live_max)
    yield from spending.spend(lease.turn, spent, stamp, turns=0)
    yield from spending.release(lease.turn)
    return recorded


def _notice(question: AnswerAwaited, stamp: Stamp) -> NoticePosted:
    """Return the notice by which people are asked."""
    return NoticePosted(
        message=MessageId(stamp.mint("msg")),
        text=question.text,
        about=question.turn,
        choices=question.choices,
        question=question.question,
    )


def _ask(
    lease: TurnLease,
    asked: Sequence[AnswerAwaited],
    notices: Sequence[NoticePosted],
    stamp: Stamp,
) -> Op[None]:
    """Write the rows of the questions, and put them into the outbox."""
    conversation = yield from conversation_of(lease.session, lease.turn)
    for question, told in zip(asked, notices, strict=True):
        yield from question_rows.put(
            NewQuestion(
                id=question.question,
                kind=question.kind,
                conversation=conversation,
                call=question.call or "",
                tool=question.tool,
                arguments=question.arguments,
                text=question.text,
                choices=question.choices,
                offer=question.offer,
                is_once=question.is_once,
                message=told.message,
                asked_at=stamp.at,
                deadline=question.deadline,
                turn=lease.turn,
            )
        )
        yield from pushes.asked(question.question)
        words = PartText(question.text, choices=question.choices, question=question.question)
        yield from put_unless_read(lease.session, lease.turn, told.message, words, stamp)


def answer(reply: QuestionReply, stamp: Stamp) -> Op[QuestionTaken]:
    """Take an answer. Raises `Rejected` if it is none or comes from somebody who may not give it,
    and `Conflict` if the question has been answered or its time is over."""
    found, row = yield from _locked(reply.question)
    if reply.by != row.principal and not (yield from operators.is_operator(reply.by)):
        raise Rejected("this question is for somebody else", code="not_yours")
    if row.state != PENDING:
        raise Conflict((yield from _already(row)), code="already_answered")
    if row.deadline and row.deadline <= stamp.at:
        recorded = yield from _end(row, found, Ending("expired", reason="deadline"), stamp)
        told = "This came too late: the question's time is over, so it was not done."
        return QuestionTaken(session=row.session, turn=row.turn, told=told, recorded=recorded)
    ending = _ending(row, reply, stamp)
    recorded = yield from _end(row, found, ending, stamp)
    told = yield from _line(row, ending)
    return QuestionTaken(session=row.session, turn=row.turn, told=told, recorded=recorded)


def _ending(row: QuestionRow, reply: QuestionReply, stamp: Stamp) -> Ending:
    """Return how an answer ends its question. Raises `Rejected` if it is no answer."""
    if not row.is_approval:
        if not reply.answer.strip():
            raise Rejected("an answer needs some text", code="no_answer")
        if len(reply.answer) > ANSWER_MAX:
            raise Rejected(f"an answer has at most {ANSWER_MAX:,} characters", code="no_answer")
        return Ending("answered", reply.answer, by=reply.by)
    if reply.answer not in (ALLOW, DENY):
        raise Rejected("the answer is `allow` or `deny`", code="no_answer")
    if reply.answer == DENY:
        return Ending("denied", DENY, by=reply.by)
    if reply.scope is not Scope.CALL and row.granted is None:
        raise Rejected(
            "this can be allowed for one call only, because it may start any program",
            code="no_grant",
        )
    scope = Scope.SESSION if row.is_once and reply.scope is Scope.CALL else reply.scope
    until = stamp.at + reply.for_ms if scope is Scope.TIME else 0
    return Ending("allowed", ALLOW, scope, reply.by, until=until)


def expire(stamp: Stamp, *, limit: int) -> Op[list[Recorded]]:
    """End the wait for questions whose deadline has passed."""
    recorded: list[Recorded] = []
    for each in (yield from question_rows.due(at=stamp.at, limit=limit)):
        recorded += yield from _end_unanswered(each.id, Ending("expired", reason="deadline"), stamp)
    return recorded


def void(turn: TurnId, attempt: int, stamp: Stamp) -> Op[list[Recorded]]:
    """End the wait for the questions of a turn whose agent was lost while it waited in this
    attempt: it would get no answer. All of them end in one transaction, which is also the record of
    the loss, so no question of a lost agent can be answered afterwards."""
    found = yield from locked(turn)
    if found is None or found.state is not State.WAITING or found.attempts != attempt:
        return []
    recorded: list[Recorded] = []
    for row in (yield from question_rows.open_of(turn)):
        recorded += yield from _end(row, found, Ending("withdrawn", reason=AGENT_LOST), stamp)
    return recorded


def undeliverable(part: PartId, stamp: Stamp) -> Op[list[Recorded]]:
    """End the wait for the question that this part asks, if the part is lost for good: nobody will
    see it."""
    row = yield from question_rows.lost_with(part)
    if row is None:
        return []
    ending = Ending("undeliverable", reason="undeliverable")
    return (yield from _end_unanswered(row.id, ending, stamp))


def _end_unanswered(question: QuestionId, ending: Ending, stamp: Stamp) -> Op[list[Recorded]]:
    """End a question that nobody has answered, unless somebody was faster."""
    found, row = yield from _locked(question)
    return [] if row.state != PENDING else (yield from _end(row, found, ending, stamp))


def _locked(question: QuestionId) -> Op[tuple[Locked, QuestionRow]]:
    """Lock the session of a question, and return its turn and the question. The session's lock
    also keeps others from answering: every answer takes it first."""
    known = yield from question_rows.question(question)
    if known is None:
        raise NotFound(f"there is no question {question}")
    found = yield from locked(known.turn)
    assert found is not None
    row = yield from question_rows.question(question)
    assert row is not None
    return found, row


def _end(row: QuestionRow, found: Locked, ending: Ending, stamp: Stamp) -> Op[list[Recorded]]:
    """Write down how a question ended. With the last one its turn goes on."""
    received = AnswerReceived(
        turn=row.turn,
        question=row.id,
        answer=ending.answer,
        by=ending.by,
        scope=ending.scope or "",
        reason=ending.reason,
    )
    yield from _close(row, ending, stamp)
    recorded = yield from go_on(found, received, stamp)
    if ending.scope not in (None, Scope.CALL):
        yield from _grant(row, ending, stamp)
    line = (yield from _line(row, ending)) if ending.by else over_text(ending.reason)
    yield from close_notice(row, line, stamp)
    return recorded


def _close(row: QuestionRow, ending: Ending, stamp: Stamp) -> Op[None]:
    yield from question_rows.close(
        row.id,
        ending.state,
        answer=ending.answer,
        scope=ending.scope or "",
        by=ending.by,
        at=stamp.at,
    )


def _grant(row: QuestionRow, ending: Ending, stamp: Stamp) -> Op[None]:
    """Keep what the answer allows beyond this call, for the person of the turn."""
    offer = row.granted
    assert offer is not None
    assert ending.scope is not None
    new = NewGrant(row.principal, offer, ending.scope, row.session, ending.until, row.id)
    yield from grants.put(new, stamp)


def _line(row: QuestionRow, ending: Ending) -> Op[str]:
    """Return how an answer is told under its question."""
    who = (yield from one(str, _NAME, ending.by)) or "somebody"
    offer = row.granted
    return answered_text(
        QuestionKind(row.kind), ending.answer, who, ending.scope or "", offer.words if offer else ""
    )


def _already(row: QuestionRow) -> Op[str]:
    """Return how the first answer is told to whoever gives another one."""
    if row.answered_by is None:
        reason = yield from _reason(row)
        return f"this question is closed: {over_text(reason)}"
    who = (yield from one(str, _NAME, row.answered_by)) or "somebody"
    return f"already answered: {who} said {row.answer}"


def _reason(row: QuestionRow) -> Op[str]:
    """Return why a question is closed that nobody has answered. The journal knows it, unless the
    turn has ended first."""
    events = [each.event for each in (yield from many(journal.entry, _RECEIVED, row.turn))]
    reasons = [e.reason for e in events if isinstance(e, AnswerReceived) and e.question == row.id]
    return reasons[0] if reasons else row.state
