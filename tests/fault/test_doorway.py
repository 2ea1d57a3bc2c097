"""Checks that nobody can shut others out by connections that are silent, slow or many."""

import asyncio
import contextlib
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from perdure.domain.errors import Rejected
from perdure.web.http import doorway, request_limits
from perdure.web.http.answers import errors_as_json
from perdure.web.http.doorway import Capacity, Doorway, sign_in
from perdure.web.http.request_limits import attended

pytestmark = pytest.mark.timeout(60)
SOON_S = 40.0
ASK = b"GET /hello HTTP/1.1\r\nHost: here\r\nAuthorization: mine\r\n\r\n"
STRANGER = b"GET /hello HTTP/1.1\r\nHost: here\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@web.middleware
async def signed_in(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    who = request.headers.get("Authorization")
    if who is not None:
        sign_in(request, is_operator=who == "operator")
    elif request.path == "/private":
        raise Rejected("who are you?", code="unauthorized")
    return await handler(request)


class House:
    """Runs a small HTTP server behind a doorway."""

    def __init__(self) -> None:
        self.port = 0
        self.leave = asyncio.Event()
        self.bodies: list[int] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def hello(self, request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def stay(self, request: web.Request) -> web.Response:
        await self.leave.wait()
        return web.Response(text="hello")

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(len(await request.read()))
        return web.Response(text="taken")

    @contextlib.asynccontextmanager
    async def open(self, capacity: Capacity) -> AsyncIterator[None]:
        app = web.Application(
            client_max_size=100_000, middlewares=[attended, errors_as_json, signed_in]
        )
        app.router.add_get("/hello", self.hello)
        app.router.add_get("/private", self.hello)
        app.router.add_get("/stay", self.stay)
        app.router.add_post("/take", self.take)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        assert runner.server is not None
        with socket.create_server(("127.0.0.1", 0), backlog=4096) as listening:
            self.port = listening.getsockname()[1]
            async with Doorway(runner.server, capacity).opened([listening]):
                yield
                self.leave.set()
                for writer in self._writers:
                    writer.close()
        await runner.cleanup()

    async def connect(self) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, request: bytes = ASK) -> bytes:
        """Return the complete answer to one request, and close the connection."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            return await _answer(reader)
        finally:
            writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SOON_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return head + await reader.readexactly(length)


@pytest.fixture
async def house() -> House:
    return House()


async def ends(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other side ends the connection."""
    async with asyncio.timeout(SOON_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_those_who_say_nothing_make_way_for_those_who_ask(house: House) -> None:
    async with house.open(Capacity(newcomers=20, signed_in=10)):
        silent = [await house.connect() for _ in range(100)]

        answers = await asyncio.gather(*(house.ask() for _ in range(50)))

        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert await ends(silent[0][0]) == b""
        for _, writer in silent:
            writer.close()


async def test_those_who_owe_a_body_make_way_for_those_who_ask(house: House) -> None:
    owing = b"POST /take HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n"
    async with house.open(Capacity(newcomers=20, signed_in=10)):
        for _ in range(400):
            _, writer = await house.connect()
            writer.write(owing)
        began = time.monotonic()

        assert (await house.ask()).startswith(b"HTTP/1.1 200")

        # Each of them may stay two seconds at first, which would be half a minute in all.
        assert time.monotonic() - began < 25


async def test_more_who_ask_at_once_than_may_stand_here_are_all_answered(house: House) -> None:
    async with house.open(Capacity(newcomers=20, signed_in=0)):
        answers = await asyncio.gather(*(house.ask(STRANGER) for _ in range(500)))

    assert all(answer.endswith(b"hello") for answer in answers)


async def test_a_head_that_does_not_end_is_not_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorway, "HEAD_S", 0.3)
    async with house.open(Capacity()):
        begun, beginning = await house.connect()
        reader, writer = await house.connect()
        silent, _ = await house.connect()
        for each in (beginning, writer):
            each.write(b"GET /hello HTTP/1.1\r\n")
        dripping = asyncio.create_task(_drip(writer, b"X-Drip: x\r\n"))

        assert (await ends(begun)).startswith(b"HTTP/1.1 408")
        # A client that goes on sending to a closed connection may lose the last answer.
        assert (await ends(reader))[:12] in {b"HTTP/1.1 408", b""}
        assert await ends(silent) == b""
        dripping.cancel()


async def test_a_head_that_is_too_long_is_refused(house: House) -> None:
    async with house.open(Capacity()):
        reader, writer = await house.connect()
        writer.write(b"GET /hello HTTP/1.1\r\nX-Long: " + b"x" * 40_000)

        assert (await ends(reader)).startswith(b"HTTP/1.1 431")


async def test_a_head_in_single_bytes_is_understood(house: House) -> None:
    async with house.open(Capacity()):
        reader, writer = await house.connect()
        for byte in STRANGER:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

        assert (await _answer(reader)).endswith(b"hello")


async def _answer_to_a_dripping_body(house: House, who: bytes) -> bytes:
    """Send a body that never ends, in drops, and return what is answered before the connection
    ends."""
    reader, writer = await house.connect()
    writer.write(b"POST /take HTTP/1.1\r\nHost: here\r\n" + who)
    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
    dripping = asyncio.create_task(_drip(writer, b"1\r\nx\r\n"))
    answer = await ends(reader)
    dripping.cancel()
    return answer


@pytest.mark.parametrize("who", [b"", b"Authorization: mine\r\n"])
async def test_an_endless_body_ends(
    house: House, monkeypatch: pytest.MonkeyPatch, who: bytes
) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.3)
    async with house.open(Capacity()):
        answer = b""
        for _ in range(5):
            # Each of these connections ends. A drop that meets the closed connection resets it, and
            # the system then throws the answer away that was not read yet.
            answer = answer or await _answer_to_a_dripping_body(house, who)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"body_too_slow" in answer
    assert house.bodies == []


