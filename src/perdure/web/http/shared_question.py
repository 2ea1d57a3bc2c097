"""Asking the store a question that must not hold up whoever waits for the answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeVar

from perdure.domain.errors import PerdureError
from perdure.ports.records.history import Counts, Diagnostics

T = TypeVar("T")
# How long a page that must always answer waits until it is known whether the store serves.
LOOK_S: Final = 0.5
# And how long for the store's numbers.
COUNT_S: Final = 1.5


class SharedQuestion(Generic[T]):
    """Asks once for all who want to know at the same time. A question that is not answered in time
    is not cancelled: those who ask next wait for the same one, so at most one is ever under way."""

    def __init__(self, ask: Callable[[], Coroutine[None, None, T]], *, within_s: float) -> None:
        self._ask = ask
        self._within_s = within_s
        self._asking: asyncio.Task[T] | None = None

    async def ask(self) -> T | None:
        """Return the answer, or None if the store refused it or did not give it in time."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())  # noqa: TID251 - it ends by itself
            self._asking.add_done_callback(self._asked)
        asking = self._asking
        await asyncio.wait({asking}, timeout=self._within_s)
        if not asking.done() or asking.cancelled():
            return None
        try:
            return asking.result()
        except PerdureError:
            return None

    def _asked(self, asking: "asyncio.Task[T]") -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # nobody may be left who waits for it


def counting(diagnostics: Diagnostics) -> SharedQuestion[Counts]:
    async def count() -> Counts:
        return await diagnostics.counts()

    return SharedQuestion(count, within_s=COUNT_S)
