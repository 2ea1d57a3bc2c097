"""Defines the port of work that one agent gives to another."""

from typing import Protocol

import msgspec

from perdure.domain.ids import CallId, TurnId
from perdure.domain.journal.events import Attachment, Recorded
from perdure.domain.outcomes import Outcome


class WorkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a call gives to another agent, with the files of the turn that go along. The wait
    for it ends at `deadline`; 0 means never. `why` says what has allowed the call."""

    call: CallId
    agent: str
    task: str
    files: tuple[Attachment, ...] = ()
    deadline: int = 0
    why: str = ""


class WorkDone(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what came of an errand: how it ended, what its agent has said, and the files that it
    has made. `why` says in words why it was not done."""

    outcome: Outcome
    agent: str
    text: str
    why: str = ""
    files: tuple[Attachment, ...] = ()


class Delegations(Protocol):
    """Keeps the work that agents have given to others.

    Guarantees: a turn waits for an errand until the errand is over or its deadline has passed,
    whichever is first, on whichever node. What an errand has come to never changes.
    Requires: an errand was opened by `Turns.wait`.
    Raises: `Transient`, `Ambiguous`.
    After a crash: errands go on, and so does the wait for them. Those for which nobody waits any
    more are found by `unwanted`.
    """

    async def result(self, errand: TurnId) -> WorkDone | None:
        """Return what came of an errand, or None if it is not over."""

    async def expire(self, *, limit: int) -> list[Recorded]:
        """End the wait for errands whose deadline has passed. Returns what was appended."""

    async def next_deadline_ms(self) -> int | None:
        """Return when the next deadline passes, or None if no errand has one."""

    async def unwanted(self, *, limit: int) -> list[TurnId]:
        """Return errands that are under way and for which nobody waits any more."""

    async def stop(self, errand: TurnId) -> list[Recorded]:
        """Stop an errand for which nobody waits any more, unless it has ended. Returns what was
        appended."""
