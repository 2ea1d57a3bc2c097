"""Makes HTTP/1.1 requests over a Unix socket of this machine.

The command line mostly asks a node of its own version one short question, and an HTTP library takes
longer to import than the answer takes to arrive. So this module implements only what is needed:
each request has its own connection, and the body of an answer has a stated length, or comes in
chunks, or ends with the connection. Everything that is received is bounded.

The caller must have proven whose socket it is (`local_socket.py`), because a request carries the
token.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from perdure.ports.system.time_limits import time_limit

CONNECT_S: Final = 2.0
HEAD_BYTES_MAX: Final = 64 * 1024
PIECE_BYTES: Final = 64 * 1024
# Enough digits for the length of any file.
_DIGITS_MAX: Final = 16


class NobodyListens(ConnectionError):
    """Says that no connection could be made, so the request was not sent."""


class BrokenOff(ConnectionError):
    """Says that the connection ended before the answer did."""


class UnreadableAnswer(ValueError):
    """Says that the answer is not HTTP, or is too long."""


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one request. `target` is the path with its query, already encoded; `mime` is the type
    of the body."""

    method: str = "GET"
    target: str
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    mime: str = "application/json"

    def encoded(self) -> bytes:
        """Return the bytes to send. Raises `ValueError` if a header contains a line break."""
        headers = {"Host": "localhost", "Connection": "close", **self.headers}
        if self.body is not None:
            headers["Content-Type"] = self.mime
        if self.body is not None or self.method == "POST":
            headers["Content-Length"] = str(len(self.body or b""))
        lines = [f"{name}: {text}" for name, text in headers.items()]
        if any(character in line for line in lines for character in "\r\n\0"):
            raise ValueError("a header has more than one line")
        head = "\r\n".join([f"{self.method} {self.target} HTTP/1.1", *lines, "", ""])
        return head.encode() + (self.body or b"")


@asynccontextmanager
async def asked(
    path: Path, request: HttpRequest, *, silence_s: float | None = None
) -> AsyncIterator["HttpAnswer"]:
    """Send a request to a socket, and yield the answer once its head has arrived. `silence_s`
    limits each wait for more. Raises `NobodyListens` if nothing was sent, `TimeoutError`, another
    `OSError` if the connection broke, and `UnreadableAnswer`."""
    reader, writer = await _connected(path)
    try:
        writer.write(request.encoded())
        async with time_limit(silence_s):
            await writer.drain()
            head = await _line(reader, b"\r\n\r\n")
        yield HttpAnswer(reader, *_status_and_headers(head), silence_s=silence_s)
    finally:
        # Abort instead of closing: we are not interested in what the node may still send.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


class HttpAnswer:
    """Holds an answer. The body can be read once, as a whole or piece by piece."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        status: int,
        headers: Mapping[str, str],
        *,
        silence_s: float | None,
    ) -> None:
        self.status = status
        self._reader = reader
        self._silence_s = silence_s
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._is_first = True
        # The bytes that are still to come of the body, or of its current chunk.
        self._left = 0 if self._is_chunked else _length(headers.get("content-length"))

    async def whole(self, *, bytes_max: int) -> bytes:
        """Return the whole body. Raises `UnreadableAnswer` if it is longer than `bytes_max`."""
        body = bytearray()
        while piece := await self.piece():
            body += piece
            if len(body) > bytes_max:
                raise UnreadableAnswer(f"it is longer than {bytes_max:,} bytes")
        return bytes(body)

    async def piece(self) -> bytes:
        """Return the next bytes of the body as soon as there are some. Returns no bytes at its
        end."""
        async with time_limit(self._silence_s):
            if self._is_chunked and not self._left:
                self._left = await self._next_chunk()
            if not self._left:
                return b""
            piece = await self._reader.read(int(min(self._left, PIECE_BYTES)))
        if not piece and self._left != math.inf:
            raise BrokenOff("the answer was cut short")
        self._left -= len(piece)
        return piece

    async def _next_chunk(self) -> float:
        """Return the size of the next chunk. After the last one, whose size is zero, nothing is
        read."""
        if not self._is_first and await _line(self._reader, b"\r\n") != b"":
            raise UnreadableAnswer("a chunk is longer than it says")
        self._is_first = False
        size = (await _line(self._reader, b"\r\n")).partition(b";")[0].strip()
        return _number(size.decode("latin-1"), base=16)


async def _connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with time_limit(CONNECT_S):
            return await asyncio.open_unix_connection(str(path), limit=HEAD_BYTES_MAX)
    except TimeoutError:
        raise
    except OSError as error:
        raise NobodyListens(f"{path}: {error}") from error


async def _line(reader: asyncio.StreamReader, end: bytes) -> bytes:
    """Return the bytes before `end`, and consume both."""
    try:
        return (await reader.readuntil(end)).removesuffix(end)
    except asyncio.IncompleteReadError as error:
        raise BrokenOff("the answer was cut short") from error
    except asyncio.LimitOverrunError as error:
        raise UnreadableAnswer(f"its head is longer than {HEAD_BYTES_MAX:,} bytes") from error


def _status_and_headers(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    match first.split(" ", 2):
        case ["HTTP/1.1" | "HTTP/1.0", status, *_] if len(status) == 3 and status.isdecimal():
            fields = (line.partition(":") for line in lines)
            headers = {name.lower(): text.strip() for name, _, text in fields}
            return int(status), headers
        case _:
            raise UnreadableAnswer("it is no HTTP")


def _length(stated: str | None) -> float:
    """Return the length of the body. Without a stated length it lasts until the connection ends."""
    return math.inf if stated is None else _number(stated, base=10)


def _number(text: str, *, base: int) -> int:
    # `int` would also accept signs and underscores.
    if not text.isalnum() or len(text) > _DIGITS_MAX:
        raise UnreadableAnswer("it does not say how long it is")
    try:
        return int(text, base)
    except ValueError as error:
        raise UnreadableAnswer("it does not say how long it is") from error
