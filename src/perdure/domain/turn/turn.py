"""Defines the states of a turn, and which events lead from one to another.

`LEGAL` is the whole machine; `scripts/draw-turn-machine` prints it as the drawing in
ARCHITECTURE.md. `evolve` folds events of the journal, so an illegal one means `Corrupt`. `require`
decides for callers that are not trusted, so an illegal wish means `Conflict`. The only module that
writes a turn's state asks it (`store/operations/turns/turn_rows.py`). The database guards the same
rules again with CHECKs and a unique index.

A turn that waits for an answer, or for the work of another agent, has no owner: nothing of it is in
memory, a drain does not wait for it, and no crash interrupts it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.errors import Conflict, Corrupt
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import (
    AttemptInterrupted,
    TurnEvent,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.journal.question_events import (
    AnswerAwaited,
    AnswerReceived,
    WaitEnded,
    WorkDelegated,
    WorkReturned,
)
from perdure.domain.outcomes import Interruption, Outcome


class State(StrEnum):
    """Says where a turn is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    SETTLED = "settled"


# A session has at most one turn in these states: its next turn waits for that one.
AT_WORK: Final = (State.RUNNING, State.WAITING)


LEGAL: Final[Mapping[tuple[State, type[TurnEvent]], State]] = {
    (State.QUEUED, TurnStarted): State.RUNNING,
    (State.QUEUED, TurnSettled): State.SETTLED,  # stopped before it ran
    (State.RUNNING, TurnSettled): State.SETTLED,
    (State.RUNNING, AttemptInterrupted): State.INTERRUPTED,  # the owner died, or time ran out
    (State.RUNNING, AnswerAwaited): State.WAITING,
    (State.WAITING, AnswerAwaited): State.WAITING,  # one more question of the same answer
    (State.WAITING, AnswerReceived): State.WAITING,  # others may still be open
    (State.RUNNING, WorkDelegated): State.WAITING,
    (State.WAITING, WorkDelegated): State.WAITING,  # one more errand of the same answer
    (State.WAITING, WorkReturned): State.WAITING,  # others may still be under way
    (State.WAITING, WaitEnded): State.QUEUED,  # same turn, where it was
    (State.WAITING, TurnSettled): State.SETTLED,  # stopped or replaced
    (State.INTERRUPTED, TurnRequeued): State.QUEUED,  # same turn, next attempt
    (State.INTERRUPTED, TurnSettled): State.SETTLED,  # replaced, dropped, or at the limit
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the journal says about one turn so far."""

    id: TurnId
    state: State = State.QUEUED
    attempts: int = 0
    parent: TurnId | None = None
    outcome: Outcome | None = None
    interruption: Interruption | None = None


def opened(event: TurnQueued) -> Turn:
    """Return the turn that this event opens."""
    return Turn(id=event.turn)


def state_after(state: State, event: TurnEvent) -> State:
    """Return the state of a turn after this event. Raises `Corrupt` if the event is not
    possible."""
    after = LEGAL.get((state, type(event)))
    if after is None:
        raise Corrupt(
            f"{event.turn}: {type(event).__name__} is not possible while {state}; "
            "run `perdure verify` and restore a backup"
        )
    return after


def evolve(turn: Turn, event: TurnEvent) -> Turn:
    """Fold one event of the journal into a turn. The journal is trusted, so an illegal event raises
    `Corrupt`."""
    changed = msgspec.structs.replace(turn, state=state_after(turn.state, event))
    match event:
        case TurnStarted(attempt=attempt, parent=parent):
            return msgspec.structs.replace(
                changed, attempts=attempt, parent=parent, interruption=None
            )
        case AttemptInterrupted(reason=reason):
            return msgspec.structs.replace(changed, interruption=reason)
        case TurnSettled(outcome=outcome):
            return msgspec.structs.replace(changed, outcome=outcome)
        case TurnRequeued() | WaitEnded():
            return changed
        case AnswerAwaited() | AnswerReceived() | WorkDelegated() | WorkReturned():
            return changed


def drawing() -> str:
    """Return the machine as a Mermaid diagram."""
    steps = [
        f"    {state} --> {after}: {event.__name__}" for (state, event), after in LEGAL.items()
    ]
    ends = f"    [*] --> {State.QUEUED}", f"    {State.SETTLED} --> [*]"
    return "\n".join(["stateDiagram-v2", ends[0], *steps, ends[1]])


def require(state: State, event: type[TurnEvent], *, turn: TurnId) -> State:
    """Return the state after an event that a caller wants to write. Callers are not trusted: an
    impossible event raises `Conflict`."""
    after = LEGAL.get((state, event))
    if after is None:
        raise Conflict(f"turn {turn} is already {state}", code="already_" + state.value)
    return after
