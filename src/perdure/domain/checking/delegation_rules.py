"""Checks what must hold of work that one agent has given to another, as rules of the checker."""

from collections.abc import Iterator, Mapping, Sequence

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import Recorded, ToolFinished
from perdure.domain.journal.question_events import WorkDelegated, WorkReturned
from perdure.domain.journal.records import DelegationRecord, SessionRecord
from perdure.domain.turn.turn import State

_ByTurn = Mapping[TurnId, Sequence[Recorded]]
OPEN = "open"


def delegations_follow_the_journal(record: SessionRecord, by_turn: _ByTurn) -> Iterator[str]:
    """Check that each piece of work that was given away is a row and an event, that the wait for it
    ended as the journal says, and that no call got a result before that."""
    events = [recorded.event for turn in by_turn.values() for recorded in turn]
    given = {event.errand: event for event in events if isinstance(event, WorkDelegated)}
    returned = {event.errand: event for event in events if isinstance(event, WorkReturned)}
    rows = {row.errand: row for row in record.delegations}
    for errand in rows.keys() ^ given.keys():
        yield f"{errand} is in the journal or among the rows, not in both"
    for errand in returned.keys() - given.keys():
        yield f"{errand} has returned and was never ordered"
    states = {turn.id: turn.state for turn in record.turns}
    for row in record.delegations:
        event = given.get(row.errand)
        if event is None:
            continue
        if (event.turn, event.call, event.deadline) != (row.turn, row.call, row.deadline):
            yield f"{row.errand}: the row says {row}, the journal {event}"
        should_be = _state_of(returned.get(row.errand), states.get(row.turn, ""))
        if row.state != should_be:
            yield f"{row.errand} is {row.state}, by the journal {should_be}"
    waiting = {turn for turn, state in states.items() if state == State.WAITING}
    for turn in waited_for(record.delegations) - waiting:
        yield f"{turn} has given work away that is open, and does not wait"
    yield from _called_once(given, events_of_calls=events, returned=returned)


def _state_of(returned: WorkReturned | None, turn: str) -> str:
    """Return the state in which a delegation must be. One that nobody has ended is open while its
    turn waits, and withdrawn once the turn is over."""
    if returned is None:
        return "withdrawn" if turn == State.SETTLED else OPEN
    return "expired" if returned.reason else "returned"


def _called_once(
    given: Mapping[TurnId, WorkDelegated],
    *,
    events_of_calls: Sequence[object],
    returned: Mapping[TurnId, WorkReturned],
) -> Iterator[str]:
    """Check that a call gives its work away once, and has one result."""
    calls = [event.call for event in given.values()]
    for call in {each for each in calls if calls.count(each) > 1}:
        yield f"{call} has given its work away twice"
    ended = [e.call for e in events_of_calls if isinstance(e, ToolFinished)]
    for errand, event in given.items():
        if errand in returned and ended.count(event.call) > 1:
            yield f"{event.call} has more than one result"


def waited_for(rows: Sequence[DelegationRecord]) -> set[TurnId]:
    """Return the turns that wait for the work of other agents."""
    return {row.turn for row in rows if row.state == OPEN}
