"""Implements the port that keeps the models' windows and makes room in them."""

from functools import partial

from perdure.domain.ids import NodeId
from perdure.domain.journal.events import Recorded
from perdure.ports.turns.room import LearnedWindow, RoomMade
from perdure.ports.turns.turns import TurnLease
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.sessions import room


class StoredRoom:
    """Implements `ContextRoom`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def learned(self) -> list[LearnedWindow]:
        return await self._driver.read(room.learned)

    async def make(self, lease: TurnLease, made: RoomMade) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(room.make, lease, made, stamp))
