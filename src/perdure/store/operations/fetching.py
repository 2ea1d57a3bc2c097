"""Bringing files to the turns that wait for them.

The session is locked before the file's row, as by everybody who ends a turn: a file is brought to a
turn that waits, or to none. `attempts` tells the owner of a row from one who was away too long.
"""

from typing import Final, NamedTuple

import msgspec

from perdure.domain.attachments import lost_text
from perdure.domain.errors import Conflict
from perdure.domain.events import (
    AnyEvent,
    Attachment,
    MediaFetched,
    MediaLost,
    Recorded,
    StickerDescribed,
)
from perdure.domain.ids import MediaId, NodeId
from perdure.domain.stickers import Sticker
from perdure.ports.media import Fetch, Found, Media
from perdure.store.dialect import Dialect
from perdure.store.operations import journal, media
from perdure.store.operations.endings import Locked, locked
from perdure.store.operations.line import make_ready
from perdure.store.operations.notices import notice
from perdure.store.operations.setting import Stamp
from perdure.store.statement import Op, Row, row, rows, run

_FETCH = """
    SELECT f.id, f.turn_id, f.message_id, f.place, f.adapter, f.attempts, f.created_at, f.reference,
           f.url, f.mime, f.name, f.size, f.is_voice, f.media_id, f.sticker, t.principal_id
    FROM fetches f JOIN turns t ON t.id = f.turn_id """
_DUE = (
    _FETCH
    + """
    WHERE f.adapter = $1 AND f.state = 'pending' AND f.due_at <= $2
    ORDER BY f.due_at, f.id LIMIT $3 FOR UPDATE OF f SKIP LOCKED"""
)
_ATTEMPT = """
    UPDATE fetches SET state = 'attempting', attempts = attempts + 1, node_id = $1, changed_at = $2
    WHERE id = $3"""
_STATE = "SELECT state, attempts FROM fetches WHERE id = $1 FOR UPDATE"
_END = """
    UPDATE fetches SET state = $1, media_id = COALESCE($2, media_id), error = $3, node_id = NULL,
                       changed_at = $4
    WHERE id = $5"""
_ONE_LESS = "UPDATE turns SET fetching = fetching - 1 WHERE id = $1"
_AGAIN = """
    UPDATE fetches SET state = 'pending', node_id = NULL, error = $1, due_at = $2, changed_at = $3
    WHERE id = $4 AND state = 'attempting' AND attempts = $5"""
_RELEASE = """
    UPDATE fetches SET state = 'pending', node_id = NULL, due_at = $1, changed_at = $1
    WHERE state = 'attempting' AND node_id = $2 RETURNING id"""
_STRANDED = (
    _FETCH
    + """
    WHERE f.state = 'attempting'
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = f.node_id AND n.left_at IS NULL
                      AND n.lease_until > {now_ms})
    ORDER BY f.changed_at LIMIT 100"""
)
_OLD = (
    _FETCH
    + """
    WHERE f.state = 'pending'
      AND (f.created_at < $1 OR (f.created_at < $2 AND f.sticker_id <> ''))
    ORDER BY f.created_at LIMIT 100"""
)
_NEXT_DUE = "SELECT MIN(due_at) FROM fetches WHERE state = 'pending'"
DEADLY = "reading it has ended the gateway several times; send it in another form"
LOST: Final = "lost"
TOO_LATE = "it could not be fetched in time; send it again"


class Ending(NamedTuple):
    """How a file's row ends."""

    state: str
    events: list[AnyEvent]
    media: MediaId | None = None
    error: str = ""


def take(adapter: str, node: NodeId, *, limit: int, at: int) -> Op[list[Fetch]]:
    due = yield from rows(_DUE, adapter, at, limit)
    taken = []
    for found in due:
        yield from run(_ATTEMPT, node, at, found[0])
        taken.append(_fetch(found, attempts=found[5] + 1))
    return taken


def _fetch(found: Row, *, attempts: int) -> Fetch:
    fetch, turn, message, place, adapter, _, created_at, *columns = found
    reference, url, mime, name, size, is_voice, media_id, sticker, principal = columns
    return Fetch(
        id=fetch,
        turn=turn,
        message=message,
        index=place,
        adapter=adapter,
        attachment=Attachment(
            media=media_id if not sticker else None,
            url=url or None,
            mime=mime,
            name=name,
            reference=reference,
            size=size,
            is_voice=bool(is_voice),
            sticker=msgspec.json.decode(sticker, type=Sticker) if sticker else None,
        ),
        principal=principal,
        attempts=attempts,
        created_at=created_at,
    )


