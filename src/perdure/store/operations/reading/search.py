"""Indexes what was said, and searches it.

Finished turns wait in `unindexed` and are indexed many at once: indexing each turn in its own
transaction would cost as much as everything else. A search first indexes what waits, so it misses
nothing that is over. The row in `unindexed` is written in the transaction that ends the turn and
deleted in the one that indexes it, so no crash loses a turn.

Only `index_waiting` writes the index, so the scope of words is decided in one place. Words that
come later, by an edit of an indexed turn, wait like the rest.
"""

from collections.abc import Sequence
from typing import NamedTuple

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.attachments import SHOWN_TEXT_MAX
from perdure.domain.journal.events import (
    AssistantSaid,
    MediaFetched,
    MessageJoined,
    Recorded,
    SteerTaken,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.kinds import UNASKED
from perdure.domain.text import excerpt
from perdure.ports.records.history import Hit
from perdure.store.drivers.dialect import Dialect, Searchable
from perdure.store.operations import journal
from perdure.store.operations.reading import history
from perdure.store.operations.sessions.scopes import SCOPE, SearchScope
from perdure.store.statement import Op, exists, many, one, run

_Said = TurnQueued | MessageJoined | MediaFetched | SteerTaken | TurnAmended | AssistantSaid
# Lets a turn wait to be indexed, from one of its entries on.
_WAIT = "INSERT INTO unindexed (turn_id, from_seq) VALUES ($1, $2)"
# Locks what waits to be indexed, in order.
_WAITING = "SELECT id, turn_id, from_seq FROM unindexed ORDER BY id LIMIT $1 FOR UPDATE"
# Locks a turn that waits to be indexed.
_IS_WAITING = "SELECT 1 FROM unindexed WHERE turn_id = $1 FOR UPDATE"
# Removes a turn that was indexed from those that wait.
_DONE = "DELETE FROM unindexed WHERE id = $1"
# Finds the session of a turn.
_SESSION_OF = "SELECT session_id FROM turns WHERE id = $1"
# Finds the scope of a session's words.
_SCOPE = f"""
    SELECT {SCOPE} FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    WHERE s.id = $1"""


class _Waits(NamedTuple):
    """Holds a turn that waits to be indexed, from one of its entries on."""

    id: int
    turn: TurnId
    from_seq: int


def wait(turn: TurnId) -> Op[None]:
    """Let an ended turn wait to be indexed as a whole."""
    yield from _put_down(turn, 0)


def wait_again(recorded: Recorded) -> Op[None]:
    """Let an event that was appended after its turn's end wait to be indexed. If the turn itself
    still waits, the event will be indexed with it. The waiting row is locked first: otherwise an
    index run that has read the turn before this event could delete the row, and the event would
    never be found."""
    assert recorded.turn is not None
    if not (yield from exists(_IS_WAITING, recorded.turn)):
        yield from _put_down(recorded.turn, recorded.seq)


def _put_down(turn: TurnId, from_seq: int) -> Op[None]:
    """Let a turn wait to be indexed, from one of its entries on."""
    yield from run(_WAIT, turn, from_seq)


def index_waiting(dialect: Dialect, *, limit: int) -> Op[bool]:
    """Index at most `limit` of the waiting turns. Returns whether there may be more."""
    waiting = yield from many(_Waits, _WAITING, limit)
    for each in waiting:
        yield from _index(dialect, (yield from journal.of_turn(each.turn)), each.from_seq)
        yield from run(_DONE, each.id)
    return len(waiting) == limit


def _index(dialect: Dialect, turn: Sequence[Recorded], from_seq: int) -> Op[None]:
    """Index what was said in a turn, from one of its entries on."""
    queued = turn[0].event
    if isinstance(queued, TurnQueued) and queued.kind.is_errand:
        return  # an errand's result is said, and indexed, in another turn
    scope = yield from one(str, _SCOPE, turn[0].session)
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
                said = Searchable(recorded, scope, message, "user", text)
                yield from dialect.index(said)
            case AssistantSaid(message=message, text=text) if text:
                said = Searchable(recorded, scope, message, "assistant", text)
                yield from dialect.index(said)
            case _:
                pass


def _repeated(first: Recorded) -> Op[MessageId | None]:
    """Return the message of a turn that asks again what was asked in the same session. Its words,
    also edited ones, are found where they were first said."""
    queued = first.event
    if not isinstance(queued, TurnQueued) or not queued.origin or queued.kind in UNASKED:
        return None
    said_in = yield from one(SessionId, _SESSION_OF, queued.origin)
    return queued.message if said_in == first.session else None


def search(
    dialect: Dialect,
    query: str,
    *,
    scope: SearchScope | None,
    before: int | None,
    limit: int,
) -> Op[list[Hit]]:
    """Return the newest messages of a scope that contain all the words."""
    if not query.split():
        return []
    found = yield from dialect.search(query, scope=scope, before=before, limit=limit)
    hits = []
    for each in found:
        view = yield from history.session(each.session, scope=None)
        # Read one by one: of a long message only the excerpt stays in memory.
        recorded = yield from journal.one(each.session, each.seq)
        hits.append(_hit(each.cursor, view.conversation, recorded, query))
    return hits


def _hit(cursor: int, conversation: str, recorded: Recorded, query: str) -> Hit:
    """Return a found message, with the text around the words."""
    event = recorded.event
    assert isinstance(event, _Said), "nothing else is indexed"
    return Hit(
        cursor=cursor,
        conversation=conversation,
        session=recorded.session,
        turn=event.turn,
        message=event.message,
        role="assistant" if isinstance(event, AssistantSaid) else "user",
        text=excerpt(event.text, query, length=SHOWN_TEXT_MAX),
        at=recorded.at,
    )
