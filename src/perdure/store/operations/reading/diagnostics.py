"""Reads what operators need: how much waits, and everything about one session for the checker."""

from collections import Counter
from typing import NamedTuple

import msgspec

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.records import (
    DelegationRecord,
    EffectRecord,
    PartView,
    QuestionRecord,
    SessionRecord,
    SummaryView,
)
from perdure.domain.kinds import TurnKind
from perdure.domain.turn.turn import AT_WORK, State
from perdure.ports.records.history import Counts, Page
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.delivery import parked
from perdure.store.operations.delivery.parked import IS_PARKED, PARTS, ShownPart
from perdure.store.operations.delivery.parked import view as part_view
from perdure.store.operations.reading import history
from perdure.store.statement import Op, many, one, sql_list

# Reads the parts of a session, in the order of their line.
_PARTS_OF_SESSION = PARTS + "WHERE o.session_id = $1 ORDER BY o.place_in_line"
# Reads the updates that came into a session.
_UPDATES_OF_SESSION = "SELECT external_id, turn_id, message_id FROM inbox WHERE session_id = $1"
# Reads the fields of a session that belong to its turns.
_SESSION = "SELECT epoch, head_turn, ready_at, strikes FROM sessions WHERE id = $1"
# Reads the summaries that represent turns of a session, with the events that made them.
_SUMMARIES = """
    SELECT t.id, t.summary_id, j.session_id, j.seq, j.at, j.kind, j.body
    FROM turns t LEFT JOIN journal j ON j.message_id = t.summary_id
    WHERE t.session_id = $1 AND t.summary_id IS NOT NULL"""
# Counts the errands that write a summary for a session.
_UNDER_WAY = f"""
    SELECT count(*) FROM sessions s JOIN turns t ON t.session_id = s.id
    WHERE s.parent_id = $1 AND s.kind = '{TurnKind.SUMMARY}' AND t.outcome IS NULL"""
# Counts the files that turns of a session wait for.
_FETCHES = """
    SELECT f.turn_id, count(*) FROM fetches f JOIN turns t ON t.id = f.turn_id
    WHERE t.session_id = $1 AND f.state IN ('pending', 'attempting') GROUP BY f.turn_id"""
# Reads up to where the model was told about interruptions of a session's turns.
_TOLD = "SELECT id, told_seq FROM turns WHERE session_id = $1 AND told_seq > 0"
# Reads the questions that turns of a session have asked.
_QUESTIONS = """
    SELECT q.id, q.turn_id, q.kind, q.call_id, q.deadline, q.message_id, q.state, q.answer, q.scope,
           q.answered_by
    FROM questions q JOIN turns t ON t.id = q.turn_id WHERE t.session_id = $1 ORDER BY q.id"""
# Reads the work that turns of a session have given to other agents.
_DELEGATIONS = """
    SELECT d.errand_id, d.turn_id, d.call_id, d.deadline, d.state, d.is_live
    FROM delegations d JOIN turns t ON t.id = d.turn_id
    WHERE t.session_id = $1 ORDER BY d.errand_id"""
# Reads the calls of a session whose fate was unknown.
_EFFECTS = """
    SELECT e.call_id, e.turn_id, e.tool, e.state, e.told_turn_id
    FROM effects e JOIN turns t ON t.id = e.turn_id WHERE t.session_id = $1 ORDER BY e.call_id"""
# Finds the turns of a session with shown text that is not final.
_PARTIALS = """
    SELECT DISTINCT p.turn_id FROM partials p JOIN turns t ON t.id = p.turn_id
    WHERE t.session_id = $1"""
# A condition that lets the database use the index of turns at work.
_AT_WORK = f"state IN {sql_list(AT_WORK)}"
# Counts what waits, what is at work, and what is parked.
_COUNTS = f"""
    SELECT (SELECT count(*) FROM turns WHERE outcome IS NULL AND state = '{State.QUEUED}'),
           (SELECT count(*) FROM turns WHERE {_AT_WORK} AND state = '{State.RUNNING}'),
           (SELECT count(*) FROM turns WHERE {_AT_WORK} AND state = '{State.WAITING}'),
           (SELECT count(*) FROM turns WHERE state = '{State.INTERRUPTED}'),
           (SELECT count(*) FROM outbox WHERE state IN ('pending', 'attempting')),
           (SELECT count(*) FROM outbox o WHERE {IS_PARKED})"""
# Lists the tables of an SQLite database.
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
# Counts the parts that wait to be sent or are being sent, by adapter.
_OUTBOX_DEPTHS = """
    SELECT adapter, count(*) FROM outbox WHERE state = 'pending' GROUP BY adapter
    UNION ALL
    SELECT adapter, count(*) FROM outbox WHERE state = 'attempting' GROUP BY adapter"""
