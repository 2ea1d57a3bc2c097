"""Appending to a session's journal and reading it back.

`last_seq` on the session row gives out gapless numbers; updating it also takes the row lock that
makes one session's writers queue up on PostgreSQL.
"""

from collections.abc import Iterable, Sequence

from perdure.domain.codec import decode, encode
from perdure.domain.errors import Fenced
from perdure.domain.events import AnyEvent, Recorded, ToolFinished, TurnMoved
from perdure.domain.ids import SessionId, TurnId
from perdure.store.dialect import Dialect
from perdure.store.statement import Op, Row, row, rows, run

_RESERVE = """
    UPDATE sessions SET last_seq = last_seq + $1 WHERE id = $2 RETURNING last_seq"""
_RESERVE_FENCED = """
    UPDATE sessions SET last_seq = last_seq + $1 WHERE id = $2 AND epoch = $3
    RETURNING last_seq"""
_FENCE = "SELECT last_seq FROM sessions WHERE id = $1 AND epoch = $2 FOR UPDATE"
_INSERT = """
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7)"""
_COLUMNS = "session_id, seq, at, kind, body"
_OF_TURN = f"SELECT {_COLUMNS} FROM journal WHERE turn_id = $1 ORDER BY seq"
_SINCE = f"""
    SELECT {_COLUMNS} FROM journal WHERE session_id = $1 AND seq > $2
    ORDER BY seq LIMIT $3"""
_OF_MESSAGE = f"SELECT {_COLUMNS} FROM journal WHERE message_id = $1 ORDER BY seq"


def fence(session: SessionId, epoch: int) -> Op[int]:
    """Insist that the lease is still good, and keep it so until the transaction ends. The number
    of the session's last event."""
    found = yield from row(_FENCE, session, epoch)
    if found is None:
        raise Fenced(f"another holder has taken over session {session}")
    last_seq: int = found[0]
    return last_seq


def append(
    dialect: Dialect,
    session: SessionId,
    events: Sequence[AnyEvent],
    *,
    at: int,
    epoch: int | None = None,
) -> Op[list[Recorded]]:
    """Append events in order. With an epoch, a stale one is `Fenced` and nothing is written."""
    if epoch is None:
        reserved = yield from row(_RESERVE, len(events), session)
    else:
        reserved = yield from row(_RESERVE_FENCED, len(events), session, epoch)
    if reserved is None:
        raise Fenced(f"another holder has taken over session {session}")
    return (yield from write(session, events, after=reserved[0] - len(events), at=at))


def write(
    session: SessionId, events: Sequence[AnyEvent], *, after: int, at: int
) -> Op[list[Recorded]]:
    """Insert events whose numbers the caller has reserved."""
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


def read_row(found: Row) -> Recorded:
    session, seq, at, kind, body = found
    return Recorded(session=session, seq=seq, at=at, event=decode(kind, body))


def read_rows(found: Iterable[Row]) -> list[Recorded]:
    return [read_row(each) for each in found]


def of_turn(turn: TurnId) -> Op[list[Recorded]]:
    return where_it_is(read_rows((yield from rows(_OF_TURN, turn))))


def where_it_is(turn: list[Recorded]) -> list[Recorded]:
    """A turn that has moved stands in several journals, and in the last of them as a whole."""
    left = {recorded.session for recorded in turn if isinstance(recorded.event, TurnMoved)}
    return [recorded for recorded in turn if recorded.session not in left] if left else turn


def of_message(message: str) -> Op[list[Recorded]]:
    return read_rows((yield from rows(_OF_MESSAGE, message)))


def since(session: SessionId, seq: int, *, limit: int) -> Op[list[Recorded]]:
    return read_rows((yield from rows(_SINCE, session, seq, limit)))
