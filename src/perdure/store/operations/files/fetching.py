"""Brings files to the turns that wait for them.

The session is locked before the file's row, in the same order as by everything that ends a turn. So
a file is brought only to a turn that still waits. `attempts` tells the owner of a row from a
process that was away too long. After a crash the row is found as `attempting` with an owner that is
gone, and is tried again (`recover`).
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from perdure.domain.errors import Conflict
from perdure.domain.ids import MediaId, NodeId, TurnId
from perdure.domain.journal.attachments import late_reason, late_text, lost_text
from perdure.domain.journal.events import (
    AnyEvent,
    MediaFetched,
    MediaLost,
    Recorded,
    StickerDescribed,
)
from perdure.domain.people.quotas import NO_QUOTA, OverQuota, Quota
from perdure.domain.people.sharing import FairShares, fairly
from perdure.domain.reading.texts import FileReading
from perdure.domain.waits import AT_ONCE, TOLERANCE_MS, is_ahead
from perdure.ports.records.media import AwaitedFile, Fetch, FetchedFile, Late, Media
from perdure.store.drivers.dialect import Dialect
from perdure.store.operations import journal
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.files import media
from perdure.store.operations.files.fetch_rows import (
    COLUMNS,
    FETCH,
    FetchRow,
    FileProgress,
    fetch_of,
    fetch_progress,
)
from perdure.store.operations.people import quotas
from perdure.store.operations.turn_context import Stamp
from perdure.store.operations.turn_locks import Locked, locked
from perdure.store.operations.turns.session_queue import make_ready
from perdure.store.statement import Op, exists, listed, many, one, run

# Reads the files of an adapter that can be fetched now; see `due_sql`.
_DUE = (
    FETCH
    + """
    WHERE f.adapter = $1 AND f.state = 'pending' AND (f.due_at <= $2 OR f.changed_at > $3)"""
)
# The order in which files are taken.
_IN_LINE = " ORDER BY f.rank, f.seq, f.id LIMIT "
# Locks a file, unless another node has locked or taken it.
_FREE = "SELECT 1 FROM fetches WHERE id = $1 AND state = 'pending' FOR UPDATE SKIP LOCKED"
# How many waiting files are looked at beyond the free slots; see `turns.WINDOW`.
WINDOW: Final = 64
# Starts the wait of a file again after the clock was set back. Changes no file that does not wait.
_WAIT_ANEW = """
    UPDATE fetches SET due_at = due_at - changed_at + $1, changed_at = $1
    WHERE id = $2 AND due_at > changed_at RETURNING id"""
# Marks a file as being fetched.
_ATTEMPT = """
    UPDATE fetches SET state = 'attempting', attempts = attempts + 1, node_id = $1, changed_at = $2
    WHERE id = $3"""
# Ends the row of a file.
_END = """
    UPDATE fetches SET state = $1, media_id = COALESCE($2, media_id), error = $3, node_id = NULL,
                       changed_at = $4
    WHERE id = $5"""
# Reduces the number of files that a turn waits for.
_ONE_LESS = "UPDATE turns SET fetching = fetching - 1 WHERE id = $1"
# Leaves a file for a later attempt, if this attempt still owns it.
_AGAIN = """
    UPDATE fetches SET state = 'pending', node_id = NULL, error = $1, due_at = $2, changed_at = $3
    WHERE id = $4 AND state = 'attempting' AND attempts = $5"""
# Locks the files that a node has taken.
_TAKEN = """
    SELECT id, attempts FROM fetches WHERE state = 'attempting' AND node_id = $1 FOR UPDATE"""
# Releases a file, so that it can be taken again at once.
_RELEASE = f"""
    UPDATE fetches SET state = 'pending', node_id = NULL, due_at = {AT_ONCE}, changed_at = $1
    WHERE id = $2"""
# Reads the files whose owner is gone. The node that asks counts as alive, even if its lease has run
# out.
_STRANDED = (
    FETCH
    + """
    WHERE f.state = 'attempting'
      AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.id = f.node_id AND n.left_at IS NULL
                      AND (n.lease_until > {now_ms} OR n.id = $1))
    ORDER BY f.changed_at LIMIT 100"""
)
# Reads the files that turns wait for, and where the answers go. One query for each state, because
# each state has its own index.
_WAITING = f"""
    SELECT f.is_told, {ADDRESS}, {COLUMNS}
    FROM fetches f JOIN turns t ON t.id = f.turn_id
    JOIN sessions s ON s.id = t.session_id
    JOIN conversations c ON c.id = COALESCE(t.via_id, s.conversation_id)
    WHERE f.state = '{{state}}' ORDER BY f.created_at, f.id LIMIT 1000"""
# Reads how far the files of a turn have come.
_OF_TURN = "SELECT state, is_told FROM fetches WHERE turn_id = $1"
# Records that the people of a turn were told about missing files.
_TOLD = """
    UPDATE fetches SET is_told = 1
    WHERE turn_id = $1 AND state IN ('pending', 'attempting')"""
# Finds when the next file can be fetched.
_NEXT_DUE = f"""
    SELECT MIN(CASE WHEN changed_at > $1 THEN {AT_ONCE} ELSE due_at END) FROM fetches
    WHERE state = 'pending'"""
DEADLY = "reading it has ended the gateway several times; send it in another form"
LOST: Final = "lost"
OPEN: Final = ("pending", "attempting")


class FileEnding(NamedTuple):
    """Says how a file's row ends, and which events tell the turn."""

    state: str
    events: list[AnyEvent]
    media: MediaId | None = None
    error: str = ""


