"""Implements the port that counts how often an arrival was begun, for what is found after a
crash."""

from functools import partial

from perdure.domain.address import Address
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.delivery import handling


class StoredHandling:
    """Implements `Handling`."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def begin(self, address: Address, external_id: str) -> int:
        at = self._mint.now_ms()
        return await self._driver.write(partial(handling.begin, address, external_id, at=at))

    async def end(self, address: Address, external_id: str) -> None:
        await self._driver.write(partial(handling.end, address, external_id))
