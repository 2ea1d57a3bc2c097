"""Writing to readers who may be slow.

What a reader has not taken waits in our memory. So whatever is long leaves in slices, and the next
one is written when the one before is on its way: a slow reader holds a slice. Who takes nothing for
a while is cut off, and comes back when there is time: streams go on by their last id, and pages
have their cursors.
"""

from typing import Final

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter

from perdure.ports.system.time_limits import time_limit

SLICE_BYTES: Final = 32 * 1024
PATIENCE_S: Final = 30.0
# What a reader of a page takes at least. Streams have no end, and only need to be read.
BYTES_PER_S_MIN: Final = 16 * 1024
log = structlog.get_logger("web")


class Outlet:
    """The way to the reader of a response that has been prepared."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        if request.transport is not None:
            # Whatever the system does not take at once is waited for.
            request.transport.set_write_buffer_limits(high=0)

    async def write(self, data: bytes) -> None:
        """Raises `ConnectionResetError` where nobody reads any more, or too slowly."""
        if len(data) <= SLICE_BYTES:
            await self._write(data)
            return
        rest = memoryview(data)
        while rest:
            await self._write(rest[:SLICE_BYTES])
            rest = rest[SLICE_BYTES:]

    async def _write(self, piece: bytes | memoryview) -> None:
        writer, transport = self._request.writer, self._request.transport
        assert isinstance(writer, StreamWriter), "the response has begun"
        # By itself it would wait for the reader now and then, without an end.
        await writer.write(piece, drain=False)
        if transport is None or not transport.get_write_buffer_size():
            return
        try:
            async with time_limit(PATIENCE_S):
                await writer.drain()
        except TimeoutError:
            raise _cut_off(self._request) from None


def _cut_off(request: web.Request) -> ConnectionResetError:
    log.info("a slow reader was cut off", path=request.path)
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError("the reader is too slow")


class LongResponse(web.Response):
    """A response whose body leaves as fast as it is read."""

    _reader: web.Request | None = None

    @property
    def is_long(self) -> bool:
        return isinstance(self.body, bytes) and len(self.body) > SLICE_BYTES

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if isinstance(request, web.Request):
            self._reader = request
        return await super().prepare(request)

    async def write_eof(self, data: bytes = b"") -> None:
        body, reader = self.body, self._reader
        if self.is_long and reader is not None and reader.method != "HEAD":
            assert isinstance(body, bytes)
            self.body = None
            await self._write(body, reader)
        await super().write_eof(data)

    async def _write(self, body: bytes, reader: web.Request) -> None:
        """However little a reader takes at a time, it ends."""
        try:
            async with time_limit(PATIENCE_S + len(body) / BYTES_PER_S_MIN):
                await Outlet(reader).write(body)
        except TimeoutError:
            raise _cut_off(reader) from None
