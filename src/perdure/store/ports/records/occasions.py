"""Implements the port that keeps what hooks must hear of."""

from collections.abc import Collection
from functools import partial

from perdure.domain.hooks.occasions import HookCall, Occasion
from perdure.domain.ids import NodeId
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations import occasions


class StoredOccasions:
    """Implements `Occasions`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def listen(self, to: Collection[Occasion]) -> None:
        stamp = self._mint.stamp(self._node)
        if not to and not await self._driver.read(occasions.is_anybody_listening):
            return  # most nodes have no hooks, and start without this commit
        await self._driver.write(partial(occasions.listen, self._driver.dialect, to, stamp))

    async def take(self, of: Collection[Occasion], *, limit: int) -> list[HookCall]:
        kinds = sorted(of)
        return await self._driver.write(
            partial(occasions.take, self._driver.dialect, kinds, self._node, limit=limit)
        )

    async def heard(self, call: HookCall) -> None:
        await self._driver.write(partial(occasions.heard, call))

    async def named(self, call: HookCall) -> HookCall | None:
        return await self._driver.read(partial(occasions.named, call))