class _Told(NamedTuple):
    """Holds how far a file has come, and whether people were told that it takes long."""

    state: str
    is_told: int


class _Taken(NamedTuple):
    """Names an attempt at a file that a node has taken."""

    id: str
    attempts: int


class _Due(NamedTuple):
    """Holds when something is to be done; None if there is nothing."""

    at: int | None


def take(
    adapters: Sequence[str], node: NodeId, *, limit: int, shares: FairShares, at: int
) -> Op[list[Fetch]]:
    """Take files of these adapters that can be fetched now, fairly among people."""
    due: list[FetchRow] = []
    for adapter in adapters:
        due += yield from _due(adapter, shares, at=at, limit=limit + WINDOW)
    chosen = fairly(due, by=lambda found: found.principal, shares=shares, limit=limit)
    taken = []
    for found in chosen:
        if not (yield from exists(_FREE, found.id)):
            continue  # another node has taken it, or is taking it
        if is_ahead(found.changed_at, at) and (yield from exists(_WAIT_ANEW, at, found.id)):
            continue
        yield from run(_ATTEMPT, node, at, found.id)
        taken.append(fetch_of(found._replace(attempts=found.attempts + 1)))
    return taken


def _due(adapter: str, shares: FairShares, *, at: int, limit: int) -> Op[list[FetchRow]]:
    """Find the files of one adapter that can be taken, in order, except those of people who use all
    their slots."""
    full = shares.full
    sql = due_sql(len(full))
    return (yield from many(FetchRow, sql, adapter, at, at + TOLERANCE_MS, *full, limit))


def due_sql(full: int) -> str:
    """Return the query, given how many people use all their slots."""
    without = f" AND f.principal_id NOT IN {listed(4, full)}" if full else ""
    return f"{_DUE}{without}{_IN_LINE}${4 + full}"


def done(
    fetch: Fetch,
    found: FetchedFile,
    media_id: MediaId,
    stamp: Stamp,
    *,
    quota: Quota = NO_QUOTA,
) -> Op[list[Recorded]]:
    """Bring a fetched file to its turn. If the person's quota has no room for it, the file is given
    up instead. Raises `Conflict` if nobody waits for it any more."""
    turn = yield from held(fetch, "done")
    if turn is None:
        return []  # repeated after a lost answer
    try:
        size = 0 if fetch.attachment.media else found.size
        size += found.fitted.size if found.fitted else 0
        yield from quotas.insist_on_file(quota, fetch.principal, size, is_loose=False)
    except OverQuota as error:
        return (yield from _lose_and_tell(fetch, turn, error.message, stamp))
    return (yield from _bring(fetch, found, turn, media_id, stamp))


