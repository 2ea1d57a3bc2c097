"""Defines the port through which people decide about parts that could not be delivered."""

from typing import Protocol

from perdure.domain.ids import PartId
from perdure.domain.journal.records import PartView
from perdure.ports.records.history import Page


class Parked(Protocol):
    """Shows what will not go on by itself: parts that failed, expired or may have arrived, and
    letters, which are arrivals that could not be taken.

    Guarantees: nothing is deleted. A part that is replayed is sent like any other.
    Requires: nothing.
    Raises: `NotFound` for a part that does not exist; `Transient` when nothing was written;
    `Ambiguous` when that is unknown.
    After a crash: a decision was stored whole or not at all.
    """

    async def page(self, page: Page) -> list[PartView]:
        """Return a page of what is parked, with its text and the reason, newest first."""

    async def part(self, part: PartId) -> PartView:
        """Return one part or letter, parked or not."""

    async def replay(self, part: PartId, *, force: bool) -> PartView:
        """Put a part back into its line. Of a letter this only records that it was taken after all:
        take it with `Overseer.take_again`.

        Requires `force` for a part that may have arrived: the person accepts that it may show
        twice. Raises `Conflict` without it, and for a part that is not parked, was taken back, or
        is a preview whose words were sent in another way.
        """

    async def drop(self, part: PartId) -> PartView:
        """Take a part or a letter off the list for good. Raises `Conflict` if it is not parked."""
