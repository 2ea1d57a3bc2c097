"""Appending to a session's journal and reading it back.

`last_seq` on the session row gives out gapless numbers; updating it also takes the row lock that
makes one session's writers queue up on PostgreSQL.
"""

from collections.abc import Iterable, Sequence

from perdure.domain.codec import decode, encode
from perdure.domain.errors import Fenced
from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    SteerTaken,
    ToolFinished,
    TurnAmended,
    TurnQueued,
)
from perdure.domain.ids import SessionId, TurnId
from perdure.store.dialect import Dialect, Searchable
from perdure.store.statement import Op, Row, row, rows, run

_RESERVE = """
    UPDATE sessions SET last_seq = last_seq + $1 WHERE id = $2 RETURNING last_seq"""
_RESERVE_FENCED = """
    UPDATE sessions SET last_seq = last_seq + $1 WHERE id = $2 AND epoch = $3
    RETURNING last_seq"""
_FENCE = "SELECT 1 FROM sessions WHERE id = $1 AND epoch = $2 FOR UPDATE"
_PRINCIPAL = "SELECT principal_id FROM sessions WHERE id = $1"
_INSERT = """
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7)"""
_COLUMNS = "session_id, seq, at, kind, body"
_OF_TURN = f"SELECT {_COLUMNS} FROM journal WHERE turn_id = $1 ORDER BY seq"
_SINCE = f"""
    SELECT {_COLUMNS} FROM journal WHERE session_id = $1 AND seq > $2
    ORDER BY seq LIMIT $3"""
_OF_MESSAGE = f"SELECT {_COLUMNS} FROM journal WHERE message_id = $1 ORDER BY seq"


def fence(session: SessionId, epoch: int) -> Op[None]:
    """Insist that the lease is still good, and keep it so until the transaction ends."""
    if (yield from row(_FENCE, session, epoch)) is None:
        raise Fenced(f"another holder has taken over session {session}")


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
    (last_seq,) = reserved
    recorded = [
        Recorded(session=session, seq=last_seq - len(events) + 1 + n, at=at, event=event)
        for n, event in enumerate(events)
    ]
    for each in recorded:
        yield from _insert(each)
    return recorded


def _insert(recorded: Recorded) -> Op[None]:
    event = recorded.event
    kind, body = encode(event)
    message = event.call if isinstance(event, ToolFinished) else getattr(event, "message", None)
    yield from run(
        _INSERT,
        recorded.session, recorded.seq, recorded.turn, message, kind, recorded.at, body,
    )  # fmt: skip


def index_turn(dialect: Dialect, turn: Sequence[Recorded]) -> Op[None]:
    """Put a turn's messages into the full-text index, all at once when it is over: an index that
    follows each message would cost as much as everything else."""
    principal = yield from row(_PRINCIPAL, turn[0].session)
    assert principal is not None
    for recorded in turn:
        match recorded.event:
            case (
                TurnQueued(message=message, text=text)
                | SteerTaken(message=message, text=text)
                | TurnAmended(message=message, text=text)
            ) if text:
                said = Searchable(recorded, principal[0], message, "user", text)
                yield from dialect.index(said)
            case AssistantSaid(message=message, text=text) if text:
                said = Searchable(recorded, principal[0], message, "assistant", text)
                yield from dialect.index(said)
            case _:
                pass


def read_row(found: Row) -> Recorded:
    session, seq, at, kind, body = found
    return Recorded(session=session, seq=seq, at=at, event=decode(kind, body))


def read_rows(found: Iterable[Row]) -> list[Recorded]:
    return [read_row(each) for each in found]


def of_turn(turn: TurnId) -> Op[list[Recorded]]:
    return read_rows((yield from rows(_OF_TURN, turn)))


def of_message(message: str) -> Op[list[Recorded]]:
    return read_rows((yield from rows(_OF_MESSAGE, message)))


def since(session: SessionId, seq: int, *, limit: int) -> Op[list[Recorded]]:
    return read_rows((yield from rows(_SINCE, session, seq, limit)))
