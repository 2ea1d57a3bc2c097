"""A few pages at a time for each person, from the store to the last byte that is taken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from aiohttp import web

from perdure.domain.errors import Transient
from perdure.domain.ids import PrincipalId
from perdure.ports.system.time_limits import time_limit
from perdure.web.access import PRINCIPAL
from perdure.web.http.answers import Handler
from perdure.web.http.outlet import PATIENCE_S, LongResponse

READS_AT_ONCE: Final = 8


class LongReads:
    """Lets each person have a few pages read and sent at a time; one more waits for its turn. So
    whoever asks for many and reads none of them holds no more memory than these."""

    def __init__(self) -> None:
        self._rooms: WeakValueDictionary[PrincipalId, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, who: PrincipalId) -> AsyncIterator[None]:
        room = self._rooms.get(who)
        if room is None:
            room = self._rooms[who] = asyncio.Semaphore(READS_AT_ONCE)
        try:
            async with time_limit(PATIENCE_S):
                await room.acquire()
        except TimeoutError:
            raise Transient(
                f"{READS_AT_ONCE} of your pages are still being read; finish or close some of them",
                code="busy",
            ) from None
        try:
            yield
        finally:
            room.release()


LONG_READS: Final = web.AppKey("long_reads", LongReads)


def one_of_few(handler: Handler) -> Handler:
    """Let what may be long be sent before the next one is read."""

    async def within(request: web.Request) -> web.StreamResponse:
        async with request.app[LONG_READS].turn(request[PRINCIPAL].id):
            response = await handler(request)
            if isinstance(response, LongResponse) and response.is_long:
                await response.prepare(request)
                await response.write_eof()
            return response

    return within
