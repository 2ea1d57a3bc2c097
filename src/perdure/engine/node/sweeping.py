"""Removes bytes from the library that have no row, and files that were never finished.

They are left behind if the process dies after the bytes were stored and before their row was. Each
step looks at one part, so that a large library never takes long: all parts at the start, and then
all of them once a day. Uploaded files that no message has named for a day are removed every hour.
"""

import asyncio
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.engine.foundation.timed_waits import step_by_step
from perdure.ports.records.media import SHARDS, MediaLibrary

PAUSE_S: Final = 0.5
EVERY_S: Final = 3_600.0
# How many parts are looked at in an hour, so that all of them are looked at in a day.
PARTS: Final = -(-SHARDS // 24)
log = structlog.get_logger("media")


class Sweeper:
    """Looks through the library part by part, and removes what belongs to nothing."""

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
        """Look at one part of the library. Returns False after the last part of this hour; in the
        first round, after the last part of the library."""
        try:
            if self._shard % PARTS == 0:
                await self._remove_loose()
            swept = await self._library.sweep(self._shard)
        except (Transient, Ambiguous) as error:
            # This part is looked at again in the next round. Not a warning: whoever needs the store
            # or the folder now reports why it fails.
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
