"""Implements the port that keeps what a group says without the bot."""

from functools import partial

from perdure.domain.address import Address
from perdure.domain.ids import NodeId
from perdure.ports.people.overhearing import HeardLine
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.people import overhearing


class StoredOverhearing:
    """Implements `Overhearing`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def note(self, heard: HeardLine) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(overhearing.note, heard, stamp))

    async def reword(self, heard: HeardLine) -> None:
        await self._driver.write(partial(overhearing.reword, heard))

    async def drop(self, address: Address, external_id: str) -> None:
        await self._driver.write(partial(overhearing.drop, address, external_id))

    async def forget(self, address: Address) -> None:
        await self._driver.write(partial(overhearing.forget, address))
