"""Implements the port for parts that could not be delivered."""

from functools import partial

from perdure.domain.ids import PartId
from perdure.domain.journal.records import PartView
from perdure.ports.records.history import Page
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.delivery import parked


class StoredParked:
    """Implements `Parked`."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def page(self, page: Page) -> list[PartView]:
        return await self._driver.read(partial(parked.page, page))

    async def part(self, part: PartId) -> PartView:
        return await self._driver.read(partial(parked.part, part))

    async def replay(self, part: PartId, *, force: bool) -> PartView:
        at = self._mint.now_ms()
        return await self._driver.write(partial(parked.replay, part, force=force, at=at))

    async def drop(self, part: PartId) -> PartView:
        at = self._mint.now_ms()
        return await self._driver.write(partial(parked.drop, part, at=at))
