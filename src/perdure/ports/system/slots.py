"""Shares a number of slots between people: the next free slot goes to the waiting person who holds
the fewest."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.domain.ids import PrincipalId
from perdure.domain.people.sharing import FairShares, fairly


class Slots:
    """Hands out `count` slots in total, and at most `most` of them to one person."""

    def __init__(self, count: int, *, most: int) -> None:
        self._free = count
        self._most = most
        self._in_use: Counter[PrincipalId] = Counter()
        self._waiting: deque[tuple[PrincipalId, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def slot(self, who: PrincipalId) -> AsyncIterator[None]:
        """Hold a slot while the block runs, after waiting for one if necessary."""
        await self.take(who)
        try:
            yield
        finally:
            self.give_back(who)

    async def take(self, who: PrincipalId) -> None:
        """Take a slot, after waiting for one if necessary. Whoever takes it gives it back."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((who, given))
        self._hand_out()
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self._waiting.remove((who, given))
            else:
                # The slot was handed out before the cancellation arrived: pass it on.
                self.give_back(who)
            raise

    def give_back(self, who: PrincipalId) -> None:
        """Give a slot back, which goes to the next who waits for one."""
        self._free += 1
        self._in_use[who] -= 1
        if not self._in_use[who]:
            del self._in_use[who]
        self._hand_out()

    def _hand_out(self) -> None:
        shares = FairShares(in_use=self._in_use, most=self._most)
        waiting = [each for each in self._waiting if not each[1].done()]
        for each in fairly(waiting, by=lambda each: each[0], shares=shares, limit=self._free):
            who, given = each
            self._waiting.remove(each)
            self._free -= 1
            self._in_use[who] += 1
            given.set_result(None)
