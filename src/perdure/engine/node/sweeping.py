"""Sweeps the library: bytes that nobody has a row for, and files that were never finished.

They are left by a death between the bytes and their row. A little is looked at in each step, all of
it at the start and then once a day, so a large library costs no long moment. Files that were
uploaded and named by no message for a day are looked for each hour.
"""

import asyncio
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.engine.foundation.timed_waits import step_by_step
from perdure.ports.records.media import SHARDS, MediaLibrary

PAUSE_S: Final = 0.5
EVERY_S: Final = 3_600.0
# So many parts are looked at each hour, which makes all of them in a day.
PARTS: Final = -(-SHARDS // 24)
log = structlog.get_logger("media")


class Sweeper:
    def __init__(self, library: MediaLibrary) -> None:
        self._library = library
        self._shard = 0
        self._is_first_round = True
        self._over = asyncio.Event()

    def stop(self) -> None:
        self._over.set()

    async def run(self) -> None:
        await step_by_step(self.step, over=self._over, pause_s=PAUSE_S, every_s=EVERY_S)

    async def step(self) -> bool:
        """Look at one part of the library. False after the last one of this hour; at the start that
        is all of them."""
        try:
            if self._shard % PARTS == 0:
                await self._remove_loose()
            swept = await self._library.sweep(self._shard)
        except (Transient, Ambiguous) as error:
            # It is tried again in an hour. Why the store or the folder does not serve is told by
            # those who need it now.
            log.debug("the library cannot be swept", error=error.message)
            swept = 0
        if swept:
            log.info("swept files that belong to nothing", files=swept)
        self._shard = (self._shard + 1) % SHARDS
        self._is_first_round = self._is_first_round and self._shard > 0
        return self._is_first_round or self._shard % PARTS > 0

    async def _remove_loose(self) -> None:
        removed = 0
        while count := await self._library.remove_loose():
            removed += count
        if removed:
            log.info("removed files that no message has named for a day", files=removed)
