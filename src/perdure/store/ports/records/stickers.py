"""Implements the port that finds out what stickers show."""

from functools import partial

from perdure.domain.ids import MediaId, NodeId
from perdure.domain.journal.events import Recorded
from perdure.ports.records.media import Fetch, FetchedFile
from perdure.ports.records.stickers import Met
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.files import describing


class StoredStickers:
    """Implements `Stickers`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def meet(self, fetch: Fetch) -> Met:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(describing.meet, fetch, stamp))

    async def describe(self, fetch: Fetch, found: FetchedFile, *, agent: str) -> list[Recorded]:
        stamp, media = self._mint.stamp(self._node), MediaId(self._mint.id("med"))
        return await self._driver.write(
            partial(describing.describe, fetch, found, media, agent, stamp)
        )

    async def pass_by(self, fetch: Fetch) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(describing.pass_by, fetch, stamp))
