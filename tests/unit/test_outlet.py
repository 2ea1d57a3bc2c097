"""Checks that a client which stops reading is cut off, and costs one slice of memory until then."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

from perdure.web.http import outlet
from perdure.web.http.outlet import SLICE_BYTES, LongResponse, Outlet

SOON_S = 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[socket.socket]:
    """Connect a client that sends a request and does not read the answer yet."""
    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    loop = asyncio.get_running_loop()
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        await loop.sock_connect(reader, runner.addresses[0])
        await loop.sock_sendall(reader, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        try:
            yield reader
        finally:
            await runner.cleanup()


async def test_a_stream_that_nobody_reads_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "PATIENCE_S", 0.2)
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        assert request.transport is not None
        writing, waiting = Outlet(request), 0
        try:
            while True:
                await writing.write(bytes(SLICE_BYTES * 3))
                waiting = max(waiting, request.transport.get_write_buffer_size())
        except ConnectionResetError:
            ended.set_result(waiting)
            raise

    async with asyncio.timeout(SOON_S), connected(endless):
        assert await ended <= SLICE_BYTES


async def test_a_page_that_is_read_slowly_is_whole() -> None:
    body = bytes(range(256)) * 20_000

    async def page(request: web.Request) -> web.StreamResponse:
        return LongResponse(body=body)

    async with asyncio.timeout(SOON_S), connected(page) as reader:
        loop = asyncio.get_running_loop()
        got = b""
        while piece := await loop.sock_recv(reader, 50_000):
            got += piece

    head, _, sent = got.partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert sent == body


async def test_a_page_of_which_too_little_is_taken_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outlet, "PATIENCE_S", 0.1)
    monkeypatch.setattr(outlet, "BYTES_PER_S_MIN", 100_000_000)
    body = bytes(20_000_000)

    async def page(request: web.Request) -> web.StreamResponse:
        return LongResponse(body=body)

    async with asyncio.timeout(SOON_S), connected(page) as reader:
        loop = asyncio.get_running_loop()
        got, began = 0, loop.time()
        with suppress(ConnectionResetError):
            while piece := await loop.sock_recv(reader, 1_000):
                got += len(piece)
                await asyncio.sleep(0.01 if loop.time() < began + 1 else 0)

    assert got < len(body)
