"""The port that brings files to the turns that wait for them."""

from collections.abc import Sequence
from functools import partial

from perdure.domain.events import Recorded
from perdure.domain.ids import MediaId, NodeId
from perdure.ports.media import Fetch, Found
from perdure.store.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations import fetching
from perdure.store.statement import Op


class StoredFetches:
    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def take(self, *, adapters: Sequence[str], limit: int) -> list[Fetch]:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(_take, adapters=adapters, node=self._node, limit=limit, at=at)
        )

    async def done(self, fetch: Fetch, found: Found) -> list[Recorded]:
        return await self._driver.write(
            partial(
                fetching.done,
                self._driver.dialect,
                fetch,
                found,
                MediaId(self._mint.id("med")),
                self._mint.stamp(self._node),
            )
        )

    async def lost(self, fetch: Fetch, reason: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(fetching.lost, self._driver.dialect, fetch, reason, stamp)
        )

    async def again(self, fetch: Fetch, *, error: str, due_in_s: float) -> None:
        at = self._mint.now_ms()
        due_at = at + int(due_in_s * 1000)
        await self._driver.write(partial(fetching.again, fetch, error=error, due_at=due_at, at=at))

    async def release(self) -> int:
        at = self._mint.now_ms()
        return await self._driver.write(partial(fetching.release, self._node, at=at))

    async def recover(self, *, attempts_max: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(fetching.recover, self._driver.dialect, stamp, attempts_max=attempts_max)
        )

    async def expire(self, *, older_than_s: float, stickers_s: float) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(
                fetching.expire,
                self._driver.dialect,
                stamp,
                before=stamp.at - int(older_than_s * 1000),
                stickers_before=stamp.at - int(stickers_s * 1000),
            )
        )

    async def next_due_ms(self) -> int | None:
        return await self._driver.read(fetching.next_due)


def _take(*, adapters: Sequence[str], node: NodeId, limit: int, at: int) -> Op[list[Fetch]]:
    taken: list[Fetch] = []
    for adapter in adapters:
        taken += yield from fetching.take(adapter, node, limit=limit - len(taken), at=at)
    return taken
