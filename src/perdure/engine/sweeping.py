"""Sweeps the library: bytes that nobody has a row for, and files that were never finished.

They are left by a death between the bytes and their row. A little is looked at in each step, all of
it at the start and then once a day, so a large library costs no long moment.
"""

import asyncio
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.engine.patience import step_by_step
from perdure.ports.media import SHARDS, MediaLibrary

PAUSE_S: Final = 0.5
EVERY_S: Final = 86_400.0
log = structlog.get_logger("media")


class Sweeper:
    def __init__(self, library: MediaLibrary) -> None:
        self._library = library
        self._shard = 0
        self._over = asyncio.Event()

    def stop(self) -> None:
        self._over.set()

    async def run(self) -> None:
        await step_by_step(self.step, over=self._over, pause_s=PAUSE_S, every_s=EVERY_S)

    async def step(self) -> bool:
        """One part of the library. False after the last one."""
        try:
            swept = await self._library.sweep(self._shard)
        except (Transient, Ambiguous) as error:
            log.warning("the library cannot be swept", error=error.message)
            swept = 0
        if swept:
            log.info("swept files that belong to nothing", files=swept)
        self._shard = (self._shard + 1) % SHARDS
        return self._shard > 0
