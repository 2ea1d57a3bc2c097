"""Reading everything stored, for the checker."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.ids import SessionId
from perdure.domain.journal.records import SessionRecord


class SessionMark(msgspec.Struct, frozen=True, array_like=True):
    """A session as it stood when it was found sound: its last event, and its epoch. Both grow with
    everything that happens to a session."""

    session: SessionId
    seq: int
    epoch: int


class Audit(Protocol):
    """Everything stored, piece by piece.

    Guarantees: `count` is how many sessions there are, `batch` the next of them after a session, in
    the order of the database; empty at the end. With `only_new` those are left out that were noted
    as sound and stand where they stood then. `records` is everything that the checker needs of the
    sessions between two, both included, as of one instant. `suspects` are sessions with updates
    that `records` cannot show, since no journal mentions them, and that do not fit to their turns:
    `Diagnostics.record` shows all of such a session. Each read is short, so that a walk over
    everything holds up nobody. `integrity` is what the database's own check finds in one of the
    `tables`, on a connection of its own: one that has read the index before it grew would find
    faults that are not there. It is as long as the table, and ends when the caller is cancelled.
    Requires: `note` is given marks of records that the checker found no fault with, and that wait
    for nothing.
    Raises: `Corrupt` when something cannot be read; `Transient` when nobody can read now.
    After a crash: what was noted stays noted.
    """

    async def count(self, *, only_new: bool) -> int: ...

    async def batch(self, *, after: SessionId | None, only_new: bool) -> list[SessionId]: ...

    async def records(self, first: SessionId, last: SessionId) -> list[SessionRecord]: ...

    async def suspects(self) -> list[SessionId]: ...

    async def tables(self) -> list[str]: ...

    async def integrity(self, table: str) -> list[str]: ...

    async def note(self, sound: Sequence[SessionMark]) -> None: ...
