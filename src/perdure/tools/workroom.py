"""Runs blocking work in threads, a few at once, and tells it when nobody waits for it any more.

The threads are its own: a disk that does not answer must not hold up others who need a thread. Its
places are shared between people, and one is always kept free of any one person."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Final, TypeVar

from perdure.domain.ids import PrincipalId
from perdure.domain.people.sharing import most_of
from perdure.ports.system.slots import Slots

T = TypeVar("T")
# So many calls use the disk at once. The others wait.
AT_ONCE: Final = 4


class Workroom:
    """Runs blocking work. A thread cannot be ended from outside, so a call that is cancelled sets
    the event that its work was given; the work looks at it and ends. Its place stays taken until
    then."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._places = Slots(at_once, most=most_of(at_once))
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="tool")

    async def run(self, work: Callable[[Event], T], *, who: PrincipalId) -> T:
        """Run a person's work in a thread, and return what it returns."""
        await self._places.take(who)
        is_unwanted = Event()
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._threads, partial(work, is_unwanted))
        except BaseException:
            self._places.give_back(who)
            raise
        running.add_done_callback(partial(self._leave, who))
        try:
            return await asyncio.shield(running)
        finally:
            is_unwanted.set()

    def _leave(self, who: PrincipalId, running: "asyncio.Future[T]") -> None:
        """Free the place of work that has ended. Its error is taken, because after a cancelled call
        nobody else does."""
        self._places.give_back(who)
        if not running.cancelled():
            running.exception()
