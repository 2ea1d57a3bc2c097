"""Keeps the lists of what agents still have to do, and shows them."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.domain.ids import MessageId, SessionId, TurnId
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.domain.tools.todo import TodoItem, todo_text
from perdure.store.operations import journal
from perdure.store.operations.delivery.outbox import PartText, put_unless_read
from perdure.store.operations.questions.telling import change_notice
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, one, run

# Reads a session's list.
_GET = "SELECT items, turn_id, message_id, revision FROM todos WHERE session_id = $1"
# Locks a session, so that two calls cannot both show the first list of a turn.
_LOCK = "SELECT id FROM sessions WHERE id = $1 FOR UPDATE"
# Replaces a session's list.
_PUT = """
    INSERT INTO todos (session_id, items, turn_id, message_id, revision)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (session_id) DO UPDATE
    SET items = excluded.items, turn_id = excluded.turn_id, message_id = excluded.message_id,
        revision = excluded.revision"""


class _List(NamedTuple):
    items: str
    turn: TurnId
    message: MessageId
    revision: int


def get(session: SessionId) -> Op[tuple[TodoItem, ...]]:
    """Return a session's list."""
    found = yield from one(_List, _GET, session)
    return _items(found.items) if found else ()


def put(
    session: SessionId, turn: TurnId, items: Sequence[TodoItem], stamp: Stamp
) -> Op[list[Recorded]]:
    """Replace a session's list, and show it: in a new message if the turn has shown none yet, else
    by changing that message."""
    yield from run(_LOCK, session)
    before = yield from one(_List, _GET, session)
    listed = tuple(items)
    is_shown = before is not None and before.turn == turn
    if before is not None and is_shown and _items(before.items) == listed:
        return []
    message = before.message if before and is_shown else MessageId(stamp.mint("msg"))
    revision = before.revision + 1 if before and is_shown else 0
    text = todo_text(listed)
    posted = NoticePosted(message=message, text=text, about=turn)
    recorded = yield from journal.append(session, [posted], at=stamp.at)
    if is_shown:
        yield from change_notice(message, text, stamp, suffix=f".{revision}")
    else:
        yield from put_unless_read(session, turn, message, PartText(text), stamp)
    body = msgspec.json.encode(listed).decode()
    yield from run(_PUT, session, body, turn, message, revision)
    return recorded


def _items(body: str) -> tuple[TodoItem, ...]:
    return msgspec.json.decode(body, type=tuple[TodoItem, ...])
