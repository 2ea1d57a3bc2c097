"""Reads a long turn piece by piece, so that no more than a page of it is in memory.

A turn may hold many tool results and steers. A sketch lists its entries and their sizes without
reading them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.in_short import entry_in_short
from perdure.store.operations import journal
from perdure.store.statement import Op, many

# Reads which entries a turn has and how long they are.
_SKETCH: Final = """
    SELECT session_id, seq, kind, message_id, OCTET_LENGTH(body) FROM journal
    WHERE turn_id = $1 ORDER BY seq"""
# Reads a range of the entries of a turn.
_PIECE: Final = f"""
    SELECT {journal.COLUMNS} FROM journal
    WHERE turn_id = $1 AND session_id = $2 AND seq >= $3 AND seq <= $4 ORDER BY seq"""
# Reads the entries of a turn without steers and tool results.
_EXCHANGE: Final = f"""
    SELECT {journal.COLUMNS} FROM journal
    WHERE turn_id = $1 AND kind NOT IN ('tool_finished', 'steer_accepted', 'steer_taken')
    ORDER BY seq"""
_STARTED: Final = "turn_started"
_SAID: Final = "assistant_said"
_FOUND: Final = "tool_finished"
_AMENDED: Final = "turn_amended"
# Kinds of events that are entries of a transcript by themselves.
_SHOWN: Final = frozenset({"turn_queued", "message_joined", "steer_taken", _SAID, _FOUND})
_FILES: Final = frozenset({"media_fetched", "media_lost", "sticker_described"})


class Sketched(NamedTuple):
    """Holds what is known of a journal entry that was not read."""

    session: SessionId
    seq: int
    kind: str
    message: str | None
    size: int


class _TurnPiece(NamedTuple):
    """Holds entries of a turn, and those needed to show them. `begins_at` is the seq of the first
    entry, or 0 if nothing is shown before it."""

    events: list[Recorded]
    begins_at: int


def sketch_of(turn: TurnId) -> Op[list[Sketched]]:
    """Return which entries a turn has, without reading them."""
    found = yield from many(Sketched, _SKETCH, turn)
    # The same rule as `journal.where_it_is`: a moved turn is whole in the session it is in now.
    left = {each.session for each in found if each.kind == "turn_moved"}
    return [each for each in found if each.session not in left]


def exchange(turn: TurnId) -> Op[list[Recorded]]:
    """Return what a turn was asked and what it has answered."""
    return journal.where_it_is((yield from many(journal.entry, _EXCHANGE, turn)))


def in_short(turn: TurnId, *, bytes_max: int) -> Op[list[Recorded]]:
    """Return all entries of a turn, with only the beginnings of long texts."""
    rest = yield from sketch_of(turn)
    told: list[Recorded] = []
    while rest:
        count = journal.fits([each.size for each in rest], bytes_max)
        told += [entry_in_short(each) for each in (yield from _read(turn, rest[:count]))]
        rest = rest[count:]
    return told


def last_piece(turn: TurnId, *, before: int, bytes_max: int) -> Op[_TurnPiece]:
    """Return the last entries of a turn, or the last before the seq `before` if that is not 0: as
    many as fit, but at least one. The piece begins with an entry that is shown, so that the end of
    a turn stays together with what was said last."""
    sketch = yield from sketch_of(turn)
    so_far = [each for each in sketch if not before or each.seq < before]
    start, total = len(so_far), 0
    for place in range(len(so_far) - 1, -1, -1):
        total += so_far[place].size
        if total > bytes_max and start < len(so_far):
            break
        if so_far[place].kind in _SHOWN:
            start = place
    has_more = any(each.kind in _SHOWN for each in so_far[:start])
    own = so_far[start:] if has_more else so_far
    if not own:
        return _TurnPiece([], 0)
    around = yield from _around(sketch, own)
    events = [*around, *(yield from _read(turn, own))]
    return _TurnPiece(sorted(events, key=lambda each: each.seq), own[0].seq if has_more else 0)


def _around(sketch: Sequence[Sketched], own: Sequence[Sketched]) -> Op[list[Recorded]]:
    """Read the entries outside a piece that are needed to show it: that the turn has begun, the
    names of its calls, the last edits of its messages, and what became of their files."""
    earlier = [each for each in sketch if each.seq < own[0].seq]
    later = [each for each in sketch if each.seq > own[-1].seq]
    begun = [each for each in (*earlier, *later) if each.kind == _STARTED]
    steps = [each.kind for each in own if each.kind in (_SAID, _FOUND)]
    said = [each for each in earlier if each.kind == _SAID] if steps[:1] == [_FOUND] else []
    messages = {each.message for each in own if each.message}
    since = [each for each in later if each.message in messages]
    amended = {each.message: each for each in since if each.kind == _AMENDED}
    files = [each for each in since if each.kind in _FILES]
    read: list[Recorded] = []
    for each in (*begun[:1], *said[-1:], *amended.values(), *files):
        read += [(yield from journal.one(each.session, each.seq))]
    return read


def _read(turn: TurnId, piece: Sequence[Sketched]) -> Op[list[Recorded]]:
    """Read the entries of a turn from the first of a piece to its last."""
    first, last = piece[0], piece[-1]
    return (yield from many(journal.entry, _PIECE, turn, first.session, first.seq, last.seq))
