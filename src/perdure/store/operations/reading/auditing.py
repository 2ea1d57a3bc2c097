"""Reads everything stored of many sessions at once, for the checker.

The cost for each session must not depend on how many there are, so every statement reads a range of
sessions by an index. Updates and parts have no index by session, because it would cost every
message a page. Parts are found by their turns, and updates by the messages of the journal. Updates
whose message is in no journal are found by one pass over all updates.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.records import (
    DelegationRecord,
    EffectRecord,
    PartView,
    QuestionRecord,
    SessionRecord,
    SessionView,
    SummaryView,
    TurnView,
)
from perdure.domain.kinds import TurnKind
from perdure.ports.records.audit import SessionMark
from perdure.store.operations import journal
from perdure.store.operations.reading import history
from perdure.store.statement import Op, exists, many, one, run

# A batch is one short read, so that the write-ahead log does not grow meanwhile: at most this many
# sessions, and about this many events.
SESSIONS_AT_ONCE: Final = 500
EVENTS_AT_ONCE: Final = 5_000
UPDATES_AT_ONCE: Final = 5_000

# A condition: session `s` was changed since it was found sound.
_IS_NEW: Final = """
    NOT EXISTS (SELECT 1 FROM verified v
                WHERE v.session_id = s.id AND v.seq = s.last_seq AND v.epoch = s.epoch)"""
# Counts all sessions.
_COUNT = "SELECT count(*) FROM sessions s"
# Counts the sessions that were changed since they were found sound.
_COUNT_NEW = f"SELECT count(*) FROM sessions s WHERE {_IS_NEW}"
# Reads the next sessions, and how many events they have.
_BATCH = "SELECT s.id, s.last_seq FROM sessions s WHERE s.id > $1 ORDER BY s.id LIMIT $2"
# Reads the next sessions that were changed since they were found sound.
_BATCH_NEW = f"""
    SELECT s.id, s.last_seq FROM sessions s WHERE s.id > $1 AND {_IS_NEW}
    ORDER BY s.id LIMIT $2"""
# Reads a range of sessions, with the fields that belong to their turns.
_SESSIONS = f"""
    SELECT s.epoch, s.head_turn, s.ready_at, s.strikes, {history.SESSION_COLUMNS}
    {history.FROM_SESSIONS} WHERE s.id >= $1 AND s.id <= $2 ORDER BY s.id"""
# Reads the turns of a range of sessions, with what is recorded for them.
_TURNS = f"""
    SELECT t.told_seq, t.summary_id, {history.TURN_COLUMNS} FROM turns t
    WHERE t.session_id >= $1 AND t.session_id <= $2 ORDER BY t.session_id, t.queued_seq"""
# Reads the events of a range of sessions.
_EVENTS = f"""
    SELECT {journal.COLUMNS} FROM journal WHERE session_id >= $1 AND session_id <= $2
    ORDER BY session_id, seq"""
# Finds the turns of a range of sessions with shown text that is not final. There are few such turns
# in all, so they are read first and then restricted to the sessions.
_PARTIALS = """
    SELECT DISTINCT t.session_id, p.turn_id FROM partials p CROSS JOIN turns t
    WHERE t.id = p.turn_id AND t.session_id >= $1 AND t.session_id <= $2"""
# Counts the files that turns of a range of sessions wait for.
_FETCHES = """
    SELECT t.session_id, f.turn_id, count(*) FROM fetches f CROSS JOIN turns t
    WHERE f.state = 'pending' AND t.id = f.turn_id
      AND t.session_id >= $1 AND t.session_id <= $2 GROUP BY t.session_id, f.turn_id
    UNION ALL
    SELECT t.session_id, f.turn_id, count(*) FROM fetches f CROSS JOIN turns t
    WHERE f.state = 'attempting' AND t.id = f.turn_id
      AND t.session_id >= $1 AND t.session_id <= $2 GROUP BY t.session_id, f.turn_id"""
# Reads the parts of a range of sessions, by their turns.
_PARTS = """
    SELECT t.session_id, o.id, o.message_id, o.turn_id, o.part, o.adapter, o.state, o.attempts,
           o.receipt, o.error, o.text
    FROM turns t CROSS JOIN outbox o
    WHERE o.turn_id = t.id AND t.session_id >= $1 AND t.session_id <= $2
    ORDER BY t.session_id, o.place_in_line"""
# Reads the questions that turns of a range of sessions have asked.
_QUESTIONS = """
    SELECT t.session_id, q.id, q.turn_id, q.kind, q.call_id, q.deadline, q.message_id, q.state,
           q.answer, q.scope, q.answered_by
    FROM turns t CROSS JOIN questions q
    WHERE q.turn_id = t.id AND t.session_id >= $1 AND t.session_id <= $2 ORDER BY q.id"""
# Reads the calls of a range of sessions whose fate was unknown.
_EFFECTS = """
    SELECT t.session_id, e.call_id, e.turn_id, e.tool, e.state, e.told_turn_id
    FROM turns t CROSS JOIN effects e
    WHERE e.turn_id = t.id AND t.session_id >= $1 AND t.session_id <= $2 ORDER BY e.call_id"""
# Reads the work that turns of a range of sessions have given to other agents.
_DELEGATIONS = """
    SELECT t.session_id, d.errand_id, d.turn_id, d.call_id, d.deadline, d.state, d.is_live
    FROM turns t CROSS JOIN delegations d
    WHERE d.turn_id = t.id AND t.session_id >= $1 AND t.session_id <= $2 ORDER BY d.errand_id"""
# Counts the errands that write summaries for a range of sessions. Repeats the condition of the
# partial index word for word, so that it is used.
_UNDER_WAY = f"""
    SELECT s.parent_id, count(*) FROM sessions s JOIN turns t ON t.session_id = s.id
    WHERE s.parent_id >= $1 AND s.parent_id <= $2 AND s.kind <> '' AND s.kind = '{TurnKind.SUMMARY}'
      AND t.outcome IS NULL GROUP BY s.parent_id"""
# Reads the updates of a range of sessions. Several events may name the message of one update.
_UPDATES = """
    SELECT DISTINCT i.session_id, i.external_id, i.adapter, i.account, i.kind, i.turn_id,
                    i.message_id
    FROM journal j CROSS JOIN inbox i
    WHERE i.message_id = j.message_id AND i.session_id = j.session_id
      AND j.session_id >= $1 AND j.session_id <= $2"""
# Reads the next of all updates, each with the session that its turn is in.
_ALL_UPDATES = """
    SELECT i.external_id, i.adapter, i.account, i.kind, i.session_id, i.message_id, i.turn_id,
           t.session_id
    FROM inbox i LEFT JOIN turns t ON t.id = i.turn_id
    WHERE (i.external_id, i.adapter, i.account, i.kind) > ($1, $2, $3, $4)
    ORDER BY i.external_id, i.adapter, i.account, i.kind LIMIT $5"""
# Finds out whether a message was a command.
_IS_COMMAND = """
    SELECT 1 FROM journal
    WHERE message_id = $1 AND session_id = $2 AND kind = 'command_taken'"""
# Finds a session.
_IS_SESSION = "SELECT 1 FROM sessions WHERE id = $1"
# Records up to where a session is sound.
_NOTE = """
    INSERT INTO verified (session_id, seq, epoch) VALUES ($1, $2, $3)
    ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq, epoch = excluded.epoch"""

# The position of a pass over all updates: the key of the last one.
_AuditPosition = tuple[str, str, str, str]
BEGINNING: Final[_AuditPosition] = ("", "", "", "")


class _InSession(Protocol):
    """Describes any value that belongs to a session."""

    @property
    def session(self) -> SessionId:
        """Return the session."""
        ...


S = TypeVar("S", bound=_InSession)


class _Next(NamedTuple):
    """Holds a session, and how many events it has."""

    id: SessionId
    last_seq: int


class _Session(NamedTuple):
    """Holds a session, with the fields that belong to its turns."""

    epoch: int
    head: TurnId | None
    ready_at: int | None
    strikes: int
    view: SessionView


class _Turn(NamedTuple):
    """Holds a turn, with what is recorded for it."""

    session: SessionId
    told_seq: int
    summary: MessageId | None
    view: TurnView


class _Partial(NamedTuple):
    """Holds a turn with shown text that is not final."""

    session: SessionId
    turn: TurnId


class _Fetches(NamedTuple):
    """Holds how many files a turn waits for."""

    session: SessionId
    turn: TurnId
    files: int


class _Part(NamedTuple):
    """Holds a part as the checker needs it."""

    session: SessionId
    id: str
    message: str
    turn: TurnId | None
    number: int
    adapter: str
    state: str
    attempts: int
    receipt: str
    error: str
    text: str


class _Question(NamedTuple):
    """Holds a question that a turn has asked."""

    session: SessionId
    record: QuestionRecord


class _Effect(NamedTuple):
    """Holds a call whose fate was unknown."""

    session: SessionId
    record: EffectRecord


class _Delegation(NamedTuple):
    """Holds work that a turn of a session has given away."""

    session: SessionId
    record: DelegationRecord


class _UnderWay(NamedTuple):
    """Holds how many summaries are being written for a session."""

    session: SessionId
    errands: int


class _Update(NamedTuple):
    """Holds an update of a session, and what became of it."""

    session: SessionId
    external_id: str
    adapter: str
    account: str
    kind: str
    turn: TurnId | None
    message: MessageId


class _AnyUpdate(NamedTuple):
    """Holds an update of any session. `turns_session` is the session that its turn is in."""

    external_id: str
    adapter: str
    account: str
    kind: str
    session: SessionId
    message: MessageId
    turn: TurnId | None
    turns_session: SessionId | None


def count(*, only_new: bool) -> Op[int]:
    """Return how many sessions there are, or how many were changed since they were found sound."""
    number = yield from one(int, _COUNT_NEW if only_new else _COUNT)
    assert number is not None
    return number


def batch(*, after: SessionId | None, only_new: bool) -> Op[list[SessionId]]:
    """Return the next sessions, as many as one read should take, but at least one, however long it
    is."""
    sql = _BATCH_NEW if only_new else _BATCH
    sessions: list[SessionId] = []
    events = 0
    for each in (yield from many(_Next, sql, after or "", SESSIONS_AT_ONCE)):
        events += each.last_seq
        if sessions and events > EVENTS_AT_ONCE:
            break
        sessions.append(each.id)
    return sessions


def records(first: SessionId, last: SessionId) -> Op[list[SessionRecord]]:
    """Return everything stored of a range of sessions."""
    sessions = yield from many(_session, _SESSIONS, first, last)
    turns = _by_session((yield from many(_turn, _TURNS, first, last)))
    events = _by_session((yield from many(journal.entry, _EVENTS, first, last)))
    partials = _by_session((yield from many(_Partial, _PARTIALS, first, last)))
    fetches = _by_session((yield from many(_Fetches, _FETCHES, first, last)))
    parts = _by_session((yield from many(_Part, _PARTS, first, last)))
    updates = _by_session((yield from many(_Update, _UPDATES, first, last)))
    questions = _by_session((yield from many(_question, _QUESTIONS, first, last)))
    effects = _by_session((yield from many(_effect, _EFFECTS, first, last)))
    delegations = _by_session((yield from many(_delegation, _DELEGATIONS, first, last)))
    counted = yield from many(_UnderWay, _UNDER_WAY, first, last)
    under_way = {each.session: each.errands for each in counted}
    found = []
    for session in sessions:
        session_id = session.view.id
        of_session = turns[session_id]
        found.append(
            SessionRecord(
                session=session.view,
                epoch=session.epoch,
                head=session.head,
                ready_at=session.ready_at,
                strikes=session.strikes,
                turns=tuple(each.view for each in of_session),
                events=tuple(events[session_id]),
                partials=tuple(each.turn for each in partials[session_id]),
                parts=tuple(_part(each) for each in parts[session_id]),
                updates=tuple(
                    (each.external_id, each.turn, each.message) for each in updates[session_id]
                ),
                summaries=(yield from _summaries(of_session)),
                summaries_under_way=under_way.get(session_id, 0),
                fetches=_counted(fetches[session_id]),
                told=tuple((each.view.id, each.told_seq) for each in of_session if each.told_seq),
                questions=tuple(each.record for each in questions[session_id]),
                effects=tuple(each.record for each in effects[session_id]),
                delegations=tuple(each.record for each in delegations[session_id]),
            )
        )
    return found


def _session(
    epoch: int, head: TurnId | None, ready_at: int | None, strikes: int, *columns: Any
) -> _Session:
    """Return the session in a row of `_SESSIONS`."""
    view = history.session_view(history.SessionRow(*columns))
    return _Session(epoch, head, ready_at, strikes, view)


def _turn(told_seq: int, summary: MessageId | None, *columns: Any) -> _Turn:
    """Return the turn in a row of `_TURNS`."""
    view = history.turn_view(history.TurnRow(*columns))
    return _Turn(view.session, told_seq, summary, view)


def _question(session: SessionId, *columns: Any) -> _Question:
    """Return the question in a row of `_QUESTIONS`."""
    return _Question(session, QuestionRecord(*columns))


def _effect(session: SessionId, *columns: Any) -> _Effect:
    """Return the call in a row of `_EFFECTS`."""
    return _Effect(session, EffectRecord(*columns))


def _delegation(session: SessionId, *columns: Any) -> _Delegation:
    """Return the delegation in a row of `_DELEGATIONS`."""
    return _Delegation(session, DelegationRecord(*columns))


def _by_session(found: Iterable[S]) -> defaultdict[SessionId, list[S]]:
    """Return the values of each session, in the order in which they were read."""
    sessions: defaultdict[SessionId, list[S]] = defaultdict(list)
    for each in found:
        sessions[each.session].append(each)
    return sessions


def _part(found: _Part) -> PartView:
    """Return the part that a row holds."""
    return PartView(
        id=found.id,
        message=found.message,
        turn=found.turn,
        part=found.number,
        adapter=found.adapter,
        state=found.state,
        attempts=found.attempts,
        receipt=found.receipt,
        error=found.error,
        text=found.text,
    )


def _summaries(turns: Iterable[_Turn]) -> Op[tuple[SummaryView, ...]]:
    """Return the summaries that represent these turns, with the events that made them, in whichever
    journal those are."""
    found: list[SummaryView] = []
    for turn in turns:
        summary = turn.summary
        if summary is not None:
            made = yield from journal.of_message(summary)
            views = [SummaryView(turn=turn.view.id, id=summary, made=each) for each in made]
            found += views or [SummaryView(turn=turn.view.id, id=summary, made=None)]
    return tuple(found)


def _counted(fetches: Iterable[_Fetches]) -> tuple[tuple[TurnId, int], ...]:
    """Return how many files each turn waits for. Pending files and those being fetched come as
    separate counts, and are added here."""
    counts: Counter[TurnId] = Counter()
    for each in fetches:
        counts[each.turn] += each.files
    return tuple(counts.items())


def suspects(after: _AuditPosition) -> Op[tuple[set[SessionId], _AuditPosition | None]]:
    """Check the next updates. Returns the sessions of updates that are no commands and whose turn
    is in another session, and the position to continue from; None at the end."""
    found = yield from many(_AnyUpdate, _ALL_UPDATES, *after, UPDATES_AT_ONCE)
    astray: set[SessionId] = set()
    for each in found:
        is_here = each.turn is None or each.turns_session == each.session
        if not is_here and not (yield from exists(_IS_COMMAND, each.message, each.session)):
            astray.add(each.session)
    if len(found) < UPDATES_AT_ONCE:
        return astray, None
    last = found[-1]
    return astray, (last.external_id, last.adapter, last.account, last.kind)


def note(sound: Sequence[SessionMark]) -> Op[None]:
    """Record up to where sessions are sound, except sessions that do not exist any more."""
    for mark in sound:
        if (yield from exists(_IS_SESSION, mark.session)):
            yield from run(_NOTE, mark.session, mark.seq, mark.epoch)
