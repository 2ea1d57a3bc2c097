"""What could not be delivered, and what a person decides about it."""

from typing import Protocol

from perdure.domain.ids import PartId
from perdure.domain.journal.records import PartView
from perdure.ports.records.history import Page


class Parked(Protocol):
    """Parts that will not be sent by themselves any more, and letters: what came in and could not
    be taken.

    Guarantees: `page` shows all of them, with what they were to say and why they are here, those
    parked last first: failed and expired ones, and those of which nobody knows whether they
    arrived. `replay` puts one back into its line, from where it is sent like any other; `drop`
    takes it off this list for good. Nothing is deleted. Of a letter `replay` only notes that it was
    taken after all: see `Control.take_again`.
    Requires: `force` for a part that may have arrived: the person accepts that it may show twice.
    Raises: `NotFound` for a part that is not there; `Conflict` for one that is not parked, is a
    preview whose words came another way, or may show twice and was not forced.
    After a crash: it happened whole or not at all.
    """

    async def page(self, page: Page) -> list[PartView]: ...

    async def part(self, part: PartId) -> PartView: ...

    async def replay(self, part: PartId, *, force: bool) -> PartView: ...

    async def drop(self, part: PartId) -> PartView: ...