# Checks one table of an SQLite database, with its indexes.
_INTEGRITY = 'PRAGMA integrity_check("{table}")'


class _Kept(NamedTuple):
    """Holds the fields of a session that belong to its turns."""

    epoch: int
    head: TurnId | None
    ready_at: int | None
    strikes: int


class _Update(NamedTuple):
    """Holds an update, and what became of it."""

    external_id: str
    turn: TurnId | None
    message: MessageId


class _OfTurn(NamedTuple):
    """Holds a number that belongs to a turn."""

    turn: TurnId
    number: int


class _Summary(NamedTuple):
    """Holds a summary that represents a turn, and the event that made it, if there is one."""

    turn: TurnId
    id: MessageId
    session: SessionId | None
    seq: int
    at: int
    kind: str
    body: str


class _Depth(NamedTuple):
    """Holds how many parts of an adapter are on their way."""

    adapter: str
    parts: int


def counts() -> Op[Counts]:
    """Return how much waits, is at work, and is parked."""
    found = yield from one(_counts, _COUNTS)
    assert found is not None
    depths: Counter[str] = Counter()
    for each in (yield from many(_Depth, _OUTBOX_DEPTHS)):
        depths[each.adapter] += each.parts
    return msgspec.structs.replace(found, outbox_depths=tuple(sorted(depths.items())))


def _counts(
    queued: int, running: int, waiting: int, interrupted: int, pending: int, stuck: int
) -> Counts:
    """Return the counts that a row holds."""
    return Counts(
        queued=queued,
        running=running,
        waiting=waiting,
        interrupted=interrupted,
        outbox_pending=pending,
        outbox_parked=stuck,
    )


def parked_parts(*, limit: int) -> Op[list[PartView]]:
    """Return what is parked, newest first."""
    return (yield from parked.page(Page(limit=limit)))


def record(session_id: SessionId) -> Op[SessionRecord]:
    """Return everything stored of one session, for the checker."""
    session = yield from history.session(session_id, scope=None)
    kept = yield from one(_Kept, _SESSION, session_id)
    assert kept is not None
    turns = yield from history.turns_of(session_id)
    events = yield from journal.all_of(session_id)
    partials = yield from many(TurnId, _PARTIALS, session_id)
    fetches = yield from many(_OfTurn, _FETCHES, session_id)
    parts = yield from many(ShownPart, _PARTS_OF_SESSION, session_id)
    updates = yield from many(_Update, _UPDATES_OF_SESSION, session_id)
    summaries = yield from many(_Summary, _SUMMARIES, session_id)
    told = yield from many(_OfTurn, _TOLD, session_id)
    questions = yield from many(QuestionRecord, _QUESTIONS, session_id)
    effects = yield from many(EffectRecord, _EFFECTS, session_id)
    delegations = yield from many(DelegationRecord, _DELEGATIONS, session_id)
    under_way = yield from one(int, _UNDER_WAY, session_id)
    assert under_way is not None
    return SessionRecord(
        session=session,
        epoch=kept.epoch,
        head=kept.head,
        ready_at=kept.ready_at,
        strikes=kept.strikes,
        turns=tuple(turns),
        events=tuple(events),
        partials=tuple(partials),
        parts=tuple(part_view(each) for each in parts),
        updates=tuple((each.external_id, each.turn, each.message) for each in updates),
        summaries=tuple(_summary(each) for each in summaries),
        summaries_under_way=under_way,
        fetches=tuple((each.turn, each.number) for each in fetches),
        told=tuple((each.turn, each.number) for each in told),
        questions=tuple(questions),
        effects=tuple(effects),
        delegations=tuple(delegations),
    )


def _summary(found: _Summary) -> SummaryView:
    """Return a summary that represents a turn, with the event that made it."""
    made = None
    if found.session:
        made = journal.entry(found.session, found.seq, found.at, found.kind, found.body)
    return SummaryView(turn=found.turn, id=found.id, made=made)


def tables(dialect: Dialect) -> Op[list[str]]:
    """Return the tables that SQLite can check, with the schema itself. Returns none for PostgreSQL,
    which has no such check for clients."""
    if dialect.name != "sqlite":
        return []
    return ["sqlite_schema", *(yield from many(str, _TABLES))]


def integrity(table: str) -> Op[list[str]]:
    """Return what SQLite's own check finds in one table and its indexes. One table at a time,
    because a check of all would be one long read, during which the write-ahead log grows."""
    found = yield from many(str, _INTEGRITY.format(table=table))
    return [each for each in found if each != "ok"]
