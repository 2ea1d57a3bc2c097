"""Runs blocking work in threads, a few at once, and tells it when nobody waits for it any more."""

import asyncio
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Final, TypeVar

T = TypeVar("T")
# So many calls of one tool use the disk at once. The others wait.
AT_ONCE: Final = 4


class Workroom:
    """Runs blocking work. A thread cannot be ended from outside, so a call that is cancelled sets
    the event that its work was given; the work looks at it and ends. Its place stays taken until
    then."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._places = asyncio.Semaphore(at_once)

    async def run(self, work: Callable[[Event], T]) -> T:
        """Run the work in a thread, and return what it returns."""
        await self._places.acquire()
        is_unwanted = Event()
        try:
            running = asyncio.get_running_loop().run_in_executor(None, partial(work, is_unwanted))
        except BaseException:
            self._places.release()
            raise
        running.add_done_callback(self._leave)
        try:
            return await asyncio.shield(running)
        finally:
            is_unwanted.set()

    def _leave(self, running: "asyncio.Future[T]") -> None:
        """Free the place of work that has ended. Its error is taken, because after a cancelled call
        nobody else does."""
        self._places.release()
        if not running.cancelled():
            running.exception()
