"""Asks the store questions without holding up the request that waits for the answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeVar

from perdure.domain.errors import PerdureError
from perdure.ports.records.history import Counts, Diagnostics

T = TypeVar("T")
# How long a page that must always answer waits to learn whether the store works.
LOOK_S: Final = 0.5
# How long such a page waits for the store's counts.
COUNT_S: Final = 1.5


class SharedQuestion(Generic[T]):
    """Asks once for everybody who wants the answer at the same time. A question that is not
    answered in time is not cancelled: later callers wait for the same one, so at most one is ever
    running."""

    def __init__(self, ask: Callable[[], Coroutine[None, None, T]], *, within_s: float) -> None:
        self._ask = ask
        self._within_s = within_s
        self._asking: asyncio.Task[T] | None = None

    async def ask(self) -> T | None:
        """Return the answer, or None if the store failed or did not answer in time."""
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
            asking.exception()  # mark it as retrieved: there may be no caller left


def counting(diagnostics: Diagnostics) -> SharedQuestion[Counts]:
    """Return a shared question for the store's counts."""

    async def count() -> Counts:
        return await diagnostics.counts()

    return SharedQuestion(count, within_s=COUNT_S)
