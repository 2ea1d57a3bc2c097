"""Keeps the calls that must not be repeated and whose fate is unknown.

A call is added in the transaction that ends it as unknown, so none is forgotten. When a person has
marked it, the session's next attempt tells the agent; that is journalled in the same transaction in
which the attempt begins, or in which a running turn takes what came for it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perdure.domain.errors import Conflict, NotFound
from perdure.domain.ids import CallId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    ToolCall,
    ToolFinished,
)
from perdure.domain.journal.question_events import EffectMarked
from perdure.domain.journal.records import EffectView
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.tools.asking import unknown_text
from perdure.domain.turn.next_action import started_calls
from perdure.ports.records.history import Page
from perdure.store.operations import journal
from perdure.store.operations.delivery.notices import notice
from perdure.store.operations.turn_context import Stamp
from perdure.store.statement import Op, many, one, run

# Adds a call whose fate is unknown.
_PUT = """
    INSERT INTO effects (call_id, turn_id, session_id, principal_id, tool, arguments, at, state)
    SELECT $1, t.id, t.session_id, t.principal_id, $2, $3, $4, 'unknown'
    FROM turns t WHERE t.id = $5
    ON CONFLICT (call_id) DO NOTHING"""
# Reads calls as people are shown them; the caller appends which.
_SHOWN = """
    SELECT e.call_id, e.turn_id, e.session_id, e.tool, e.arguments, e.at, e.state, e.late_result,
           COALESCE(p.name, ''), e.marked_at
    FROM effects e LEFT JOIN principals p ON p.id = e.marked_by """
# Reads one call.
_ONE = _SHOWN + "WHERE e.call_id = $1 AND ($2 = '' OR e.principal_id = $2)"
# Reads a page of calls, oldest first.
_PAGE = (
    _SHOWN
    + """
    WHERE ($1 = '' OR e.principal_id = $1) AND (e.at > $2 OR (e.at = $2 AND e.call_id > $3))
    ORDER BY e.at, e.call_id LIMIT $4"""
)
# Reads a person's newest calls.
_NEWEST = _SHOWN + "WHERE e.principal_id = $1 ORDER BY e.at DESC, e.call_id DESC LIMIT $2"
# Reads the calls of a turn whose fate is or was unknown.
_OF_TURN = (
    _SHOWN + "WHERE e.turn_id = $1 AND ($2 = '' OR e.principal_id = $2) ORDER BY e.at, e.call_id"
)
# Locks a call.
_LOCKED = "SELECT state FROM effects WHERE call_id = $1 FOR UPDATE"
# Records what a person knows about a call.
_MARK = """
    UPDATE effects SET state = $1, marked_by = $2, marked_at = $3 WHERE call_id = $4"""
# Keeps a result that came late.
_LATE = """
    UPDATE effects SET late_ending = $1, late_result = $2 WHERE call_id = $3"""
# Finds the calls of a session that were marked and that the agent was not told of.
_UNTOLD = """
    SELECT call_id, tool, state, marked_by FROM effects
    WHERE session_id = $1 AND marked_at IS NOT NULL AND told_turn_id IS NULL
    ORDER BY marked_at, call_id FOR UPDATE"""
# Records in which turn the agent was told.
_TOLD = "UPDATE effects SET told_turn_id = $1 WHERE call_id = $2"
_STATES: Final = {True: "happened", False: "not_happened"}
_BEGINNING: Final = (-1, "")
# The most characters that are kept of a late result.
LATE_MAX: Final = 20_000


class _Effect(NamedTuple):
    call: CallId
    turn: TurnId
    session: SessionId
    tool: str
    arguments: str
    at: int
    state: str
    late_result: str
    marked_by: str
    marked_at: int | None


class _Marked(NamedTuple):
    call: CallId
    tool: str
    state: str
    by: PrincipalId


def note(
    turn: TurnId, so_far: Sequence[AnyEvent], ended: Sequence[AnyEvent], *, at: int
) -> Op[list[ToolCall]]:
    """Add the calls that these events end as unknown, if they had started and must not be
    repeated, and return them. A call that was only refused because an equal one may have happened
    never started."""
    unknown = {
        event.call
        for event in ended
        if isinstance(event, ToolFinished) and event.ending is CallEnding.UNKNOWN
    }
    if not unknown:
        return []
    events = [*so_far, *ended]
    begun = started_calls(events) & unknown
    cut = [call for call in _calls_in(events) if call.id in begun and call.repeat is Repeat.ONCE]
    for call in cut:
        yield from run(_PUT, call.id, call.name, call.arguments, at, turn)
    return cut


def tell_people(
    session: SessionId, turn: TurnId, cut: Sequence[ToolCall], stamp: Stamp
) -> Op[list[Recorded]]:
    """Tell the people of a turn about calls whose fate is unknown."""
    return (yield from notice(session, turn, unknown_text(cut), stamp)) if cut else []


def note_of_running(
    session: SessionId, turn: TurnId, ended: Sequence[AnyEvent], stamp: Stamp
) -> Op[list[Recorded]]:
    """Add the calls that these events of a running turn end as unknown, and tell the people of the
    turn. The turn is read only if there are any."""
    is_needed = any(
        isinstance(event, ToolFinished) and event.ending is CallEnding.UNKNOWN for event in ended
    )
    if not is_needed:
        return []
    so_far = [recorded.event for recorded in (yield from journal.of_turn(turn))]
    cut = yield from note(turn, so_far, ended, at=stamp.at)
    return (yield from tell_people(session, turn, cut, stamp))


def _calls_in(events: Sequence[AnyEvent]) -> list[ToolCall]:
    """Return the calls that the model has asked for."""
    return [call for event in events if isinstance(event, AssistantSaid) for call in event.calls]


def page(page: Page, *, principal: PrincipalId | None) -> Op[list[EffectView]]:
    """Return a page of calls whose fate is or was unknown."""
    after, last = page.after or _BEGINNING
    found = yield from many(_Effect, _PAGE, principal or "", after, last, page.limit)
    return [_view(each) for each in found]


def newest(principal: PrincipalId, *, limit: int) -> Op[list[EffectView]]:
    """Return a person's newest calls whose fate is or was unknown, the newest first."""
    return [_view(each) for each in (yield from many(_Effect, _NEWEST, principal, limit))]


