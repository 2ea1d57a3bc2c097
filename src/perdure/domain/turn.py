"""The life of a turn, as data.

    queued ──TurnStarted──▶ running ──TurnSettled──▶ settled
      ▲                      │  ▲ │
      │                      │  └─▼ waiting (for an approval)
      └──TurnRequeued── interrupted ──TurnSettled──▶ settled

`LEGAL` is the whole machine. `evolve` folds journalled facts, so an illegal one is `Corrupt`; the
deciders below serve callers that are not trusted, so an illegal wish is a `Conflict`. The store
guards the same rules a second time with CHECKs and a unique index.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from perdure.domain.errors import Conflict, Corrupt
from perdure.domain.events import (
    AttemptInterrupted,
    TurnEvent,
    TurnQueued,
    TurnRequeued,
    TurnSettled,
    TurnStarted,
)
from perdure.domain.ids import TurnId
from perdure.domain.outcomes import Interruption, Outcome


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    INTERRUPTED = "interrupted"
    SETTLED = "settled"


LEGAL: Final[Mapping[tuple[State, type[TurnEvent]], State]] = {
    (State.QUEUED, TurnStarted): State.RUNNING,
    (State.QUEUED, TurnSettled): State.SETTLED,  # stopped before it ran
    (State.RUNNING, TurnSettled): State.SETTLED,
    (State.RUNNING, AttemptInterrupted): State.INTERRUPTED,  # the owner died, or time ran out
    (State.WAITING, TurnSettled): State.SETTLED,
    (State.WAITING, AttemptInterrupted): State.INTERRUPTED,
    (State.INTERRUPTED, TurnRequeued): State.QUEUED,  # same turn, next attempt
    (State.INTERRUPTED, TurnSettled): State.SETTLED,  # replaced, dropped, or at the limit
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of one turn so far."""

    id: TurnId
    state: State = State.QUEUED
    attempts: int = 0
    parent: TurnId | None = None
    outcome: Outcome | None = None
    interruption: Interruption | None = None


def opened(event: TurnQueued) -> Turn:
    return Turn(id=event.turn)


def evolve(turn: Turn, event: TurnEvent) -> Turn:
    """Fold one journalled fact. The journal is trusted, so an illegal fact means corruption."""
    state = LEGAL.get((turn.state, type(event)))
    if state is None:
        raise Corrupt(
            f"{turn.id}: {type(event).__name__} is not possible while {turn.state}; "
            "run `perdure verify` and restore a backup"
        )
    changed = msgspec.structs.replace(turn, state=state)
    match event:
        case TurnStarted(attempt=attempt, parent=parent):
            return msgspec.structs.replace(
                changed, attempts=attempt, parent=parent, interruption=None
            )
        case AttemptInterrupted(reason=reason):
            return msgspec.structs.replace(changed, interruption=reason)
        case TurnSettled(outcome=outcome):
            return msgspec.structs.replace(changed, outcome=outcome)
        case TurnRequeued():
            return changed


def require(state: State, event: type[TurnEvent], *, turn: TurnId) -> State:
    """Decide a transition. Callers are not trusted: an impossible one gets `Conflict`."""
    after = LEGAL.get((state, event))
    if after is None:
        raise Conflict(f"turn {turn} is already {state}", code="already_" + state.value)
    return after
