"""The turns of a session, and which of them stand.

Those stand that lead from the session's beginning to where it stands now: the chain of parents from
its newest turn that has started, also across sessions, for a branch shares the turns it was made
from. What was undone or asked again is left beside the chain. Whoever shows what was said in a
session, or says whether a turn counts, reads it here.
"""

from typing import Final

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.records import ASKED_AGAIN, UNDONE, ToldTurn
from perdure.domain.standing import Standing
from perdure.store.operations import history, journal
from perdure.store.statement import Op, row, rows

_HEAD: Final = "SELECT head_turn FROM sessions WHERE id = $1"
_CHAIN: Final = """
    WITH RECURSIVE chain (id, parent_id, session_id, depth) AS (
        SELECT id, parent_id, session_id, 0 FROM turns WHERE id = $1
        UNION ALL
        SELECT t.id, t.parent_id, t.session_id, chain.depth + 1
        FROM chain JOIN turns t ON t.id = chain.parent_id)
    SELECT id, session_id FROM chain ORDER BY depth DESC"""
# In the order in which they began; a turn that never did is on no chain and beside none.
_BEGUN: Final = """
    SELECT t.id, MIN(j.seq) FROM turns t JOIN journal j ON j.turn_id = t.id
      AND j.session_id = t.session_id AND j.kind = 'turn_started'
    WHERE t.session_id = $1 GROUP BY t.id ORDER BY 2"""
_IS_ASKED_AGAIN: Final = "SELECT 1 FROM turns WHERE origin_id = $1 LIMIT 1"


def tip(session: SessionId) -> Op[TurnId | None]:
    """The newest turn that stands in this session."""
    found = yield from row(_HEAD, session)
    head = found[0] if found else None
    turns = yield from history.open_turns(session)
    return Standing(session=session, head=head, open_turns=turns).tip


def told(
    session: SessionId, *, before: TurnId | None, limit: int, with_left: bool
) -> Op[list[ToldTurn]]:
    """The newest turns of a session, or the newest before one of them, oldest first. Turns that it
    shares with other sessions come before its own."""
    order = yield from _order(session, with_left=with_left)
    end = len(order)
    if before is not None:
        end = next((place for place, (turn, _) in enumerate(order) if turn == before), 0)
    page = []
    for turn, stands in order[max(end - limit, 0) : end]:
        events = yield from journal.of_turn(turn)
        why_left = "" if stands else (yield from _why_left(turn))
        page.append(ToldTurn(turn=turn, events=tuple(events), left=why_left))
    return page


def left(turn: TurnId, session: SessionId) -> Op[str]:
    """Why a turn that has begun does not stand in its session any more; empty if it does."""
    newest = yield from tip(session)
    chain = (yield from rows(_CHAIN, newest)) if newest else []
    return "" if any(each == turn for each, _ in chain) else (yield from _why_left(turn))


def _order(session: SessionId, *, with_left: bool) -> Op[list[tuple[TurnId, bool]]]:
    """Turns with whether they stand."""
    newest = yield from tip(session)
    chain = (yield from rows(_CHAIN, newest)) if newest else []
    standing = {turn for turn, _ in chain}
    shared = [(TurnId(turn), True) for turn, where in chain if where != session]
    begun = yield from rows(_BEGUN, session)
    own = [(TurnId(turn), turn in standing) for turn, _ in begun]
    return shared + [each for each in own if each[1] or with_left]


def _why_left(turn: TurnId) -> Op[str]:
    return ASKED_AGAIN if (yield from row(_IS_ASKED_AGAIN, turn)) else UNDONE
