"""Takes connections, and keeps room for callers who have signed in.

A connection begins on the doorstep. It costs one entry and the bytes of its first request's head
there, until the head is complete or its time is up. Only then does the HTTP server see it. A caller
who brings a token is signed in and counted separately. A caller without one gets one answer, and
then the connection is closed.

Callers who have not signed in may use the room that the others leave. When that is full, the one
that has waited longest without a request is closed for the next, so nobody can shut others out by
holding connections. Very young connections are spared, because their request may be on its way.
While all are young, no more are accepted, and the system keeps them waiting. The more connections
leave without a request, or without the body that their request announced, the shorter this grace
period becomes.
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
from aiohttp.http_exceptions import HttpProcessingError

from perdure.domain.errors import NO_FILES, OUT_OF_FILES, Transient
from perdure.ports.system.time_limits import Timer, running_time
from perdure.web.http.answers import GUARDS, problem

# How long the head of the first request may take.
HEAD_S: Final = 10.0
HEAD_BYTES_MAX: Final = 32 * 1024
# How long a caller who has not signed in may stay when others want to come in: without a complete
# head (`YOUNG_S`), with a body that is still incomplete (`OWING_S`; both shrink to `GRACE_MIN_S`
# under load), and with a request that is being answered.
YOUNG_S: Final = 2.0
OWING_S: Final = 2.0
GRACE_MIN_S: Final = 0.1
ANSWERED_S: Final = 10.0
# How long a connection may rest between two requests, after its caller has signed in.
IDLE_S: Final = 75.0
# How long an unwanted body is still read. If the connection were closed at once, the client might
# lose the answer.
LINGER_S: Final = 2.0
# Connections accepted in one pass of the event loop.
BATCH: Final = 64
# Long enough for one pass of the event loop, which reads what clients have sent.
READING_S: Final = 0.002
# How long to pause after `accept` has failed, as without free file descriptors.
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
    """Bounds the connections that are open at once. `newcomers` have not signed in and have this
    room even when everybody else is there; `signed_in` have; `operators` may exceed that, because
    they must get in to see what is wrong."""

    newcomers: int = 1024
    signed_in: int = 10_000
    operators: int = 16


class Doorway:
    """Accepts connections, and hands those that send a request to the HTTP server."""

    def __init__(self, server: web.Server, capacity: Capacity) -> None:
        self._server = server
        self._capacity = capacity
        self._loop = asyncio.get_running_loop()
        self._time = running_time()
        self._sockets: list[socket.socket] = []
        self._is_accepting = False
        self._greeting = 0
        # Oldest first.
        self._doorsteps: dict[Doorstep, None] = {}
        self._newcomers: dict[Served, None] = {}
        self._signed_in: set[Served] = set()
        # Signed-in connections without a request, the one idle longest first.
        self._idle: dict[Served, None] = {}
        self._timer: Timer | None = None
        self._again: asyncio.TimerHandle | None = None
        self._named_s = -_NAMED_EVERY_S
        self._young_s = YOUNG_S
        self._owing_s = OWING_S
        # When the sockets were last read on purpose; see `_makes_room`.
        self._read_s = -math.inf

    @contextlib.asynccontextmanager
    async def opened(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Accept connections on listening sockets until the block is left."""
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
        """Stop accepting, so that the system queues new connections. Accepting resumes after
        `for_s`, or when a connection ends."""
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
        """Accept several connections at once. asyncio would accept only one in each pass of the
        loop."""
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
        """Tell whether one more connection can be taken. Closes one that is due, if that is
        needed."""
        others = max(self._capacity.signed_in - len(self._signed_in), 0)
        if self._count < self._capacity.newcomers + others:
            return True
        now_s = self._time.now_s()
        first, stays_until_s = self._first_to_go()
        if first is None or now_s < stays_until_s:
            # Whether a request owes its body is known only once its handler has begun. So the wait
            # is short, or a connection that was just taken would count as one that is answered.
            left_s = min(stays_until_s - now_s, GRACE_MIN_S)
            self._accept_no_more(max(left_s, READING_S))
            return False
        if self._read_s < stays_until_s:
            # The event loop may be late, and the client's request may be waiting unread. So the
            # sockets are read once more before anybody is closed.
            self._read_s = now_s
            self._accept_no_more(READING_S)
            return False
        if isinstance(first, Doorstep):
            self._young_s = max(self._young_s * 0.99, GRACE_MIN_S)
        elif first.is_owing:
            self._owing_s = max(self._owing_s * 0.99, GRACE_MIN_S)
        first.send_away()
        return True

    def _first_to_go(self) -> "tuple[Doorstep | Served | None, float]":
        """Return the connection that is closed first, and the time until which it may stay."""
        found: list[tuple[float, Doorstep | Served]] = [
            (doorstep.begun_s + self._young_s, doorstep) for doorstep in islice(self._doorsteps, 1)
        ]
        for served in self._newcomers:
            stays_s = self._owing_s if served.is_owing else ANSWERED_S
            found.append((served.begun_s + stays_s, served))
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
        """Pause accepting after an error of the system, and log it at most once in
        `_NAMED_EVERY_S`."""
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
        except OSError:  # the client has disconnected already
            accepted.close()
        finally:
            self._greeting -= 1
            self._somebody_left()

    def arrived(self, doorstep: "Doorstep") -> None:
        """Add a connection whose first request has not come."""
        self._doorsteps[doorstep] = None
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        first = next(iter(self._doorsteps), None)
        self._timer = None
        if first is not None:
            self._timer = Timer(first.begun_s + HEAD_S, self._end_the_late)

    def _end_the_late(self) -> None:
        """Close the connections whose first head took too long."""
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
        """Remove a connection that ended without a request."""
        self._doorsteps.pop(doorstep, None)
        self._somebody_left()

    def _somebody_left(self) -> None:
        if not self._is_accepting and self._sockets and self._again is not None:
            self._accept_again()

    def serve(self, doorstep: "Doorstep", transport: asyncio.Transport, received: bytes) -> None:
        """Hand a connection to the HTTP server, with the bytes received so far."""
        self._doorsteps.pop(doorstep, None)
        # A request came, so connections may be given more time again.
        self._young_s = min(self._young_s * 1.05, YOUNG_S)
        served = Served(self, self._server, loop=self._loop)
        self._newcomers[served] = None
        transport.set_protocol(served)
        served.connection_made(transport)
        served.data_received(received)

    def begins(self, served: "Served") -> None:
        """Note that a connection is answering a request."""
        self._idle.pop(served, None)

    def ends(self, served: "Served") -> None:
        """Note that a connection has answered its request."""
        if served in self._signed_in:
            self._idle[served] = None

    def sign_in(self, served: "Served", *, is_operator: bool) -> None:
        """Count a connection as signed in. Closes an idle one if there is no room. Raises
        `Transient` if none is idle."""
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
        # Somebody who is known came in, so bodies may be given more time again.
        self._owing_s = min(self._owing_s * 1.05, OWING_S)
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
        """Remove a connection that has ended."""
        self._newcomers.pop(served, None)
        self._signed_in.discard(served)
        self._idle.pop(served, None)
        self._somebody_left()


