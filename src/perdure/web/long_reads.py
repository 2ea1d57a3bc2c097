"""Limits how many long answers each principal may have open, from the read to the last byte
sent."""

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

# Bounds the memory that one principal's unread answers can occupy.
READS_AT_ONCE: Final = 8


class LongReads:
    """Lets each principal have a few long answers open; one more waits for a free place. So a
    client that asks for many and reads none holds no more memory than these."""

    def __init__(self) -> None:
        self._rooms: WeakValueDictionary[PrincipalId, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, who: PrincipalId) -> AsyncIterator[None]:
        """Hold one of the principal's places. Raises `Transient` if none becomes free in time."""
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
    """Wrap a handler so that its answer keeps its place until it is completely sent."""

    async def within(request: web.Request) -> web.StreamResponse:
        async with request.app[LONG_READS].turn(request[PRINCIPAL].id):
            response = await handler(request)
            if isinstance(response, LongResponse) and response.is_long:
                await response.prepare(request)
                await response.write_eof()
            return response

    return within
