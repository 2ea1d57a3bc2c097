"""Takes connections, and keeps room for people who have signed in.

A connection begins on the doorstep. There it costs an entry and the bytes of its first request's
head, until that is whole or its time is up; only then HTTP is spoken with it. Whoever brings a
token is signed in and counted apart. Whoever does not gets one answer, and then the connection
ends.

Those who have not signed in may use what the others leave. When that is used up, the one that has
stood longest without a request makes way for the next, so nobody shuts others out by standing
there. Those that came a moment ago may be about to ask: while all are so young, nobody more is
taken, and the system keeps them waiting. The more of them go without having asked, the shorter that
moment becomes.
"""

import asyncio
import contextlib
import math
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, cast

import msgspec
import structlog
from aiohttp import StreamReader, web

from perdure.domain.errors import NO_FILES, OUT_OF_FILES, Transient
from perdure.ports.system.time_limits import Timer, running_time

HEAD_S: Final = 10.0
HEAD_BYTES_MAX: Final = 32 * 1024
# How long somebody who has not signed in stays at least, if others want to come in: without a
# whole request, with one whose body has not come, and with one that is being answered.
YOUNG_S: Final = 2.0
YOUNG_MIN_S: Final = 0.1
OWING_S: Final = 2.0
ANSWERED_S: Final = 10.0
# A connection of somebody who has signed in may rest so long between two requests.
IDLE_S: Final = 75.0
# How long what nobody wants to read is read on, for the answer not to be lost.
LINGER_S: Final = 2.0
BATCH: Final = 64
# Long enough for the loop to go round.
READING_S: Final = 0.002
OUT_OF_FILES_S: Final = 0.5
RETRY_AFTER_S: Final = 5
_NAMED_EVERY_S: Final = 60.0
_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)
log = structlog.get_logger("web")


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections are carried at once: of those who have not signed in, even if everybody
    else is there; of those who have; and how many more of operators, who must get in to see what is
    wrong."""

    newcomers: int = 1024
    signed_in: int = 10_000
    operators: int = 16


class Doorway:
    """Accepts on sockets, and hands whoever sends a request to the HTTP server."""

    def __init__(self, server: web.Server, capacity: Capacity) -> None:
        self._server = server
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._time = running_time()
        self._sockets: list[socket.socket] = []
        self._is_accepting = False
        self._greeting = 0
        # In the order in which they came.
        self._doorsteps: dict[Doorstep, None] = {}
        self._newcomers: dict[Served, None] = {}
        self._signed_in: set[Served] = set()
        # Those who have signed in and ask for nothing, the longest first.
        self._idle: dict[Served, None] = {}
        self._timer: Timer | None = None
        self._again: asyncio.TimerHandle | None = None
        self._named_s = -_NAMED_EVERY_S
        self._young_s = YOUNG_S
        # Of whoever should have been gone by then, the sockets have been read since.
        self._read_s = -math.inf

    @contextlib.asynccontextmanager
    async def opened(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Accept on sockets that listen, until the block is left."""
        for each in sockets:
            each.settimeout(0)
        async with asyncio.TaskGroup() as self._tasks:
            self._sockets = list(sockets)
            self._accept_again()
            try:
                yield
            finally:
                self._accept_no_more()
                self._sockets.clear()
                for doorstep in list(self._doorsteps):
                    doorstep.send_away()

    def _accept_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if not self._is_accepting:
            self._is_accepting = True
            for each in self._sockets:
                self._loop.add_reader(each.fileno(), self._accept, each)

    def _accept_no_more(self, for_s: float | None = None) -> None:
        """Let the system keep who comes; for a while, or until somebody leaves."""
        if self._is_accepting:
            self._is_accepting = False
            for each in self._sockets:
                self._loop.remove_reader(each.fileno())
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if for_s is not None and self._sockets:
            self._again = self._loop.call_later(for_s, self._accept_again)

    def _accept(self, listening: socket.socket) -> None:
        """Take a few at once: the loop would take one each time it goes round."""
        for _ in range(BATCH):
            if not self._makes_room():
                return
            try:
                accepted, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            self._greeting += 1
            self._tasks.create_task(self._greet(accepted))

    def _makes_room(self) -> bool:
        """Whether one more can be taken, after somebody made way if need be."""
        others = max(self._capacity.signed_in - len(self._signed_in), 0)
        if self._count < self._capacity.newcomers + others:
            return True
        now_s = self._time.now_s()
        first, stays_until_s = self._first_to_go()
        if first is None or now_s < stays_until_s:
            self._accept_no_more(max(stays_until_s - now_s, READING_S))
            return False
        if self._read_s < stays_until_s:
            # We may be the late ones: what they sent is read before anybody is sent away.
            self._read_s = now_s
            self._accept_no_more(READING_S)
            return False
        if isinstance(first, Doorstep):
            self._young_s = max(self._young_s * 0.99, YOUNG_MIN_S)
        first.send_away()
        return True

    def _first_to_go(self) -> "tuple[Doorstep | Served | None, float]":
        """Return who makes way first, and until when they may stay."""
        found: list[tuple[float, Doorstep | Served]] = [
            (doorstep.begun_s + self._young_s, doorstep) for doorstep in islice(self._doorsteps, 1)
        ]
        for served in self._newcomers:
            found.append((served.begun_s + (OWING_S if served.is_owing else ANSWERED_S), served))
            if served.is_owing:
                break
        if not found:
            return None, 0.0
        until_s, first = min(found, key=itemgetter(0))
        return first, until_s

    @property
    def _count(self) -> int:
        return self._greeting + len(self._doorsteps) + len(self._newcomers)

    def _cannot_accept(self, error: OSError) -> None:
        self._accept_no_more(OUT_OF_FILES_S)
        now_s = self._loop.time()
        if now_s - self._named_s < _NAMED_EVERY_S:
            return
        self._named_s = now_s
        why = OUT_OF_FILES if error.errno in NO_FILES else error.strerror
        log.warning("no connection can be taken now; those who come wait", error=why)

    async def _greet(self, accepted: socket.socket) -> None:
        try:
            if accepted.family in (socket.AF_INET, socket.AF_INET6):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: Doorstep(self), accepted)
        except OSError:  # it has gone already
            accepted.close()
        finally:
            self._greeting -= 1
            self._somebody_left()

    def arrived(self, doorstep: "Doorstep") -> None:
        self._doorsteps[doorstep] = None
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        first = next(iter(self._doorsteps), None)
        self._timer = None
        if first is not None:
            self._timer = Timer(first.begun_s + HEAD_S, self._end_the_late)

    def _end_the_late(self) -> None:
        now_s = self._time.now_s()
        late: list[Doorstep] = []
        for doorstep in self._doorsteps:
            if doorstep.begun_s + HEAD_S > now_s:
                break
            late.append(doorstep)
        for doorstep in late:
            doorstep.refuse(_LATE)
        self._set_timer()

    def left(self, doorstep: "Doorstep") -> None:
        self._doorsteps.pop(doorstep, None)
        self._somebody_left()

    def _somebody_left(self) -> None:
        if not self._is_accepting and self._sockets and self._again is not None:
            self._accept_again()

    def serve(self, doorstep: "Doorstep", transport: asyncio.Transport, received: bytes) -> None:
        """Speak HTTP from here on."""
        self._doorsteps.pop(doorstep, None)
        self._young_s = min(self._young_s * 1.05, YOUNG_S)
        served = Served(self, self._server, loop=self._loop)
        self._newcomers[served] = None
        transport.set_protocol(served)
        served.connection_made(transport)
        served.data_received(received)

    def begins(self, served: "Served") -> None:
        self._idle.pop(served, None)

    def ends(self, served: "Served") -> None:
        if served in self._signed_in:
            self._idle[served] = None

    def sign_in(self, served: "Served", *, is_operator: bool) -> None:
        """Count a connection among those that have signed in. Raises `Transient` where no more
        can be carried."""
        if served in self._signed_in or served not in self._newcomers:
            return
        limit = self._capacity.signed_in + (self._capacity.operators if is_operator else 0)
        if len(self._signed_in) >= limit and not self._idle_made_way():
            raise Transient(
                f"this node carries {len(self._signed_in):,} connections at once and has no room "
                "for more now; try again in a moment",
                code="too_many_connections",
                retry_after_s=RETRY_AFTER_S,
            )
        del self._newcomers[served]
        self._signed_in.add(served)
        self._somebody_left()

    def _idle_made_way(self) -> bool:
        first = next(iter(self._idle), None)
        if first is None:
            return False
        self.gone(first)
        first.send_away()
        return True

    def has_signed_in(self, served: "Served") -> bool:
        return served in self._signed_in

    def gone(self, served: "Served") -> None:
        self._newcomers.pop(served, None)
        self._signed_in.discard(served)
        self._idle.pop(served, None)
        self._somebody_left()


