"""Implements the port that keeps an account's pace across processes."""

import math
from functools import partial

from perdure.ports.delivery.pacing import Lately
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.delivery import pacing


class StoredPacing:
    """Implements `Pacing`. Durations are rounded up to whole milliseconds, so that no wait is too
    short."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def hold(self, *, adapter: str, place: str, wait_s: float) -> None:
        at = self._mint.now_ms()
        until = at + math.ceil(wait_s * 1000)
        await self._driver.write(partial(pacing.hold, adapter, place, until=until, at=at))

    async def lately(self, *, adapter: str, within_s: float) -> Lately:
        at, within_ms = self._mint.now_ms(), math.ceil(within_s * 1000)
        return await self._driver.read(partial(pacing.lately, adapter, within_ms=within_ms, at=at))
