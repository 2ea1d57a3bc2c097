"""Reads what was said in a session together with the notices and the replies to commands, each
where it stands.

Notices belong to sessions and messages to turns. Both have a spot: the session, counted along the
chain, and the number in its journal. A page is read backwards from its end: first some turns, then
the notices from the first of these turns to the end of the page. A notice that was posted again
under its message id is one notice: it stands where it was first posted, with its newest words.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.errors import NotFound
from perdure.domain.ids import SessionId
from perdure.domain.journal.codec import decode
from perdure.domain.journal.events import (
    LeftOut,
    NoticePosted,
    Recorded,
)
from perdure.domain.journal.left_out import omissions_of
from perdure.domain.journal.session_events import CommandTaken
from perdure.domain.journal.transcript import (
    AT_THE_END,
    Entry,
    PlacedEntry,
    RunningText,
    add_turn,
    continued_by,
    ended_turn,
    notice_entry,
    page,
    placed_entries,
)
from perdure.ports.records.history import NoticedPage
from perdure.store.operations import journal
from perdure.store.operations.reading import history, transcripts
from perdure.store.operations.reading.transcripts import TurnPlace
from perdure.store.statement import Op, many, one, sql_list

_NOTICES: Final = sql_list(("notice_posted", "command_taken"))
# Chooses the notices of a session between two places, each where it was first posted.
_BETWEEN = f"""
    FROM journal j WHERE j.session_id = $1 AND j.seq >= $2 AND j.seq < $3 AND j.kind IN {_NOTICES}
      AND NOT EXISTS (SELECT 1 FROM journal f WHERE f.message_id = j.message_id
                      AND f.session_id = j.session_id AND f.seq < j.seq AND f.kind = j.kind)"""
# Measures the newest of them.
_SIZES = (
    f"SELECT j.seq, OCTET_LENGTH(j.body) {_BETWEEN}"
    """
    ORDER BY j.seq DESC LIMIT $4"""
)
# Reads them with their newest words, the state of the question that they ask, and whether a
# person's message has the same id.
_READ = f"""
    SELECT j.seq, j.at, j.kind,
           (SELECT l.body FROM journal l WHERE l.message_id = j.message_id
              AND l.session_id = j.session_id AND l.kind = j.kind ORDER BY l.seq DESC LIMIT 1),
           (SELECT q.state FROM questions q WHERE q.message_id = j.message_id),
           (SELECT q.answer FROM questions q WHERE q.message_id = j.message_id),
           (SELECT COUNT(*) FROM journal m WHERE m.message_id = j.message_id
              AND m.session_id = j.session_id AND m.kind NOT IN {_NOTICES})
    {_BETWEEN} ORDER BY j.seq"""
# Finds the session that another one continues, and where that one was left then.
_PARENT = """
    SELECT s.parent_id,
           (SELECT MIN(m.left_seq) FROM moves m WHERE m.conversation_id = s.conversation_id
              AND m.left_id = s.parent_id AND m.session_id = s.id)
    FROM sessions s WHERE s.id = $1 AND s.parent_id IS NOT NULL"""
# Finds where a turn was settled.
_SETTLED = """
    SELECT seq FROM journal
    WHERE turn_id = $1 AND session_id = $2 AND kind = 'turn_settled' ORDER BY seq DESC LIMIT 1"""
# A command's reply has the id of its message. If that is also a message of the conversation, the
# reply gets this suffix.
_REPLY: Final = ".reply"


class _Stretch(NamedTuple):
    """Holds a session, and the number in its journal before which its notices belong here."""

    session: SessionId
    end: int


class _Route(NamedTuple):
    """Holds the sessions and turns that are read, oldest first."""

    stretches: list[_Stretch]
    turns: list[TurnPlace]

    def ordinal(self, session: SessionId) -> int:
        """Return the place of a session on the route."""
        return next(n for n, each in enumerate(self.stretches) if each.session == session)


class _Spot(NamedTuple):
    """Names a place on the route: a session by its place there, and a number in its journal."""

    ordinal: int
    seq: int


class _Standing(NamedTuple):
    """Holds an entry where it stands."""

    spot: _Spot
    entry: Entry


class _End(NamedTuple):
    """Says where a page ends: after so many turns of the route, at a spot, and before the entry
    with this id if it is one of a turn."""

    turns: int
    spot: _Spot
    entry: str = ""


class _Chunk(NamedTuple):
    """Holds the entries of some turns. The first turn has the number `start` on the route, and
    `begins` is where it stands."""

    start: int
    begins: _Spot
    entries: list[_Standing]


class _Shown(NamedTuple):
    """Holds what belongs to the session: the text that is being written, and what requests leave
    out."""

    session: SessionId
    running: RunningText | None
    left_out: tuple[LeftOut, ...]
    is_whole: bool


class _Size(NamedTuple):
    seq: int
    size: int


class _Parent(NamedTuple):
    session: SessionId
    left_seq: int | None


class _Notice(NamedTuple):
    seq: int
    at: int
    kind: str
    body: str
    state: str | None
    answer: str | None
    namesakes: int


def noticed(
    session: SessionId, *, before: str | None, limit: int, bytes_max: int, is_whole: bool
) -> Op[NoticedPage]:
    """Return the newest entries, or the newest before the entry `before`. If `is_whole`, these are
    of all turns that the session has begun, and its own notices; otherwise what stands at its
    head."""
    route = yield from (_whole(session) if is_whole else _along_chain(session))
    shown = _Shown(
        session,
        (yield from history.running(session)),
        (yield from transcripts.left_out(session)),
        is_whole,
    )
    end = yield from _end(route, shown, before)
    while True:
        chunk = yield from _chunk(route, shown, end, limit=limit + 1, bytes_max=bytes_max)
        entries, upto = _cut(chunk, end)
        since = chunk.begins if chunk.start else _Spot(0, 0)
        notices, has_older = yield from _notices(
            route, since, upto, limit=limit + 1, bytes_max=bytes_max
        )
        if has_older:
            since = notices[0].spot
            entries = [each for each in entries if each.spot > since]
        merged = [each.entry for each in _merged(entries, notices)]
        found = page(merged, before=None, limit=limit, length_max=bytes_max)
        has_more = has_older or chunk.start > 0 or len(found) < len(merged)
        if found or not has_more:
            return NoticedPage(entries=tuple(found), has_more=has_more)
        end = _End(chunk.start, since)


def _whole(session: SessionId) -> Op[_Route]:
    """Return the route over all turns of a session. Of the sessions with which it shares turns, no
    notices are read."""
    turns = yield from transcripts.order(session, with_left=True)
    shared = dict.fromkeys(each.session for each in turns if each.session != session)
    stretches = [_Stretch(each, 0) for each in shared]
    return _Route([*stretches, _Stretch(session, AT_THE_END)], turns)


def _along_chain(session: SessionId) -> Op[_Route]:
    """Return the route along the chain of a session. A session that was left for another one may
    have gone on since; its notices count up to where it was left."""
    turns = yield from transcripts.order(session, with_left=False)
    missing = dict.fromkeys(each.session for each in turns if each.session != session)
    stretches = [_Stretch(session, AT_THE_END)]
    while missing:
        parent = yield from one(_Parent, _PARENT, stretches[0].session)
        if parent is None:
            stretches[:0] = [_Stretch(each, 0) for each in missing]
            break
        end = AT_THE_END if parent.left_seq is None else parent.left_seq + 1
        stretches.insert(0, _Stretch(parent.session, end))
        missing.pop(parent.session, None)
    return _Route(stretches, turns)


def _end(route: _Route, shown: _Shown, before: str | None) -> Op[_End]:
    """Return where a page ends. Raises `NotFound` if `before` names nothing on the route."""
    last = len(route.stretches) - 1
    if before is None:
        return _End(len(route.turns), _Spot(last, AT_THE_END + 1))
    if shown.running is not None and shown.running.message == before:
        return _End(len(route.turns), _Spot(last, AT_THE_END))
    about = yield from journal.of_message(before.removesuffix(_REPLY))
    notices = [each for each in about if isinstance(each.event, NoticePosted | CommandTaken)]
    turns = {each.turn for each in about if each not in notices} | {ended_turn(before)}
    for place, each in enumerate(route.turns):
        if each.turn in turns and not before.endswith(_REPLY):
            # Where the entry is, is known when its turn is read; until then, the end of its session
            # is enough.
            return _End(place + 1, _Spot(route.ordinal(each.session), AT_THE_END), before)
    known = {each.session: each.end for each in route.stretches}
    for notice in notices:
        if notice.seq < known.get(notice.session, 0):
            return (yield from _end_at_notice(route, notice))
    raise NotFound(f"there is no message {before}")


def _end_at_notice(route: _Route, notice: Recorded) -> Op[_End]:
    """Return the end of a page before a notice. A turn whose message came before the notice may
    have begun after it, so one turn more is read than had begun."""
    ordinal = route.ordinal(notice.session)
    begun = yield from transcripts.begun_before(notice.session, notice.seq)
    count = sum(route.ordinal(each.session) < ordinal for each in route.turns)
    here = [each.turn for each in route.turns if each.session == notice.session]
    count += min(sum(turn in begun for turn in here) + 1, len(here))
    return _End(count, _Spot(ordinal, notice.seq))


def _chunk(route: _Route, shown: _Shown, end: _End, *, limit: int, bytes_max: int) -> Op[_Chunk]:
    """Read the last turns before an end: as many as fit, but at least one. An answer that was
    continued is read from its beginning."""
    start = yield from transcripts.start_of_page(
        route.turns, end.turns, limit=limit, bytes_max=bytes_max
    )
    read: list[list[Recorded]] = []
    for each in route.turns[start : end.turns]:
        read += [(yield from journal.of_turn(each.turn))]
    while start and not shown.is_whole and continued_by(read[0]):
        start -= 1
        read.insert(0, (yield from journal.of_turn(route.turns[start].turn)))
    entries: list[PlacedEntry] = []
    spots: list[_Spot] = []
    begins = _Spot(0, 0)
    for place, events in enumerate(read, start):
        own = yield from _entries_of(route, shown, place, events)
        ordinal = route.ordinal(route.turns[place].session)
        if place == start and own:
            begins = _Spot(ordinal, own[0].place)
        if shown.is_whole:
            entries += own
        else:
            add_turn(entries, own, events)
        added = len(entries) - len(spots)
        spots += [_Spot(ordinal, each.place) for each in own[len(own) - added :]]
    standing = [_Standing(spot, each.entry) for spot, each in zip(spots, entries, strict=True)]
    return _Chunk(start, begins, standing)


def _entries_of(
    route: _Route, shown: _Shown, place: int, events: Sequence[Recorded]
) -> Op[list[PlacedEntry]]:
    """Return the entries of a turn of the route, with their places."""
    turn = route.turns[place]
    running = shown.running if shown.running and shown.running.turn == turn.turn else None
    behind = 0
    if place and route.turns[place - 1].session == turn.session:
        earlier = route.turns[place - 1].turn
        behind = (yield from one(int, _SETTLED, earlier, turn.session)) or 0
    omissions = omissions_of(shown.left_out)
    own = placed_entries(events, running, behind=behind, omissions=omissions)
    if not shown.is_whole:
        return own
    left = "" if turn.stands else (yield from transcripts.why_left(turn.turn))
    home = "" if turn.session == shown.session else turn.session
    return [
        each._replace(entry=msgspec.structs.replace(each.entry, left=left, session=home))
        for each in own
    ]


def _cut(chunk: _Chunk, end: _End) -> tuple[list[_Standing], _Spot]:
    """Return the entries that stand before the end of a page, and the spot before which notices
    belong to the page."""
    for place, each in enumerate(chunk.entries):
        if end.entry and each.entry.id == end.entry:
            return chunk.entries[:place], each.spot
    return [each for each in chunk.entries if each.spot < end.spot], end.spot


def _notices(
    route: _Route, since: _Spot, upto: _Spot, *, limit: int, bytes_max: int
) -> Op[tuple[list[_Standing], bool]]:
    """Return the newest notices from one spot to before another, and whether there are older
    ones."""
    found: list[_Standing] = []
    for ordinal in range(upto.ordinal, since.ordinal - 1, -1):
        stretch = route.stretches[ordinal]
        begin = since.seq if ordinal == since.ordinal else 0
        end = min(stretch.end, upto.seq) if ordinal == upto.ordinal else stretch.end
        room = limit - len(found)
        sizes = yield from many(_Size, _SIZES, stretch.session, begin, end, room)
        if not sizes:
            continue
        count = journal.fits([each.size for each in sizes], bytes_max)
        rows = yield from many(_Notice, _READ, stretch.session, sizes[count - 1].seq, end)
        found[:0] = [_Standing(_Spot(ordinal, row.seq), _entry(row)) for row in rows]
        bytes_max = max(bytes_max - sum(each.size for each in sizes[:count]), 0)
        if count == room or count < len(sizes):
            return found, True
    return found, False


def _entry(row: _Notice) -> Entry:
    """Return a notice as a person reads it now."""
    posted = decode(row.kind, row.body)
    assert isinstance(posted, NoticePosted | CommandTaken)
    entry = notice_entry(posted, row.at)
    name = f"{entry.id}{_REPLY}" if row.namesakes else entry.id
    return msgspec.structs.replace(entry, id=name, state=row.state or "", answer=row.answer or "")


def _merged(entries: Sequence[_Standing], notices: Sequence[_Standing]) -> Iterator[_Standing]:
    """Yield entries and notices in one order. The order of the entries among each other stays."""
    waiting = list(reversed(notices))
    for each in entries:
        while waiting and waiting[-1].spot < each.spot:
            yield waiting.pop()
        yield each
    yield from reversed(waiting)
