"""Indexes what was said, and searches it.

Finished turns wait in `unindexed` and are indexed many at once: indexing each turn in its own
transaction would cost as much as everything else. A search first indexes what waits, so it misses
nothing that is over. One transaction indexes a bounded number of turns and of bytes, because
nothing else is written meanwhile. The row in `unindexed` is written in the transaction that ends
the turn and deleted in the one that indexes it, so no crash loses a turn.

Only `index_waiting` writes the index, so the scope of words is decided in one place. Words that
come later, by an edit of an indexed turn, wait like the rest.
"""

from typing import Final, NamedTuple, get_args

from perdure.domain.address import HTTP
from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.attachments import SHOWN_TEXT_MAX
from perdure.domain.journal.codec import KIND_OF
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
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.reading import pieces
from perdure.store.operations.sessions.scopes import SCOPE, SearchScope
from perdure.store.statement import Op, exists, many, one, run

_Said = TurnQueued | MessageJoined | MediaFetched | SteerTaken | TurnAmended | AssistantSaid
_SAID: Final = frozenset(KIND_OF[each] for each in get_args(_Said))
# How many bytes are indexed before a transaction ends: longer turns wait for the next one.
INDEXED_BYTES: Final = 4_000_000
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
# Finds the conversation of a session.
_PLACE = f"""
    SELECT {ADDRESS}, c.archived_at, c.hidden_at, COALESCE(p.name, '')
    FROM sessions s JOIN conversations c ON c.id = s.conversation_id
    LEFT JOIN principals p ON p.id = c.account AND c.adapter = '{HTTP}'
    WHERE s.id = $1"""


class _Place(NamedTuple):
    """Holds where a session is, on which shelf, and whose it is over HTTP."""

    adapter: str
    account: str
    place: str
    thread: str
    person: str
    archived_at: int | None
    hidden_at: int | None
    name: str


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
    """Index at most `limit` of the waiting turns, and no further one after `INDEXED_BYTES`. Returns
    whether there may be more."""
    waiting = yield from many(_Waits, _WAITING, limit)
    size = 0
    for each in waiting:
        if size > INDEXED_BYTES:
            return True
        size += yield from _index(dialect, each)
        yield from run(_DONE, each.id)
    return len(waiting) == limit


def _index(dialect: Dialect, waits: _Waits) -> Op[int]:
    """Index what was said in a turn, from one of its entries on. The entries are read one by one,
    so that no more than one is in memory. Returns how many bytes they have."""
    first, *later = yield from pieces.sketch_of(waits.turn)
    begun = yield from journal.one(first.session, first.seq)
    if isinstance(begun.event, TurnQueued) and begun.event.kind.is_errand:
        return 0  # an errand's result is said, and indexed, in another turn
    scope = yield from one(str, _SCOPE, first.session)
    assert scope is not None
    repeated = yield from _repeated(begun)
    if first.seq >= waits.from_seq:
        yield from _index_entry(dialect, begun, scope, repeated)
    del begun
    said = [each for each in later if each.kind in _SAID and each.seq >= waits.from_seq]
    for each in said:
        recorded = yield from journal.one(each.session, each.seq)
        yield from _index_entry(dialect, recorded, scope, repeated)
    return first.size + sum(each.size for each in said)


def _index_entry(
    dialect: Dialect, recorded: Recorded, scope: str, repeated: MessageId | None
) -> Op[None]:
    """Index the words of one entry, if it has any. Those of the message `repeated` are indexed
    where they were first said."""
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
    with_hidden: bool = False,
) -> Op[list[Hit]]:
    """Return the newest messages of a scope that contain all the words. What was said in
    conversations that their person has hidden is found only `with_hidden`."""
    if not query.split():
        return []
    found = yield from dialect.search(
        query, scope=scope, before=before, limit=limit, with_hidden=with_hidden
    )
    hits = []
    for each in found:
        place = yield from one(_Place, _PLACE, each.session)
        assert place is not None
        # Read one by one: of a long message only the excerpt stays in memory.
        recorded = yield from journal.one(each.session, each.seq)
        hits.append(_hit(each.cursor, place, recorded, query, is_everybodys=scope is None))
    return hits


def _hit(cursor: int, place: _Place, recorded: Recorded, query: str, *, is_everybodys: bool) -> Hit:
    """Return a found message, with the text around the words. Whose it is, is told to those who
    find what everybody has said."""
    event = recorded.event
    assert isinstance(event, _Said), "nothing else is indexed"
    return Hit(
        cursor=cursor,
        conversation=address_of(*place[:5]).name,
        person=place.name if is_everybodys else "",
        archived=place.archived_at is not None,
        hidden=place.hidden_at is not None,
        session=recorded.session,
        turn=event.turn,
        message=event.message,
        role="assistant" if isinstance(event, AssistantSaid) else "user",
        text=excerpt(event.text, query, length=SHOWN_TEXT_MAX),
        at=recorded.at,
    )
