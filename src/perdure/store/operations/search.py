"""Full text. Turns that are over wait in `unindexed` and are indexed many at once: an index that
followed each turn would cost as much as everything else. Who searches indexes first what waits, so
nothing that is over is ever missed."""

from collections.abc import Sequence

from perdure.domain.errands import errand_of
from perdure.domain.events import (
    AssistantSaid,
    MediaFetched,
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.ids import TurnId
from perdure.ports.history import Hit
from perdure.store.dialect import Dialect, Searchable
from perdure.store.operations import history, journal
from perdure.store.operations.scopes import SCOPE, Scope
from perdure.store.statement import Op, row, rows, run

_WAIT = "INSERT INTO unindexed (turn_id) VALUES ($1)"
_WAITING = "SELECT id, turn_id FROM unindexed ORDER BY id LIMIT $1 FOR UPDATE"
_DONE = "DELETE FROM unindexed WHERE id = $1"
_SCOPE = f"""
    SELECT {SCOPE} FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    WHERE s.id = $1"""


def wait(turn: TurnId) -> Op[None]:
    """The turn is over: nothing will be said in it any more."""
    yield from run(_WAIT, turn)


def index_waiting(dialect: Dialect, *, limit: int) -> Op[bool]:
    """Whether there may be more."""
    waiting = yield from rows(_WAITING, limit)
    for number, turn in waiting:
        yield from _index(dialect, (yield from journal.of_turn(turn)))
        yield from run(_DONE, number)
    return len(waiting) == limit


def _index(dialect: Dialect, turn: Sequence[Recorded]) -> Op[None]:
    queued = turn[0].event
    if isinstance(queued, TurnQueued) and errand_of(queued.kind):
        return  # what it brings back is said where people find it
    scope = yield from row(_SCOPE, turn[0].session)
    assert scope is not None
    for recorded in turn:
        match recorded.event:
            case (
                TurnQueued(message=message, text=text)
                | MessageJoined(message=message, text=text)
                | MediaFetched(message=message, text=text)
                | SteerTaken(message=message, text=text)
                | TurnAmended(message=message, text=text)
            ) if text:
                said = Searchable(recorded, scope[0], message, "user", text)
                yield from dialect.index(said)
            case AssistantSaid(message=message, text=text) if text:
                said = Searchable(recorded, scope[0], message, "assistant", text)
                yield from dialect.index(said)
            case _:
                pass


def search(
    dialect: Dialect,
    query: str,
    *,
    scope: Scope | None,
    before: int | None,
    limit: int,
) -> Op[list[Hit]]:
    if not query.split():
        return []
    found = yield from dialect.search(query, scope=scope, before=before, limit=limit)
    hits = []
    for cursor, *columns in found:
        recorded = journal.read_row(tuple(columns))
        view = yield from history.session(recorded.session, scope=None)
        hits.append(Hit(cursor=cursor, recorded=recorded, conversation=view.conversation))
    return hits
