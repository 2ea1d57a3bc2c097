"""Reads the turns of a session, and tells which of them are on its chain.

A turn stands if it is on the chain of parents from the session's newest started turn back to the
beginning. The chain may cross sessions, because a branch shares the turns it was made from. Turns
that were undone or asked again are left beside the chain. Everything that shows what was said in a
session, or tells whether a turn counts, reads it here.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import LeftOut
from perdure.domain.journal.records import ASKED_AGAIN, UNDONE, ToldTurn
from perdure.domain.turn.standing import SessionStanding
from perdure.store.operations import journal
from perdure.store.operations.reading import chains, history, pieces
from perdure.store.statement import Op, exists, many, one

# Finds a session's head.
_HEAD: Final = "SELECT head_turn FROM sessions WHERE id = $1"
# Reads the chain of parents of a turn, oldest first.
_CHAIN: Final = """
    WITH RECURSIVE chain (id, parent_id, session_id, depth) AS (
        SELECT id, parent_id, session_id, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, t.session_id, chain.depth + 1
        FROM chain JOIN turns t ON t.id = chain.parent_id)
    SELECT id, session_id FROM chain ORDER BY depth DESC"""
# Reads the turns of a session in the order in which they began. A turn that never began is neither
# on a chain nor beside one.
_BEGUN: Final = """
    SELECT t.id, MIN(j.seq) FROM turns t JOIN journal j ON j.turn_id = t.id
      AND j.session_id = t.session_id AND j.kind = 'turn_started'
    WHERE t.session_id = $1 GROUP BY t.id ORDER BY 2"""
# Finds a turn that asks another one again.
_IS_ASKED_AGAIN: Final = "SELECT 1 FROM turns WHERE origin_id = $1 LIMIT 1"


class _Head(NamedTuple):
    head: TurnId | None


class _Linked(NamedTuple):
    """Holds a turn on a chain, and its session."""

    id: TurnId
    session: SessionId


class TurnPlace(NamedTuple):
    """Holds a turn, the session that it is in, and whether it stands."""

    turn: TurnId
    session: SessionId
    stands: bool


class _Begun(NamedTuple):
    """Holds a turn, and the seq at which it began."""

    id: TurnId
    seq: int


def tip(session: SessionId) -> Op[TurnId | None]:
    """Return the newest turn on the session's chain, or None."""
    found = yield from one(_Head, _HEAD, session)
    turns = yield from history.open_turns(session)
    head = found.head if found else None
    return SessionStanding(session=session, head=head, open_turns=turns).tip


def told(
    session: SessionId,
    *,
    before: TurnId | None,
    before_seq: int = 0,
    limit: int,
    with_left: bool,
    bytes_max: int,
) -> Op[list[ToldTurn]]:
    """Return the newest turns of a session, or the newest before the turn `before`; oldest
    first. Turns shared with other sessions come before its own. A turn that is too long for a
    page is a page of its own and shows its last entries; with `before_seq`, the last entries
    before that one."""
    places = yield from order(session, with_left=with_left)
    end = len(places)
    if before is not None:
        end = next((place for place, each in enumerate(places) if each.turn == before), 0)
    if before_seq and end < len(places) and places[end].turn == before:
        return (yield from _in_pieces(session, places, end, before=before_seq, bytes_max=bytes_max))
    start = yield from start_of_page(places, end, limit=limit, bytes_max=bytes_max)
    if end - start == 1 and (yield from journal.size_of_turn(places[start].turn)) > bytes_max:
        return (yield from _in_pieces(session, places, start, before=0, bytes_max=bytes_max))
    page, omitted = [], (yield from left_out(session))
    for place, (turn, _, stands) in enumerate(places[start:end], start):
        events = yield from journal.of_turn(turn)
        why = "" if stands else (yield from why_left(turn))
        page.append(
            ToldTurn(
                turn=turn,
                events=tuple(events),
                left=why,
                has_earlier=place > 0,
                left_out=omitted,
            )
        )
    return page


def left_out(session: SessionId) -> Op[tuple[LeftOut, ...]]:
    """Return what the turns on the session's chain leave out of later requests."""
    newest = yield from tip(session)
    return (yield from chains.left_out(newest)) if newest else ()


def _in_pieces(
    session: SessionId, places: Sequence[TurnPlace], place: int, *, before: int, bytes_max: int
) -> Op[list[ToldTurn]]:
    """Return the last entries of one turn, as a page of its own."""
    turn, _, stands = places[place]
    piece = yield from pieces.last_piece(turn, before=before, bytes_max=bytes_max)
    if not piece.events:
        return []
    told = ToldTurn(
        turn=turn,
        events=tuple(piece.events),
        left="" if stands else (yield from why_left(turn)),
        has_earlier=place > 0,
        begins_at=piece.begins_at,
        left_out=(yield from left_out(session)),
    )
    return [told]


def start_of_page(places: Sequence[TurnPlace], end: int, *, limit: int, bytes_max: int) -> Op[int]:
    """Return the index at which the page begins that ends at `end`: as far back as its turns
    fit."""
    total, start = 0, end
    while start > max(end - limit, 0):
        total += yield from journal.size_of_turn(places[start - 1].turn)
        if total > bytes_max and start < end:
            break
        start -= 1
    return start


def left(turn: TurnId, session: SessionId) -> Op[str]:
    """Return why a begun turn is not on its session's chain any more, or an empty string if it
    is."""
    chain = yield from _chain(session)
    return "" if any(each.id == turn for each in chain) else (yield from why_left(turn))


def _chain(session: SessionId) -> Op[list[_Linked]]:
    """Return the turns on a session's chain, including those of other sessions, oldest first."""
    newest = yield from tip(session)
    return (yield from many(_Linked, _CHAIN, newest)) if newest else []


def order(session: SessionId, *, with_left: bool) -> Op[list[TurnPlace]]:
    """Return the turns of a session in order, each with whether it stands: those on its chain, and
    with `with_left` also its own that were undone or asked again."""
    chain = yield from _chain(session)
    standing = {each.id for each in chain}
    shared = [
        TurnPlace(each.id, each.session, stands=True) for each in chain if each.session != session
    ]
    begun = yield from many(_Begun, _BEGUN, session)
    own = [TurnPlace(each.id, session, stands=each.id in standing) for each in begun]
    return shared + [each for each in own if each.stands or with_left]


def begun_before(session: SessionId, seq: int) -> Op[set[TurnId]]:
    """Return the turns of a session that had begun before this number."""
    begun = yield from many(_Begun, _BEGUN, session)
    return {each.id for each in begun if each.seq < seq}


def why_left(turn: TurnId) -> Op[str]:
    """Return why a turn is not on the chain any more."""
    return ASKED_AGAIN if (yield from exists(_IS_ASKED_AGAIN, turn)) else UNDONE
