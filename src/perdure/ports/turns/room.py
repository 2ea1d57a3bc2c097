"""Defines the port that keeps what is known of the models' windows, and makes room in them."""

from typing import Protocol

import msgspec

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import Recorded
from perdure.ports.turns.turns import TurnLease


class LearnedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the window of an agent's model, in tokens, as the model's server has named it."""

    agent: str
    model: str
    tokens: int


class RoomMade(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a running turn found to make its request shorter: a summary of everything up to
    the turn `upto`, which stands for so many `tokens`, or the `problem` (for everybody) and the
    `detail` (for operators) that kept it from one. If all of them are empty, the request is only
    made again."""

    upto: TurnId | None = None
    summary: str = ""
    tokens: int = 0
    cost: int = 0
    problem: str = ""
    detail: str = ""


class ContextRoom(Protocol):
    """Keeps the named windows of models, and makes room for a turn that is too long for one.

    Guarantees: `make` is one transaction. A summary is applied as any other: it changes what the
    model is told, and nothing else; if it is empty, no shorter than what it replaces, or its turns
    are not on the chain, it changes nothing, and the turn is told so. A window becomes known in the
    transaction that appends `WindowExceeded`.
    Requires: a lease of a running turn, for `make`.
    Raises: `Fenced` when the lease is stale; `Transient` when nothing was written; `Ambiguous` when
    that is unknown.
    After a crash: either all of `make` is there or nothing of it, and the next attempt sees which.
    """

    async def learned(self) -> list[LearnedWindow]:
        """Return the windows that servers have named, each by its newest refusal."""

    async def make(self, lease: TurnLease, made: RoomMade) -> list[Recorded]:
        """Record what was found, and apply its summary. Returns what was appended; the last event
        is a `RoomSought` of the turn."""
