"""Records how long platforms want us to wait, and finds how much we have sent lately.

A process keeps its pace in memory. After a crash the next process reads here where the last one
stood, so that it does not exceed a platform's limits.
"""

from typing import NamedTuple

from perdure.domain.waits import is_ahead
from perdure.ports.delivery.pacing import Hold, Lately, PacedCall
from perdure.store.operations.addresses import ADDRESS, address_of
from perdure.store.statement import Op, many, one, run

# Locks the known wait of a place, and reads its end.
_KNOWN = "SELECT until_at FROM holds WHERE adapter = $1 AND place = $2 FOR UPDATE"
# Stores until when nothing may be sent to a place.
_HOLD = """
    INSERT INTO holds (adapter, place, until_at, written_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (adapter, place) DO UPDATE
    SET until_at = excluded.until_at, written_at = excluded.written_at"""
# Reads the waits of an adapter.
_HOLDS = "SELECT place, until_at, written_at FROM holds WHERE adapter = $1"
# Reads what was sent lately, and where. Each part counts once, at its last attempt.
_TRIED = f"""
    SELECT o.changed_at, {ADDRESS} FROM outbox o
    JOIN conversations c ON c.id = o.conversation_id
    WHERE o.attempts > 0 AND o.changed_at > $1 AND o.adapter = $2
    ORDER BY o.changed_at DESC LIMIT 2000"""
# Reads the bubbles of turns at work, and where they are. The edits of a bubble are not stored: it
# may have been edited at its full pace since it was opened.
_GROWING = f"""
    SELECT o.created_at, {ADDRESS} FROM outbox o
    JOIN conversations c ON c.id = o.conversation_id
    WHERE o.turn_id IN (SELECT t.id FROM turns t WHERE t.outcome IS NULL AND t.attempts > 0)
      AND o.step = 'bubble' AND o.adapter = $1 LIMIT 2000"""


class _Held(NamedTuple):
    """Holds a wait that a platform has demanded."""

    place: str
    until_at: int
    written_at: int


class _Called(NamedTuple):
    """Holds when a platform was called, and for which address."""

    at: int
    adapter: str
    account: str
    place: str
    thread: str
    person: str


def hold(adapter: str, place: str, *, until: int, at: int) -> Op[None]:
    """Store until when nothing may be sent to a place, unless a longer wait is known."""
    known = yield from one(int, _KNOWN, adapter, place)
    if known is None or known < until:
        yield from run(_HOLD, adapter, place, until, at)


def lately(adapter: str, *, within_ms: int, at: int) -> Op[Lately]:
    """Return what was sent to a platform lately, and the waits that are not over."""
    held = yield from many(_Held, _HOLDS, adapter)
    tried = yield from many(_Called, _TRIED, at - within_ms, adapter)
    growing = yield from many(_Called, _GROWING, adapter)
    holds = [_hold(each, at) for each in held]
    return Lately(
        holds=tuple(each for each in holds if each.left_s > 0),
        calls=tuple(_call(each, at) for each in tried),
        growing=tuple(_call(each, at) for each in growing),
    )


def _hold(found: _Held, at: int) -> Hold:
    """Return what is left of a wait. If it was written in the future, the clock was set back,
    nobody knows how much is over, and the wait starts again."""
    begun = found.written_at if is_ahead(found.written_at, at) else at
    return Hold(place=found.place, left_s=(found.until_at - begun) / 1000)


def _call(found: _Called, at: int) -> PacedCall:
    """Return a call with how long ago it was."""
    address = address_of(found.adapter, found.account, found.place, found.thread, found.person)
    return PacedCall(address=address, ago_s=max(at - found.at, 0) / 1000)
