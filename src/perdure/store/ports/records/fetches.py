"""Implements the port that brings files to the turns that wait for them."""

from collections.abc import Sequence
from functools import partial

from perdure.domain.ids import MediaId, NodeId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.domain.people.sharing import EQUAL, FairShares
from perdure.domain.waits import due_at
from perdure.ports.records.media import AwaitedFile, Fetch, FetchedFile, Late
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.files import fetching


class StoredFetches:
    """Implements `Fetches`."""

    def __init__(
        self, driver: Driver, mint: Mint, node: NodeId, *, quota: Quota = NO_QUOTA
    ) -> None:
        self._driver = driver
        self._quota = quota
        self._mint = mint
        self._node = node

    async def take(
        self, *, adapters: Sequence[str], limit: int, shares: FairShares = EQUAL
    ) -> list[Fetch]:
        at = self._mint.now_ms()
        return await self._driver.write(
            partial(fetching.take, adapters, self._node, limit=limit, shares=shares, at=at)
        )

    async def done(self, fetch: Fetch, found: FetchedFile) -> list[Recorded]:
        return await self._driver.write(
            partial(
                fetching.done,
                fetch,
                found,
                MediaId(self._mint.id("med")),
                self._mint.stamp(self._node),
                quota=self._quota,
            )
        )

    async def lost(self, fetch: Fetch, reason: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(fetching.lost, fetch, reason, stamp))

    async def again(self, fetch: Fetch, *, error: str, due_in_s: float) -> None:
        at = self._mint.now_ms()
        due = due_at(at, int(due_in_s * 1000))
        await self._driver.write(partial(fetching.again, fetch, error=error, due_at=due, at=at))

    async def release(self, *, keep: Sequence[Fetch] = ()) -> int:
        at = self._mint.now_ms()
        return await self._driver.write(partial(fetching.release, self._node, keep=keep, at=at))

    async def recover(self, *, attempts_max: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(fetching.recover, self._driver.dialect, stamp, attempts_max=attempts_max)
        )

    async def waiting(self) -> list[AwaitedFile]:
        return await self._driver.read(fetching.waiting)

    async def tell_slow(self, turn: TurnId, text: str) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(fetching.tell_slow, turn, text, stamp))

    async def expire(self, files: Sequence[Late]) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(fetching.expire, files, stamp))

    async def next_due_ms(self) -> int | None:
        return await self._driver.read(partial(fetching.next_due, at=self._mint.now_ms()))
