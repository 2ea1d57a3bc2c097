"""For operators: how much waits, and everything the checker needs."""

from collections import Counter

from perdure.domain.ids import SessionId
from perdure.domain.records import PartView, SessionRecord, SummaryView
from perdure.ports.history import Counts, Page
from perdure.store.dialect import Dialect
from perdure.store.operations import history, journal, parked
from perdure.store.operations.parked import IS_PARKED, PARTS
from perdure.store.operations.parked import view as part_view
from perdure.store.statement import Op, Row, row, rows

_PARTS_OF_SESSION = PARTS + "WHERE o.session_id = $1 ORDER BY o.place_in_line"
_UPDATES_OF_SESSION = "SELECT external_id, turn_id, message_id FROM inbox WHERE session_id = $1"
_SESSION = "SELECT epoch, head_turn, ready_at, strikes FROM sessions WHERE id = $1"
_SUMMARIES = """
    SELECT t.id, t.summary_id, j.session_id, j.seq, j.at, j.kind, j.body
    FROM turns t LEFT JOIN journal j ON j.message_id = t.summary_id
    WHERE t.session_id = $1 AND t.summary_id IS NOT NULL"""
_UNDER_WAY = """
    SELECT count(*) FROM sessions s JOIN turns t ON t.session_id = s.id
    WHERE s.parent_id = $1 AND s.kind = 'summary' AND t.outcome IS NULL"""
_FETCHES = """
    SELECT f.turn_id, count(*) FROM fetches f JOIN turns t ON t.id = f.turn_id
    WHERE t.session_id = $1 AND f.state IN ('pending', 'attempting') GROUP BY f.turn_id"""
_TOLD = "SELECT id, told_seq FROM turns WHERE session_id = $1 AND told_seq > 0"
_PARTIALS = """
    SELECT DISTINCT p.turn_id FROM partials p JOIN turns t ON t.id = p.turn_id
    WHERE t.session_id = $1"""
_COUNTS = f"""
    SELECT (SELECT count(*) FROM turns WHERE outcome IS NULL AND state = 'queued'),
           (SELECT count(*) FROM turns WHERE state IN ('running', 'waiting')),
           (SELECT count(*) FROM turns WHERE state = 'interrupted'),
           (SELECT count(*) FROM outbox WHERE state IN ('pending', 'attempting')),
           (SELECT count(*) FROM outbox o WHERE {IS_PARKED})"""
_OUTBOX_DEPTHS = """
    SELECT adapter, count(*) FROM outbox WHERE state = 'pending' GROUP BY adapter
    UNION ALL
    SELECT adapter, count(*) FROM outbox WHERE state = 'attempting' GROUP BY adapter"""


def counts() -> Op[Counts]:
    found = yield from row(_COUNTS)
    assert found is not None
    queued, running, interrupted, pending, stuck = found
    depths: Counter[str] = Counter()
    for adapter, count in (yield from rows(_OUTBOX_DEPTHS)):
        depths[adapter] += count
    return Counts(
        queued=queued,
        running=running,
        interrupted=interrupted,
        outbox_pending=pending,
        outbox_parked=stuck,
        outbox_depths=tuple(sorted(depths.items())),
    )


def parked_parts(*, limit: int) -> Op[list[PartView]]:
    return (yield from parked.page(Page(limit=limit)))


def record(session_id: SessionId) -> Op[SessionRecord]:
    session = yield from history.session(session_id, scope=None)
    columns = yield from row(_SESSION, session_id)
    assert columns is not None
    epoch, head, ready_at, strikes = columns
    turns = yield from rows(history.TURNS_OF, session_id)
    events = yield from journal.since(session_id, 0, limit=2**31)
    partials = yield from rows(_PARTIALS, session_id)
    fetches = yield from rows(_FETCHES, session_id)
    parts = yield from rows(_PARTS_OF_SESSION, session_id)
    updates = yield from rows(_UPDATES_OF_SESSION, session_id)
    summaries = yield from rows(_SUMMARIES, session_id)
    told = yield from rows(_TOLD, session_id)
    under_way = yield from row(_UNDER_WAY, session_id)
    assert under_way is not None
    return SessionRecord(
        session=session,
        epoch=epoch,
        head=head,
        ready_at=ready_at,
        strikes=strikes,
        turns=tuple(history.turn_view(each) for each in turns),
        events=tuple(events),
        partials=tuple(each[0] for each in partials),
        parts=tuple(part_view(each) for each in parts),
        updates=tuple((each[0], each[1], each[2]) for each in updates),
        summaries=tuple(_summary(each) for each in summaries),
        summaries_under_way=under_way[0],
        fetches=tuple((each[0], each[1]) for each in fetches),
        told=tuple((each[0], each[1]) for each in told),
    )


def _summary(found: Row) -> SummaryView:
    turn, summary, *columns = found
    made = journal.read_row(tuple(columns)) if columns[0] else None
    return SummaryView(turn=turn, id=summary, made=made)


def integrity(dialect: Dialect) -> Op[list[str]]:
    """The database's own check of itself; PostgreSQL has none that a client may run."""
    if dialect.name != "sqlite":
        return []
    found = yield from rows("PRAGMA integrity_check")
    return [each[0] for each in found if each[0] != "ok"]
