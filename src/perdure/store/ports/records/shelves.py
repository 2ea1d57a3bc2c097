"""Implements the port that keeps how people order their conversations."""

from functools import partial

from perdure.domain.ids import ConversationId
from perdure.ports.records.shelves import Shelving
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.sessions import shelves


class StoredShelves:
    """Implements `Shelves`."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def shelve(self, conversation: ConversationId, wish: Shelving) -> None:
        at = self._mint.now_ms()
        await self._driver.write(partial(shelves.shelve, conversation, wish, at=at))
