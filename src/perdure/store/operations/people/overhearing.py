"""Keeps what people of a group say among themselves, until a message to the bot takes it along.

A line is bounded in the transaction that stores it. The transaction that accepts the next message
to the bot copies the lines into the event of that message and empties their rows. The empty rows
stay for a while: a platform that was not told that a message was received offers it again, and it
must not be told to the model a second time.
"""

from typing import Final, NamedTuple

from perdure.domain.address import GROUP, Address
from perdure.domain.content.overheard import (
    AGE_MS,
    BYTES_MAX,
    LINES_MAX,
    OWN_LINES_MAX,
    Overheard,
)
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.ports.people.overhearing import HeardLine
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, listed, many, run

# How many rows an account keeps, and a thread of those without words.
ROWS_MAX: Final = 20_000
EMPTY_MAX: Final = 500

_HERE = "adapter = $1 AND account = $2 AND place = $3 AND thread = $4"
# Stores a line, once.
_NOTE = """
    INSERT INTO overheard (adapter, account, place, thread, id, external_id, person, sender, text,
                           size, at, nth)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
            (SELECT COALESCE(MAX(o.nth), 0) + 1 FROM overheard o
             WHERE o.adapter = $1 AND o.account = $2 AND o.place = $3 AND o.thread = $4))
    ON CONFLICT (adapter, account, external_id) DO NOTHING"""
# Empties the oldest lines of a thread that are beyond its bounds.
_BOUND = f"""
    UPDATE overheard SET is_told = 1, text = '', size = 0 WHERE id IN (
        SELECT id FROM (
            SELECT id, ROW_NUMBER() OVER (ORDER BY nth DESC, id DESC) AS place_in_all,
                   ROW_NUMBER() OVER (PARTITION BY person ORDER BY nth DESC, id DESC)
                       AS place_in_own,
                   SUM(size) OVER (ORDER BY nth DESC, id DESC) AS total
            FROM overheard WHERE {_HERE} AND is_told = 0) AS lines
        WHERE place_in_all > $5 OR place_in_own > $6 OR total > $7)"""
# Deletes the oldest empty rows of a thread.
_TRIM = f"""
    DELETE FROM overheard WHERE {_HERE} AND is_told = 1 AND nth <= (
        SELECT o.nth FROM overheard o WHERE o.adapter = $1 AND o.account = $2 AND o.place = $3
          AND o.thread = $4 AND o.is_told = 1 ORDER BY o.nth DESC LIMIT 1 OFFSET $5)"""
# Deletes what was said too long ago, in all places.
_OLD = "DELETE FROM overheard WHERE at < $1"
# Deletes the oldest rows of an account that has too many.
_MOST = """
    DELETE FROM overheard WHERE adapter = $1 AND account = $2 AND at <= (
        SELECT o.at FROM overheard o WHERE o.adapter = $1 AND o.account = $2
        ORDER BY o.at DESC LIMIT 1 OFFSET $3)"""
# Changes the words of a line that was not told yet.
_REWORD = """
    UPDATE overheard SET text = $1, size = $2, sender = $3
    WHERE adapter = $4 AND account = $5 AND external_id = $6 AND person = $7 AND is_told = 0"""
# Empties the line of a message that was deleted.
_DROP = """
    UPDATE overheard SET is_told = 1, text = '', size = 0
    WHERE adapter = $1 AND account = $2 AND external_id = $3"""
# Deletes everything that was said in a place.
_FORGET = "DELETE FROM overheard WHERE adapter = $1 AND account = $2 AND place = $3"
# Locks what was said in a thread and not told, oldest first.
_UNTOLD = f"""
    SELECT id, sender, text FROM overheard WHERE {_HERE} AND is_told = 0 AND at >= $5
    ORDER BY nth, id FOR UPDATE"""
# Empties lines that are told now.
_TELL = "UPDATE overheard SET is_told = 1, text = '', size = 0 WHERE id IN "


class _Line(NamedTuple):
    id: str
    sender: str
    text: str


def note(heard: HeardLine, stamp: Stamp) -> Op[None]:
    """Store a line, and bound what is kept of its thread, of its account and of old times."""
    where, line = heard.address, heard.line
    here = (where.adapter, where.account, where.place, where.thread)
    yield from run(
        _NOTE, *here, stamp.mint("ovh"), heard.external_id, heard.person, line.sender, line.text,
        size_of(line), stamp.at,
    )  # fmt: skip
    yield from run(_BOUND, *here, LINES_MAX, OWN_LINES_MAX, BYTES_MAX)
    yield from run(_TRIM, *here, EMPTY_MAX)
    yield from run(_MOST, where.adapter, where.account, ROWS_MAX)
    yield from forget_old(at=stamp.at)


def size_of(line: Overheard) -> int:
    """Return how many bytes a line counts in the bounds."""
    return len(line.sender.encode()) + len(line.text.encode())


def reword(heard: HeardLine) -> Op[None]:
    """Change the words of a line that is still kept, and bound its thread again."""
    where, line = heard.address, heard.line
    account = (where.adapter, where.account)
    yield from run(
        _REWORD, line.text, size_of(line), line.sender, *account, heard.external_id, heard.person
    )
    here = (*account, where.place, where.thread)
    yield from run(_BOUND, *here, LINES_MAX, OWN_LINES_MAX, BYTES_MAX)


def drop(address: Address, external_id: str) -> Op[None]:
    """Empty the line of a message."""
    yield from run(_DROP, address.adapter, address.account, external_id)


def forget(address: Address) -> Op[None]:
    """Delete everything that was said in a place and its threads."""
    yield from run(_FORGET, address.adapter, address.account, address.place)


def forget_old(*, at: int) -> Op[None]:
    """Delete everything that was said too long ago, wherever that was."""
    yield from run(_OLD, at - AGE_MS)


def brought(update: Update, *, at: int) -> Op[tuple[Overheard, ...]]:
    """Return what a message to the bot brings of what was said before. Where nothing is overheard
    any more, what was kept is deleted untold."""
    if update.place_kind != GROUP or update.kind is not UpdateKind.MESSAGE:
        return ()
    if not update.overhears:
        yield from forget(update.address)
        return ()
    return (yield from taken(update.heard_in, at=at))


def taken(address: Address, *, at: int) -> Op[tuple[Overheard, ...]]:
    """Return what was said in a thread since the last turn, and empty its rows. The caller stores
    it in the same transaction: if the process dies before the commit, the lines are still there."""
    here = (address.adapter, address.account, address.place, address.thread)
    lines = yield from many(_Line, _UNTOLD, *here, at - AGE_MS)
    if lines:
        yield from run(_TELL + listed(1, len(lines)), *(line.id for line in lines))
    return tuple(Overheard(sender=line.sender, text=line.text) for line in lines)
