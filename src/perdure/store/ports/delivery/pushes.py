"""Implements the port of notifications for people's browsers."""

from collections.abc import Collection
from functools import partial

from perdure.domain.ids import NodeId, PrincipalId, SubscriptionId
from perdure.ports.delivery.pushes import DuePushes, Push, PushSubscription, PushTarget
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations import pushes


class StoredPushes:
    """Implements `Pushes`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def key(self, candidate: str) -> str:
        return await self._driver.write(partial(pushes.key, candidate))

    async def known_key(self) -> str | None:
        return await self._driver.read(pushes.known_key)

    async def subscribe(self, principal: PrincipalId, target: PushTarget) -> PushSubscription:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(pushes.subscribe, principal, target, stamp))

    async def unsubscribe(self, principal: PrincipalId, which: SubscriptionId) -> None:
        await self._driver.write(partial(pushes.unsubscribe, principal, which))

    async def of(self, principal: PrincipalId) -> list[PushSubscription]:
        return await self._driver.read(partial(pushes.of, principal))

    async def take(self, *, limit: int, but: Collection[PrincipalId]) -> DuePushes:
        stamp = self._mint.stamp(self._node)
        next_ms = await self._driver.read(pushes.next_ms)
        if next_ms is None or next_ms > stamp.at:
            return DuePushes(taken=(), next_ms=next_ms)
        return await self._driver.write(
            partial(pushes.take, self._driver.dialect, stamp, limit=limit, but=but)
        )

    async def arrived(self, push: Push) -> None:
        await self._driver.write(partial(pushes.arrived, push))

    async def rest(self, push: Push, *, until_ms: int) -> None:
        await self._driver.write(partial(pushes.rest, push, until_ms=until_ms))

    async def gone(self, which: SubscriptionId) -> None:
        await self._driver.write(partial(pushes.gone, which))