def done(
    dialect: Dialect, fetch: Fetch, found: Found, media_id: MediaId, stamp: Stamp
) -> Op[list[Recorded]]:
    kept = fetch.attachment.media
    turn = yield from held(fetch, "done")
    if turn is None:
        return []  # said again after a lost answer
    if kept is None:
        row_of_it = Media(
            id=media_id, mime=found.mime, name=found.name, size=found.size, digest=found.digest
        )
        kept = (yield from media.put(row_of_it, fetch.principal, at=stamp.at)).id
    fetched = MediaFetched(
        turn=fetch.turn,
        message=fetch.message,
        index=fetch.index,
        media=kept,
        mime=found.mime,
        name=found.name,
        size=found.size,
        text=found.reading.text,
        problem=found.reading.problem,
        seconds=found.reading.seconds,
    )
    return (yield from end(dialect, fetch, turn, Ending("done", [fetched], kept), stamp))


def lost(dialect: Dialect, fetch: Fetch, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    turn = yield from held(fetch, LOST)
    if turn is None:
        return []
    return (yield from _lose(dialect, fetch, turn, reason, stamp))


def _lose(
    dialect: Dialect, fetch: Fetch, held: Locked, reason: str, stamp: Stamp
) -> Op[list[Recorded]]:
    turn, message, index = fetch.turn, fetch.message, fetch.index
    if fetch.sticker_id:
        # It is told by its emoji and its name: nobody misses the picture.
        untold = StickerDescribed(turn=turn, message=message, index=index, words="")
        ending = Ending(LOST, [untold], error=reason)
        return (yield from end(dialect, fetch, held, ending, stamp))
    event = MediaLost(turn=turn, message=message, index=index, reason=reason)
    ending = Ending(LOST, [event], error=reason)
    recorded = yield from end(dialect, fetch, held, ending, stamp)
    text = lost_text(fetch.attachment, reason)
    recorded += yield from notice(dialect, held.session, fetch.turn, text, stamp)
    return recorded


def held(fetch: Fetch, wanted: str) -> Op[Locked | None]:
    """The turn, locked, if the file is ours; None if it has ended so before."""
    turn = yield from locked(fetch.turn)
    found = yield from row(_STATE, fetch.id)
    assert turn is not None
    assert found is not None
    if tuple(found) == (wanted, fetch.attempts):
        return None
    if tuple(found) != ("attempting", fetch.attempts):
        raise Conflict(f"the file {fetch.id} is {found[0]}; nobody waits for it any more")
    return turn


def end(
    dialect: Dialect, fetch: Fetch, held: Locked, ending: Ending, stamp: Stamp
) -> Op[list[Recorded]]:
    """End a file's row with what the turn is told of it, and let the turn go if it was the last."""
    yield from run(_END, ending.state, ending.media, ending.error, stamp.at, fetch.id)
    yield from run(_ONE_LESS, fetch.turn)
    recorded = yield from journal.append(dialect, held.session, ending.events, at=stamp.at)
    yield from make_ready(held.session, stamp)
    return recorded


def again(fetch: Fetch, *, error: str, due_at: int, at: int) -> Op[None]:
    yield from run(_AGAIN, error, due_at, at, fetch.id, fetch.attempts)


def release(node: NodeId, *, at: int) -> Op[int]:
    return len((yield from rows(_RELEASE, at, node)))


def recover(dialect: Dialect, stamp: Stamp, *, attempts_max: int) -> Op[list[Recorded]]:
    """What owners who are gone had taken may be taken again; what has ended several of them is the
    likely reason."""
    stranded = yield from rows(_STRANDED.format(now_ms=dialect.now_ms))
    recorded: list[Recorded] = []
    for found in stranded:
        fetch = _fetch(found, attempts=found[5])
        if fetch.attempts < attempts_max:
            yield from run(_AGAIN, "", stamp.at, stamp.at, fetch.id, fetch.attempts)
        else:
            recorded += yield from _give_up(dialect, fetch, "attempting", DEADLY, stamp)
    return recorded


def expire(
    dialect: Dialect, stamp: Stamp, *, before: int, stickers_before: int
) -> Op[list[Recorded]]:
    recorded: list[Recorded] = []
    for found in (yield from rows(_OLD, before, stickers_before)):
        fetch = _fetch(found, attempts=found[5])
        recorded += yield from _give_up(dialect, fetch, "pending", TOO_LATE, stamp)
    return recorded


def _give_up(
    dialect: Dialect, fetch: Fetch, state: str, reason: str, stamp: Stamp
) -> Op[list[Recorded]]:
    """Unless somebody has done something about it since it was read."""
    held = yield from locked(fetch.turn)
    found = yield from row(_STATE, fetch.id)
    assert held is not None
    if found is None or tuple(found) != (state, fetch.attempts):
        return []
    return (yield from _lose(dialect, fetch, held, reason, stamp))


def next_due() -> Op[int | None]:
    found = yield from row(_NEXT_DUE)
    return found[0] if found else None