class Doorstep(asyncio.Protocol):
    """A connection whose first request has not come yet."""

    __slots__ = ("_doorway", "_received", "_transport", "begun_s")

    def __init__(self, doorway: Doorway) -> None:
        self._doorway = doorway
        self._transport: asyncio.Transport | None = None
        self._received: bytearray | None = None
        self.begun_s = running_time().now_s()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._doorway.arrived(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        before = self._received
        if before is None:
            if _has_whole_head(data):
                self._doorway.serve(self, self._transport, data)
                return
            before = self._received = bytearray()
        known = max(len(before) - 3, 0)
        before += data
        if _has_whole_head(before[known:]):
            self._doorway.serve(self, self._transport, bytes(before))
        elif len(before) > HEAD_BYTES_MAX:
            self.refuse(_LONG)

    def connection_lost(self, exc: Exception | None) -> None:
        self._doorway.left(self)

    def refuse(self, answer: bytes) -> None:
        """Say why to somebody who has begun to ask; nobody else would read it."""
        if self._transport is not None and self._received:
            self._transport.write(answer)
        self.send_away()

    def send_away(self) -> None:
        self._doorway.left(self)
        if self._transport is not None:
            self._transport.close()


class Served(web.RequestHandler):
    """A connection that HTTP is spoken with."""

    __slots__ = ("_doorway", "begun_s", "body")

    def __init__(
        self, doorway: Doorway, server: web.Server, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # what the library's own runner passes
            keepalive_timeout=IDLE_S,
            lingering_time=LINGER_S,
            auto_decompress=False,  # bodies are unpacked within bounds (`web/http/bodies.py`)
        )
        self._doorway = doorway
        self.begun_s = running_time().now_s()
        # Of the request that is being answered, if it had not come with the head.
        self.body: StreamReader | None = None

    @property
    def is_owing(self) -> bool:
        return self.body is not None and not self.body.is_eof()

    @property
    def has_signed_in(self) -> bool:
        return self._doorway.has_signed_in(self)

    def sign_in(self, *, is_operator: bool) -> None:
        self._doorway.sign_in(self, is_operator=is_operator)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """While a request is answered the connection is not idle."""
        self._doorway.begins(self)
        try:
            yield
        finally:
            self._doorway.ends(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._doorway.gone(self)
        super().connection_lost(exc)

    def send_away(self) -> None:
        self._doorway.gone(self)
        self.force_close()


def sign_in(request: web.Request, *, is_operator: bool) -> None:
    """Count the request's connection among those that have signed in. Raises `Transient`."""
    if isinstance(request.protocol, Served):
        request.protocol.sign_in(is_operator=is_operator)


def _has_whole_head(received: bytes | bytearray) -> bool:
    return b"\r\n\r\n" in received or b"\n\n" in received or b"\n\r\n" in received
