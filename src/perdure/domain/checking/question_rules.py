"""Checks what must hold of questions, of approved calls, and of calls whose fate is unknown.

These are rules of the checker (`domain/checking/checker.py`): they compare rows with the journal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perdure.domain.checking.delegation_rules import waited_for
from perdure.domain.ids import CallId, QuestionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    NoticePosted,
    Recorded,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.journal.question_events import AnswerAwaited, AnswerReceived, EffectMarked
from perdure.domain.journal.records import QuestionRecord, SessionRecord
from perdure.domain.outcomes import CallEnding, QuestionKind, Repeat
from perdure.domain.tools.asking import AGENT_LOST, ALLOW, DENY
from perdure.domain.turn.turn import State

_ByTurn = Mapping[TurnId, Sequence[Recorded]]
_PENDING = "pending"
_WITHDRAWN = "withdrawn"
_ANSWERED = {ALLOW: "allowed", DENY: "denied"}
_UNANSWERED = {
    "deadline": "expired",
    "undeliverable": "undeliverable",
    AGENT_LOST: _WITHDRAWN,
}


def questions_follow_the_journal(record: SessionRecord, by_turn: _ByTurn) -> Iterator[str]:
    """Check that each question is a row and an event, that it was told, that it ended as the
    journal says, and that exactly those turns wait that have an open question, or have given work
    to another agent."""
    events = [recorded.event for turn in by_turn.values() for recorded in turn]
    asked = {event.question: event for event in events if isinstance(event, AnswerAwaited)}
    answers = {event.question: event for event in events if isinstance(event, AnswerReceived)}
    rows = {row.id: row for row in record.questions}
    for question in rows.keys() ^ asked.keys():
        yield f"{question} is in the journal or among the rows, not in both"
    for question in answers.keys() - asked.keys():
        yield f"{question} was answered and never asked"
    told = _notices(record.events)
    states = {turn.id: turn.state for turn in record.turns}
    for row in record.questions:
        event = asked.get(row.id)
        if event is None:
            continue
        if _as_asked(row) != (event.turn, event.kind, event.call or "", event.deadline):
            yield f"{row.id}: the row says {row}, the journal {event}"
        if told.get(row.id) != [row.message]:
            yield f"{row.id} was told by {told.get(row.id)}, the row says {row.message}"
        yield from _ended_as_told(row, answers.get(row.id), states.get(row.turn, ""))
    asking = {row.turn for row in record.questions if row.state == _PENDING}
    waiting = {turn.id for turn in record.turns if turn.state == State.WAITING}
    for turn in waiting - asking - waited_for(record.delegations):
        yield f"{turn} waits, and no question of it is open, and no work that it gave away"
    for turn in asking - waiting:
        yield f"{turn} has an open question, and does not wait"


def _as_asked(row: QuestionRecord) -> tuple[TurnId, str, str, int]:
    return (row.turn, row.kind, row.call, row.deadline)


def _notices(events: Iterable[Recorded]) -> dict[QuestionId, list[str]]:
    """Return the messages of the notices that ask each question."""
    told: dict[QuestionId, list[str]] = {}
    for recorded in events:
        event = recorded.event
        if isinstance(event, NoticePosted) and event.question:
            told.setdefault(event.question, []).append(event.message)
    return told


def _ended_as_told(row: QuestionRecord, answer: AnswerReceived | None, turn: str) -> Iterator[str]:
    """Check how a question ended. A question that nobody has answered is open while its turn waits,
    and withdrawn once its turn is over."""
    if answer is None:
        should_be = _WITHDRAWN if turn == State.SETTLED else _PENDING
        said: tuple[str, str, str | None] = ("", "", None)
    else:
        should_be = _state_of(row, answer)
        said = (answer.answer, answer.scope, answer.by)
    if row.state != should_be:
        yield f"{row.id} is {row.state}, by the journal {should_be}"
    if (row.answer, row.scope, row.by) != said:
        yield f"{row.id}: the row says {(row.answer, row.scope, row.by)}, the journal {said}"


def _state_of(row: QuestionRecord, answer: AnswerReceived) -> str:
    if answer.by is None:
        return _UNANSWERED.get(answer.reason, f"closed by {answer.reason!r}")
    if row.kind == QuestionKind.QUESTION:
        return "answered"
    return _ANSWERED.get(answer.answer, f"closed by {answer.answer!r}")


def calls_wait_for_their_approval(by_turn: _ByTurn) -> Iterator[str]:
    """Check that a call about which a person was asked begins only after it was allowed, and that
    no call begins twice."""
    for turn, events in by_turn.items():
        about: dict[CallId | None, set[QuestionId]] = {}
        allowed: set[QuestionId] = set()
        begun: set[CallId] = set()
        for recorded in events:
            match recorded.event:
                case AnswerAwaited(call=call, question=question):
                    about.setdefault(call, set()).add(question)
                case AnswerReceived(question=question, answer=answer, by=by):
                    allowed.update({question} if by is not None and answer == ALLOW else ())
                case ToolStarted(call=call):
                    if about.get(call, set()) - allowed:
                        yield f"{turn}: {call} began without being allowed"
                    if call in begun:
                        yield f"{turn}: {call} began twice"
                    begun.add(call)
                case _:
                    pass


def effects_follow_the_journal(record: SessionRecord, by_turn: _ByTurn) -> Iterator[str]:
    """Check that each row of a call whose fate was unknown belongs to such a call, and that the
    agent was told once what a person has found out about it. Calls of old journals have no rows."""
    unknown = {
        call for turn in by_turn.values() for call in _unknown([each.event for each in turn])
    }
    told: dict[CallId, list[tuple[TurnId, bool]]] = {}
    for recorded in record.events:
        event = recorded.event
        if isinstance(event, EffectMarked):
            told.setdefault(event.call, []).append((event.turn, event.has_happened))
    rows = {row.call: row for row in record.effects}
    for call in rows.keys() - unknown:
        yield f"{call} is kept as a call of unknown fate, and is none"
    for call in told.keys() - rows.keys():
        yield f"{call} was marked, and is not kept"
    for row in record.effects:
        marks = [(row.told, row.state == "happened")] if row.told else []
        if told.get(row.call, []) != marks:
            yield f"{row.call} is told as {told.get(row.call, [])}, the row says {marks}"
        if row.told and row.state == "unknown":
            yield f"{row.call} was told and never marked"


def _unknown(events: Sequence[AnyEvent]) -> set[CallId]:
    """Return the calls of a turn that must not be repeated, had begun, and ended as unknown."""
    said = (event for event in events if isinstance(event, AssistantSaid))
    once = {call.id for each in said for call in each.calls if call.repeat is Repeat.ONCE}
    begun = {event.call for event in events if isinstance(event, ToolStarted)}
    ended = {
        event.call
        for event in events
        if isinstance(event, ToolFinished) and event.ending is CallEnding.UNKNOWN
    }
    return once & begun & ended
