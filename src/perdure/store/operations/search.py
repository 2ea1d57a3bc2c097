"""Full text. Turns that are over wait in `unindexed` and are indexed many at once: an index that
followed each turn would cost as much as everything else. Who searches indexes first what waits, so
nothing that is over is missed.

`index_waiting` is the only one that writes the index, so whose the words are is decided in one
place. Words that come late, by an edit of a turn that is in the index already, wait like the rest.
"""

from collections.abc import Sequence

from perdure.domain.errands import UNASKED, errand_of
from perdure.domain.events import (
    AssistantSaid,
    MediaFetched,
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.ids import MessageId, TurnId
from perdure.ports.history import Hit
from perdure.store.dialect import Dialect, Searchable
from perdure.store.operations import history, journal
from perdure.store.operations.scopes import SCOPE, Scope
from perdure.store.statement import Op, row, rows, run

_WAIT = "INSERT INTO unindexed (turn_id, from_seq) VALUES ($1, $2)"
_WAITING = "SELECT id, turn_id, from_seq FROM unindexed ORDER BY id LIMIT $1 FOR UPDATE"
_IS_WAITING = "SELECT 1 FROM unindexed WHERE turn_id = $1 FOR UPDATE"
_DONE = "DELETE FROM unindexed WHERE id = $1"
_SESSION_OF = "SELECT session_id FROM turns WHERE id = $1"
_SCOPE = f"""
    SELECT {SCOPE} FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    WHERE s.id = $1"""


def wait(turn: TurnId) -> Op[None]:
    """Mark a turn that is over: all that was said in it is to be indexed."""
    yield from run(_WAIT, turn, 0)


def wait_again(recorded: Recorded) -> Op[None]:
    """Mark an event that was appended to a turn after its end: it is to be indexed too. A turn that
    still waits will be indexed with it. The row is locked first: an index run that has read the
    turn before this event would else remove the row, and the event would never be found."""
    assert recorded.turn is not None
    if (yield from row(_IS_WAITING, recorded.turn)) is None:
        yield from run(_WAIT, recorded.turn, recorded.seq)


def index_waiting(dialect: Dialect, *, limit: int) -> Op[bool]:
    """Index at most `limit` turns of those that wait. Returns whether there may be more."""
    waiting = yield from rows(_WAITING, limit)
    for number, turn, from_seq in waiting:
        yield from _index(dialect, (yield from journal.of_turn(turn)), from_seq)
        yield from run(_DONE, number)
    return len(waiting) == limit


def _index(dialect: Dialect, turn: Sequence[Recorded], from_seq: int) -> Op[None]:
    queued = turn[0].event
    if isinstance(queued, TurnQueued) and errand_of(queued.kind):
        return  # what it brings back is said where people find it
    scope = yield from row(_SCOPE, turn[0].session)
    assert scope is not None
    repeated = yield from _repeated(turn[0])
    for recorded in turn:
        if recorded.seq < from_seq:
            continue
        match recorded.event:
            case TurnQueued(message=message) | TurnAmended(message=message) if message == repeated:
                pass
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


def _repeated(first: Recorded) -> Op[MessageId | None]:
    """The message of a turn that asks again what was asked in its session before. Its words, and
    what its author makes of them later, are found where they were said first."""
    queued = first.event
    if not isinstance(queued, TurnQueued) or not queued.origin or queued.kind in UNASKED:
        return None
    said = yield from row(_SESSION_OF, queued.origin)
    return queued.message if said is not None and said[0] == first.session else None


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