def of_turn(turn: TurnId) -> Op[list[EffectView]]:
    """Return the calls of a turn whose fate is or was unknown."""
    return (yield from of_turns((turn,), principal=None))


def of_turns(turns: Sequence[TurnId], *, principal: PrincipalId | None) -> Op[list[EffectView]]:
    """Return the calls of these turns whose fate is or was unknown."""
    views: list[EffectView] = []
    for turn in turns:
        found = yield from many(_Effect, _OF_TURN, turn, principal or "")
        views += [_view(each) for each in found]
    return views


def mark(
    call: CallId,
    stamp: Stamp,
    *,
    has_happened: bool,
    by: PrincipalId,
    principal: PrincipalId | None,
) -> Op[EffectView]:
    """Record that a person knows whether a call has happened. The same word again does nothing.
    Raises `Conflict` if another word was given before, and `NotFound`."""
    found = yield from one(_Effect, _ONE, call, principal or "")
    if found is None:
        raise NotFound(f"there is no call {call} whose fate is unknown; /effects lists them")
    state = yield from one(str, _LOCKED, call)
    wanted = _STATES[has_happened]
    if state not in ("unknown", wanted):
        raise Conflict(
            f"{found.marked_by or 'somebody'} has marked call {call} as {state}",
            code="already_marked",
        )
    if state == "unknown":
        yield from run(_MARK, wanted, by, stamp.at, call)
    found = yield from one(_Effect, _ONE, call, "")
    assert found is not None
    return _view(found)


def late(turn: TurnId, call: ToolCall, ending: CallEnding, result: str, *, at: int) -> Op[None]:
    """Keep the result of a call that came after its turn had left it. The end of the call may not
    be recorded yet, so the call is added here too."""
    yield from run(_PUT, call.id, call.name, call.arguments, at, turn)
    yield from run(_LATE, ending, result[:LATE_MAX], call.id)


def tell(session: SessionId, turn: TurnId) -> Op[list[EffectMarked]]:
    """Return what the agent must be told in this turn about marked calls of the session, and record
    that it is told there."""
    untold = yield from many(_Marked, _UNTOLD, session)
    for each in untold:
        yield from run(_TOLD, turn, each.call)
    return [
        EffectMarked(
            turn=turn,
            call=each.call,
            tool=each.tool,
            has_happened=each.state == _STATES[True],
            by=each.by,
        )
        for each in untold
    ]


def _view(found: _Effect) -> EffectView:
    return EffectView(
        call=found.call,
        turn=found.turn,
        session=found.session,
        tool=found.tool,
        arguments=found.arguments,
        at=found.at,
        state=found.state,
        late_result=found.late_result,
        marked_by=found.marked_by,
        marked_at=found.marked_at,
    )
