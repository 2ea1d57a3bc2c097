"""Owns the tasks of a pool."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
log = structlog.get_logger("agents")


class PoolTasks:
    """Starts tasks, and ends them all at once. What fails in one unexpectedly is logged."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        """Run `work` as a task."""
        task = asyncio.create_task(work, name=name)  # noqa: TID251 - `close` ends it
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("a task of a pool has failed", task=task.get_name(), error=repr(error))

    async def close(self) -> None:
        """Cancel all tasks, and wait for them."""
        while running := [each for each in self._running if each is not asyncio.current_task()]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
