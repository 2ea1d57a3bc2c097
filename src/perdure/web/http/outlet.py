"""Writes to readers who may be slow.

Bytes that a reader has not taken wait in our memory. So a long answer is sent in slices, and each
is written only when the one before has left: a slow reader costs one slice. A reader who takes
nothing for a while is cut off and can come back: streams resume by their last id, and pages have
cursors.
"""

from typing import Final

import structlog
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter

from perdure.ports.system.time_limits import time_limit

SLICE_BYTES: Final = 32 * 1024
# How long a reader may take no byte at all before it is cut off.
PATIENCE_S: Final = 30.0
# The slowest pace at which a page may be read. Streams have no end, so they only need to be read.
BYTES_PER_S_MIN: Final = 16 * 1024
log = structlog.get_logger("web")


class Outlet:
    """Writes to the reader of a response that has been prepared."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        if request.transport is not None:
            # With no buffer allowed, `drain` waits until the system has taken every byte.
            request.transport.set_write_buffer_limits(high=0)

    async def write(self, data: bytes) -> None:
        """Send bytes in slices. Raises `ConnectionResetError` if the reader is gone or too slow."""
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
        # The library's own drain has no time limit, so it is turned off and done below.
        await writer.write(piece, drain=False)
        if transport is None or not transport.get_write_buffer_size():
            return
        try:
            async with time_limit(PATIENCE_S):
                await writer.drain()
        except TimeoutError:
            raise _cut_off(self._request) from None


def _cut_off(request: web.Request) -> ConnectionResetError:
    """Close the connection of a slow reader, and return the error to raise."""
    log.info("a slow reader was cut off", path=request.path)
    if request.transport is not None:
        request.transport.abort()
    return ConnectionResetError("the reader is too slow")


class LongResponse(web.Response):
    """Sends its body only as fast as it is read."""

    _reader: web.Request | None = None

    @property
    def is_long(self) -> bool:
        """Tell whether the body is larger than one slice."""
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
        """Send the body within a time that grows with its size. Without this limit, a reader that
        takes one byte at a time could hold the body forever."""
        try:
            async with time_limit(PATIENCE_S + len(body) / BYTES_PER_S_MIN):
                await Outlet(reader).write(body)
        except TimeoutError:
            raise _cut_off(reader) from None