class Doorstep(asyncio.Protocol):
    """Holds a connection until the head of its first request is complete."""

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
        """Collect bytes until the head is complete, then hand the connection over."""
        assert self._transport is not None
        before = self._received
        if before is None:
            if _has_whole_head(data):
                self._doorway.serve(self, self._transport, data)
                return
            before = self._received = bytearray()
        # The end of the head may be split between two packets, so the search starts 3 bytes
        # earlier.
        known = max(len(before) - 3, 0)
        before += data
        if _has_whole_head(before[known:]):
            self._doorway.serve(self, self._transport, bytes(before))
        elif len(before) > HEAD_BYTES_MAX:
            self.refuse(_LONG)

    def connection_lost(self, exc: Exception | None) -> None:
        self._doorway.left(self)

    def refuse(self, answer: bytes) -> None:
        """Send an answer and close. A client that has sent nothing would not read it and gets
        none."""
        if self._transport is not None and self._received:
            self._transport.write(answer)
        self.send_away()

    def send_away(self) -> None:
        """Close the connection."""
        self._doorway.left(self)
        if self._transport is not None:
            self._transport.close()


class Served(web.RequestHandler):
    """Speaks HTTP on one connection."""

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
        # The body of the current request, if it did not arrive with the head.
        self.body: StreamReader | None = None

    @property
    def is_owing(self) -> bool:
        """Tell whether the body of the current request is still incomplete."""
        return self.body is not None and not self.body.is_eof()

    @property
    def has_signed_in(self) -> bool:
        return self._doorway.has_signed_in(self)

    def sign_in(self, *, is_operator: bool) -> None:
        self._doorway.sign_in(self, is_operator=is_operator)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep the connection from counting as idle while a request is answered."""
        self._doorway.begins(self)
        try:
            yield
        finally:
            self._doorway.ends(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Refuse bytes that are no request, and close the connection. The library would repeat
        them to the caller and log a traceback."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        log.debug("no request", remote=request.remote, why=type(exc).__name__)
        words = "this is no request of HTTP/1.1; check what was sent, and that the address is right"
        response = problem(status, "malformed_request", words)
        response.headers.update(GUARDS)
        response.force_close()
        return response

    def connection_lost(self, exc: BaseException | None) -> None:
        self._doorway.gone(self)
        super().connection_lost(exc)

    def send_away(self) -> None:
        """Close the connection."""
        self._doorway.gone(self)
        self.force_close()


def sign_in(request: web.Request, *, is_operator: bool) -> None:
    """Count the request's connection as signed in. Raises `Transient` if there is no room."""
    if isinstance(request.protocol, Served):
        request.protocol.sign_in(is_operator=is_operator)


def _has_whole_head(received: bytes | bytearray) -> bool:
    return b"\r\n\r\n" in received or b"\n\n" in received or b"\n\r\n" in received
