"""Appends events to a session's journal and reads them back.

`last_seq` in the session's row gives out the numbers, without gaps. Updating it also takes the row
lock that makes the writers of one session wait for each other on PostgreSQL. The number and the
event are one transaction, so a crash leaves neither a gap nor a number used twice.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perdure.domain.errors import Fenced
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.codec import decode, encode
from perdure.domain.journal.events import AnyEvent, Recorded, ToolFinished, TurnMoved
from perdure.store import statement
from perdure.store.statement import Op, many, run

# Reserves the numbers of the next events, whoever holds the session.
_RESERVE = """
    UPDATE sessions SET last_seq = last_seq + $1 WHERE id = $2 RETURNING last_seq"""
# Reserves the numbers of the next events, only for the holder of this epoch.
_RESERVE_FENCED = """
    UPDATE sessions SET last_seq = last_seq + $1 WHERE id = $2 AND epoch = $3
    RETURNING last_seq"""
# Locks the session, only for the holder of this epoch.
_FENCE = "SELECT last_seq FROM sessions WHERE id = $1 AND epoch = $2 FOR UPDATE"
# Writes one event under its number.
_INSERT = """
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7)"""
# The columns from which `entry` makes an event.
COLUMNS = "session_id, seq, at, kind, body"
# Reads all entries of a turn, from every journal that has some.
_OF_TURN = f"SELECT {COLUMNS} FROM journal WHERE turn_id = $1 ORDER BY seq"
# Measures the entries after a seq. Neither database reads a text to tell its length in bytes.
_SIZES = """
    SELECT seq, OCTET_LENGTH(body) FROM journal WHERE session_id = $1 AND seq > $2
    ORDER BY seq LIMIT $3"""
# Reads a page of a session's entries.
_BETWEEN = f"""
    SELECT {COLUMNS} FROM journal WHERE session_id = $1 AND seq > $2 AND seq <= $3
    ORDER BY seq"""
# Reads the whole journal of a session.
_ALL = f"SELECT {COLUMNS} FROM journal WHERE session_id = $1 ORDER BY seq"
# Reads the entry with this number.
_ONE = f"SELECT {COLUMNS} FROM journal WHERE session_id = $1 AND seq = $2"
# Measures the entries of a turn without reading them.
_SIZE_OF_TURN = "SELECT COALESCE(SUM(OCTET_LENGTH(body)), 0) FROM journal WHERE turn_id = $1"
# Reads the entries about a message: its arrival, and later changes of it.
_OF_MESSAGE = f"SELECT {COLUMNS} FROM journal WHERE message_id = $1 ORDER BY seq"


class _Size(NamedTuple):
    seq: int
    size: int


def entry(session: SessionId, seq: int, at: int, kind: str, body: str) -> Recorded:
    """Return the event that these columns of a row hold."""
    return Recorded(session=session, seq=seq, at=at, event=decode(kind, body))


def fence(session: SessionId, epoch: int) -> Op[int]:
    """Raise `Fenced` unless the lease still holds, and lock the session so that it holds until the
    transaction ends. Returns the seq of the session's last event."""
    last_seq = yield from statement.one(int, _FENCE, session, epoch)
    if last_seq is None:
        raise Fenced(f"another holder has taken over session {session}")
    return last_seq


def append(
    session: SessionId, events: Sequence[AnyEvent], *, at: int, epoch: int | None = None
) -> Op[list[Recorded]]:
    """Append events in order. With an epoch, raises `Fenced` if it is stale, and nothing is
    written."""
    if epoch is None:
        last_seq = yield from statement.one(int, _RESERVE, len(events), session)
    else:
        last_seq = yield from statement.one(int, _RESERVE_FENCED, len(events), session, epoch)
    if last_seq is None:
        raise Fenced(f"another holder has taken over session {session}")
    return (yield from write(session, events, after=last_seq - len(events), at=at))


def write(
    session: SessionId, events: Sequence[AnyEvent], *, after: int, at: int
) -> Op[list[Recorded]]:
    """Insert events whose numbers the caller has reserved, from `after + 1` on."""
    recorded = [
        Recorded(session=session, seq=seq, at=at, event=event)
        for seq, event in enumerate(events, after + 1)
    ]
    for each in recorded:
        event = each.event
        kind, body = encode(event)
        message = event.call if isinstance(event, ToolFinished) else getattr(event, "message", None)
        yield from run(_INSERT, session, each.seq, each.turn, message, kind, at, body)
    return recorded


def of_turn(turn: TurnId) -> Op[list[Recorded]]:
    """Return a turn's events, from the journal of the session that the turn is in now."""
    return where_it_is((yield from many(entry, _OF_TURN, turn)))


def where_it_is(turn: list[Recorded]) -> list[Recorded]:
    """Return only the entries from the session that the turn is in now. A turn that was moved has
    entries in several journals; the last of them holds the whole turn."""
    left = {recorded.session for recorded in turn if isinstance(recorded.event, TurnMoved)}
    return [recorded for recorded in turn if recorded.session not in left] if left else turn


def of_message(message: str) -> Op[list[Recorded]]:
    """Return the entries about a message, from all journals."""
    return (yield from many(entry, _OF_MESSAGE, message))


def since(session: SessionId, seq: int, *, limit: int, bytes_max: int) -> Op[list[Recorded]]:
    """Return a page of the entries after `seq`: as many as fit in `bytes_max`, but at least one.
    Sizes are measured first, so that no more than the page is read."""
    sizes = yield from many(_Size, _SIZES, session, seq, limit)
    fitting = fits([each.size for each in sizes], bytes_max)
    if not fitting:
        return []
    last = sizes[fitting - 1].seq
    return (yield from many(entry, _BETWEEN, session, seq, last))


def all_of(session: SessionId) -> Op[list[Recorded]]:
    """Return a session's whole journal, however long. Only the checker needs that."""
    return (yield from many(entry, _ALL, session))


def one(session: SessionId, seq: int) -> Op[Recorded]:
    """Return the entry with this number, which must exist."""
    found = yield from statement.one(entry, _ONE, session, seq)
    assert found is not None, "what refers to an entry goes with it"
    return found


def size_of_turn(turn: TurnId) -> Op[int]:
    """Return how many bytes the entries of a turn take, without reading them."""
    size = yield from statement.one(int, _SIZE_OF_TURN, turn)
    assert size is not None, "a sum is always one row"
    return size


def fits(sizes: Iterable[int], bytes_max: int) -> int:
    """Return how many entries of these sizes fit on a page: at least one, if there is any."""
    total, count = 0, 0
    for size in sizes:
        total += size
        if count and total > bytes_max:
            break
        count += 1
    return count