def _bring(
    fetch: Fetch,
    found: FetchedFile,
    held: Locked,
    media_id: MediaId,
    stamp: Stamp,
) -> Op[list[Recorded]]:
    """Give a file to its turn: its row among the files, and the event in the journal."""
    kept = fetch.attachment.media
    if kept is None:
        row_of_it = Media(
            id=media_id, mime=found.mime, name=found.name, size=found.size, digest=found.digest
        )
        kept = (yield from media.put(row_of_it, fetch.principal, at=stamp.at)).id
    if found.fitted is not None:
        yield from media.fit(kept, found.fitted)
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
        shown=found.fitted.digest if found.fitted else "",
    )
    return (yield from end(fetch, held, FileEnding("done", [fetched], kept), stamp))


def lost(fetch: Fetch, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Give up a file: the people are told, and the turn continues without it."""
    turn = yield from held(fetch, LOST)
    if turn is None:
        return []
    return (yield from _lose_and_tell(fetch, turn, reason, stamp))


def _lose_and_tell(fetch: Fetch, held: Locked, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Give up a file whose turn is locked, and tell the people."""
    recorded = yield from _lose(fetch, held, reason, stamp)
    if not fetch.sticker_id:
        text = lost_text(fetch.attachment, reason)
        recorded += yield from notice(held.session, fetch.turn, text, stamp)
    return recorded


def _lose(fetch: Fetch, held: Locked, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Give up a file whose turn is locked."""
    turn, message, index = fetch.turn, fetch.message, fetch.index
    if fetch.sticker_id:
        # A sticker is described by its emoji and its name, so nobody misses the picture.
        untold = StickerDescribed(turn=turn, message=message, index=index, words="")
        ending = FileEnding(LOST, [untold], error=reason)
        return (yield from end(fetch, held, ending, stamp))
    event = MediaLost(turn=turn, message=message, index=index, reason=reason)
    ending = FileEnding(LOST, [event], error=reason)
    return (yield from end(fetch, held, ending, stamp))


def held(fetch: Fetch, wanted: str) -> Op[Locked | None]:
    """Return the file's turn, locked, if this attempt owns the file. Returns None if the file has
    already ended in the wanted state, and raises `Conflict` otherwise."""
    turn = yield from locked(fetch.turn)
    now = yield from fetch_progress(fetch)
    assert turn is not None
    assert now is not None
    if now == FileProgress(wanted, fetch.attempts):
        return None
    if now != FileProgress("attempting", fetch.attempts):
        raise Conflict(f"the file {fetch.id} is {now.state}; nobody waits for it any more")
    return turn


def end(fetch: Fetch, held: Locked, ending: FileEnding, stamp: Stamp) -> Op[list[Recorded]]:
    """End a file's row with the events for its turn. The turn becomes ready if this was its last
    file."""
    yield from run(_END, ending.state, ending.media, ending.error, stamp.at, fetch.id)
    yield from run(_ONE_LESS, fetch.turn)
    recorded = yield from journal.append(held.session, ending.events, at=stamp.at)
    yield from make_ready(held.session, stamp)
    return recorded


def again(fetch: Fetch, *, error: str, due_at: int, at: int) -> Op[None]:
    """Leave a file for a later attempt, if this attempt still owns it."""
    yield from run(_AGAIN, error, due_at, at, fetch.id, fetch.attempts)


def release(node: NodeId, *, keep: Sequence[Fetch], at: int) -> Op[int]:
    """Release what this node has taken, except the attempts in `keep`. Returns the number of
    files."""
    kept = {(fetch.id, fetch.attempts) for fetch in keep}
    taken = yield from many(_Taken, _TAKEN, node)
    released = [each.id for each in taken if each not in kept]
    for fetch in released:
        yield from run(_RELEASE, at, fetch)
    return len(released)


def recover(dialect: Dialect, stamp: Stamp, *, attempts_max: int) -> Op[list[Recorded]]:
    """Release files whose owner is gone. A file that was taken too often by processes that died is
    the likely cause of their deaths, and is given up."""
    stranded = yield from many(FetchRow, _STRANDED.format(now_ms=dialect.now_ms), stamp.node)
    recorded: list[Recorded] = []
    for fetch in map(fetch_of, stranded):
        if fetch.attempts < attempts_max:
            yield from again(fetch, error="", due_at=AT_ONCE, at=stamp.at)
        else:
            recorded += yield from _give_up(fetch, "attempting", DEADLY, stamp)
    return recorded


def _give_up(fetch: Fetch, state: str, reason: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Give up a file, unless it has changed since it was read."""
    held = yield from locked(fetch.turn)
    now = yield from fetch_progress(fetch)
    assert held is not None
    if now != FileProgress(state, fetch.attempts):
        return []
    return (yield from _lose_and_tell(fetch, held, reason, stamp))


def waiting() -> Op[list[AwaitedFile]]:
    """Return the files that turns wait for, oldest first."""
    found: list[AwaitedFile] = []
    for state in OPEN:
        found += yield from many(_waiting, _WAITING.format(state=state))
    return sorted(found, key=lambda each: (each.fetch.created_at, each.fetch.id))


def _waiting(is_told: int, *columns: Any) -> AwaitedFile:
    """Return the file in a row of `_WAITING`."""
    adapter, account, place, thread, person, *fetch = columns
    return AwaitedFile(
        fetch=fetch_of(FetchRow(*fetch)),
        address=address_of(adapter, account, place, thread, person),
        is_told=bool(is_told),
    )


def tell_slow(turn: TurnId, text: str, stamp: Stamp) -> Op[list[Recorded]]:
    """Tell the people of a turn once that its files take long, if any are missing."""
    held = yield from locked(turn)
    assert held is not None
    files = yield from many(_Told, _OF_TURN, turn)
    if any(each.is_told for each in files) or not any(each.state in OPEN for each in files):
        return []
    yield from run(_TOLD, turn)
    return (yield from notice(held.session, turn, text, stamp))


def expire(files: Sequence[Late], stamp: Stamp) -> Op[list[Recorded]]:
    """Let a turn continue without these files. A row is ended even if a node is fetching the file;
    that node learns it when it brings the file."""
    turn = files[0].fetch.turn
    held = yield from locked(turn)
    assert held is not None
    recorded: list[Recorded] = []
    missed: list[Late] = []
    for late in files:
        now = yield from fetch_progress(late.fetch)
        if now is None or now.state not in OPEN:
            continue
        recorded += yield from _do_without(late, held, stamp)
        if not late.fetch.sticker_id:
            missed.append(late)
    if missed:
        text = late_text([each.fetch.attachment for each in missed], is_here=_are_here(missed))
        recorded += yield from notice(held.session, turn, text, stamp)
    return recorded


def _do_without(late: Late, held: Locked, stamp: Stamp) -> Op[list[Recorded]]:
    """Let a turn continue without a file. If its bytes were already fetched they are kept, and only
    its text is missing."""
    reason = late_reason(is_here=_are_here([late]))
    if late.found is None:
        return (yield from _lose(late.fetch, held, reason, stamp))
    found = msgspec.structs.replace(late.found, reading=FileReading(problem=reason))
    media_id = MediaId(stamp.mint("med"))
    return (yield from _bring(late.fetch, found, held, media_id, stamp))


def _are_here(files: Sequence[Late]) -> bool:
    """Tell whether the bytes of all these files were fetched."""
    return all(each.found is not None or each.fetch.attachment.media for each in files)


def next_due(*, at: int) -> Op[int | None]:
    """Return when the next file can be fetched, or None if none waits."""
    due = yield from one(_Due, _NEXT_DUE, at + TOLERANCE_MS)
    return due.at if due else None
