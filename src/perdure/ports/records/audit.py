"""Defines the port that reads everything stored, for the checker."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.ids import SessionId
from perdure.domain.journal.records import SessionRecord


class SessionMark(msgspec.Struct, frozen=True, array_like=True):
    """Holds the state in which a session was found sound: its last event and its epoch. At least
    one of them grows with everything that happens to a session."""

    session: SessionId
    seq: int
    epoch: int


class Audit(Protocol):
    """Reads everything stored, in portions.

    Guarantees: each read is one short snapshot, so that a check of everything holds up nobody;
    `suspects` and `integrity` say how they differ. `only_new` leaves out sessions that were noted
    as sound and have not changed since.
    Requires: nothing.
    Raises: `Corrupt` when something cannot be read; `Transient` when nobody can read now.
    After a crash: what was noted stays noted.
    """

    async def count(self, *, only_new: bool) -> int:
        """Return how many sessions there are."""

    async def batch(self, *, after: SessionId | None, only_new: bool) -> list[SessionId]:
        """Return the next sessions after one, in the order of the database; none at the end."""

    async def records(self, first: SessionId, last: SessionId) -> list[SessionRecord]:
        """Return everything that the checker needs of the sessions from `first` to `last`, both
        included, in one snapshot."""

    async def suspects(self) -> list[SessionId]:
        """Return the sessions with updates whose turn is in another session. `records` does not
        show these updates if no journal mentions them; `Diagnostics.record` does. Reads all updates
        in many short reads."""

    async def tables(self) -> list[str]:
        """Return what `integrity` can check: the tables, or none if the database has no check of
        its own."""

    async def integrity(self, table: str) -> list[str]:
        """Return what the database's own check finds in a table. It takes as long as the table is
        large, and ends when the caller is cancelled. It uses a fresh connection: one that has read
        the index before it grew would report faults that do not exist."""

    async def note(self, sound: Sequence[SessionMark]) -> None:
        """Record that sessions are sound in these states. Requires records in which the checker has
        found no fault, of sessions that wait for nothing."""