async def test_whoever_has_signed_in_may_take_the_time_that_a_large_body_needs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "BODY_S", 0.2)
    async with house.open(Capacity()):
        reader, writer = await house.connect()
        writer.write(b"POST /take HTTP/1.1\r\nHost: here\r\nAuthorization: mine\r\n")
        writer.write(b"Content-Length: 50000\r\n\r\n")
        for _ in range(10):
            writer.write(b"x" * 5_000)
            await asyncio.sleep(0.05)

        assert (await _answer(reader)).endswith(b"taken")
        writer.close()
    assert house.bodies == [50_000]


async def test_a_stranger_gets_one_answer_on_a_connection(house: House) -> None:
    async with house.open(Capacity()):
        stranger, theirs = await house.connect()
        reader, writer = await house.connect()
        theirs.write(STRANGER)

        assert (await ends(stranger)).endswith(b"hello")
        for _again in range(3):
            writer.write(ASK)
            assert (await _answer(reader)).endswith(b"hello")
        writer.close()


async def test_above_what_can_be_carried_newcomers_are_told_when_to_come_again(
    house: House,
) -> None:
    stay = ASK.replace(b"/hello", b"/stay")
    async with house.open(Capacity(signed_in=5, operators=1)):
        staying = [await house.connect() for _ in range(5)]
        for _, writer in staying:
            writer.write(stay)
        async with asyncio.timeout(SOON_S):
            while not (answer := await house.ask()).startswith(b"HTTP/1.1 503"):
                await asyncio.sleep(0.01)

        assert b"Retry-After: 5" in answer
        assert b"too_many_connections" in answer
        operator = await house.ask(ASK.replace(b"mine", b"operator"))
        assert operator.startswith(b"HTTP/1.1 200")
        house.leave.set()
        for reader, writer in staying:
            assert (await _answer(reader)).endswith(b"hello")
            writer.close()
        assert (await house.ask()).startswith(b"HTTP/1.1 200")


async def test_a_connection_that_rests_makes_way_for_one_that_asks(house: House) -> None:
    async with house.open(Capacity(signed_in=5, operators=0)):
        resting = [await house.connect() for _ in range(5)]
        for reader, writer in resting:
            writer.write(ASK)
            await _answer(reader)

        assert (await house.ask()).startswith(b"HTTP/1.1 200")
        assert await ends(resting[0][0]) == b""
        for _, writer in resting:
            writer.close()


async def test_2_000_connections_at_once_are_all_taken(house: House) -> None:
    async with house.open(Capacity(newcomers=100, signed_in=100)):
        answers = await asyncio.gather(*(house.ask() for _ in range(2_000)))

    assert sum(answer.endswith(b"hello") for answer in answers) == 2_000


async def test_a_packed_body_is_handed_on_as_it_came(house: House) -> None:
    # The reader of the body unpacks it, within a bound.
    packed = gzip.compress(b"x" * 90_000)
    async with house.open(Capacity()):
        head = b"POST /take HTTP/1.1\r\nHost: here\r\nContent-Encoding: gzip\r\n"
        length = b"Content-Length: %d\r\n\r\n" % len(packed)

        assert (await house.ask(head + length + packed)).endswith(b"taken")
    assert house.bodies == [len(packed)]


async def _drip(writer: asyncio.StreamWriter, drop: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.02)
