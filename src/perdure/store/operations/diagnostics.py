"""For operators: the chain behind one id, how much waits, and everything the checker needs."""

from collections import Counter

from perdure.domain.errors import NotFound
from perdure.domain.ids import PrincipalId, SessionId, TurnId
from perdure.domain.records import PartView, SessionRecord, SummaryView
from perdure.ports.history import Arrival, Counts, Explanation, Page
from perdure.store.dialect import Dialect
from perdure.store.operations import history, journal, parked
from perdure.store.operations.parked import IS_PARKED, PARTS
from perdure.store.operations.parked import view as part_view
from perdure.store.statement import Op, Row, row, rows

_PARTS_OF_TURN = PARTS + "WHERE o.turn_id = $1 ORDER BY o.place_in_line"
_PARTS_OF_SESSION = PARTS + "WHERE o.session_id = $1 ORDER BY o.place_in_line"
_TURN_OF_PART = "SELECT turn_id FROM outbox WHERE id = $1"
_TURN_OF_UPDATE = """
    SELECT i.turn_id FROM inbox i JOIN sessions s ON s.id = i.session_id
    WHERE i.external_id = $1
      AND (CAST($2 AS TEXT) IS NULL OR s.principal_id = $2)
    ORDER BY i.at DESC LIMIT 1"""
# Over HTTP the external id is the client's id, a line feed and the conversation's name.
_TURN_OF_CLIENT_ID = """
    SELECT i.turn_id FROM conversations c
    JOIN inbox i ON i.external_id = CAST($1 AS TEXT) || CAST($2 AS TEXT) || c.place
    WHERE c.adapter = 'http' AND (CAST($3 AS TEXT) IS NULL OR c.principal_id = $3)
    ORDER BY i.at DESC LIMIT 1"""
_UPDATES = """
    SELECT i.adapter, i.account, i.external_id, i.kind, i.at FROM journal j
    JOIN inbox i ON i.message_id = j.message_id
    WHERE j.turn_id = $1 AND i.turn_id = $1
      AND j.kind IN ('turn_queued', 'message_joined', 'steer_accepted')
    ORDER BY j.seq"""
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


def explain(any_id: str, *, principal: PrincipalId | None) -> Op[Explanation]:
    turn_id = yield from _turn_behind(any_id, principal)
    turn = yield from history.turn(turn_id, principal=principal)
    session = yield from history.session(turn.session, principal=principal)
    updates = yield from rows(_UPDATES, turn_id)
    events = yield from journal.of_turn(turn_id)
    parts = yield from rows(_PARTS_OF_TURN, turn_id)
    return Explanation(
        turn=turn,
        conversation=session.conversation,
        updates=tuple(_arrival(each) for each in updates),
        events=tuple(events),
        parts=tuple(part_view(each) for each in parts),
    )


def _turn_behind(any_id: str, principal: PrincipalId | None) -> Op[TurnId]:
    """A turn, message or part id, or the id its sender gave it; two senders may have given
    the same one, so each is shown their own."""
    if any_id.startswith("trn_"):
        return TurnId(any_id.removesuffix(".end").removesuffix(".reply"))
    found = yield from row(_TURN_OF_PART, any_id)
    if found is None:
        found = yield from row(_TURN_OF_UPDATE, any_id, principal)
    if found is None:
        found = yield from row(_TURN_OF_CLIENT_ID, any_id, "\n", principal)
    if found is not None and found[0]:
        return TurnId(found[0])
    try:
        return (yield from history.turn_of_message(any_id))
    except NotFound:
        raise NotFound(
            f"nothing here has the id {any_id}; give a message, turn or part id"
        ) from None


def _arrival(found: Row) -> Arrival:
    adapter, account, external_id, kind, at = found
    return Arrival(adapter=adapter, account=account, external_id=external_id, kind=kind, at=at)


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
    session = yield from history.session(session_id, principal=None)
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
