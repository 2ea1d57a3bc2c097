"""Keeps the full-text index up to date.

Turns are indexed in groups when they are settled, and by searches. After a crash, or when nobody
writes for a while, more turns may wait than one search should have to index: this indexes them.
"""

import asyncio
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.engine.foundation.timed_waits import step_by_step
from perdure.ports.records.history import Index

PAUSE_S: Final = 0.2
EVERY_S: Final = 60.0
log = structlog.get_logger("search")


class Indexer:
    """Indexes the turns that wait for it, a few at a time."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._over = asyncio.Event()

    def stop(self) -> None:
        self._over.set()

    async def run(self) -> None:
        await step_by_step(self.step, over=self._over, pause_s=PAUSE_S, every_s=EVERY_S)

    async def step(self) -> bool:
        """Index some of the turns that wait. Returns True if there may be more."""
        try:
            return await self._index.catch_up()
        except (Transient, Ambiguous) as error:
            log.debug("the index cannot be brought up to date", error=error.message)
            return False
