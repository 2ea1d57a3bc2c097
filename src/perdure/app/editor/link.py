"""Speaks JSON-RPC with an editor: one JSON object in each line, in both directions.

A line that cannot be read gets an error, and the next one is read. When the editor closes its end,
everything that is under way here ends, and `serve` returns. What runs at the node goes on.
"""

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Final, TextIO, TypeVar

import msgspec

from perdure.domain.errors import NotFound, PerdureError, Rejected
from perdure.domain.text import storable

T = TypeVar("T")
# Bounds a line. A prompt may hold pictures.
LINE_BYTES_MAX: Final = 96 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
_UNREADABLE: Final = -32700
_NO_METHOD: Final = -32601
_BAD_PARAMS: Final = -32602
_FAILED: Final = -32603
_NO_RESOURCE: Final = -32002
_NULL: Final = msgspec.Raw(b"null")

MessageNumber = int | str | None
MethodAnswer = Callable[[str, msgspec.Raw], Awaitable[object]]


class NoMethod(Rejected):
    """Says that the editor has called a method that is not served."""

    default_code = "no_method"


class _Problem(msgspec.Struct, omit_defaults=True):
    code: int
    message: str
    data: dict[str, str] = {}


class _Incoming(msgspec.Struct):
    """Holds a request (a method and an id), a notification (a method only) or an answer."""

    id: MessageNumber | msgspec.UnsetType = msgspec.UNSET
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = _NULL
    error: _Problem | None = None


class _Request(msgspec.Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    method: str
    params: object
    id: int | msgspec.UnsetType = msgspec.UNSET


class _Result(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: MessageNumber
    result: object


class _Failure(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: MessageNumber
    error: _Problem


class EditorLink:
    """Holds the connection to one editor."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def serve(self, answer: MethodAnswer) -> None:
        """Answer the editor until it closes its end."""
        async with asyncio.TaskGroup() as self._tasks:
            async for line in self._lines():
                self._take(line, answer)
            for task in list(self._running):
                task.cancel()

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start work that ends with the connection at the latest."""
        assert self._tasks is not None
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def tell(self, method: str, params: object) -> None:
        """Send a notification. It waits while the editor does not read."""
        await self._write(_Request(method, params))

    async def ask(self, method: str, params: object, shape: type[T]) -> T:
        """Send a request, and return the editor's answer, however long that takes. Raises
        `Rejected` if the editor refuses, or if its answer cannot be read."""
        number = next(self._numbers)
        answered: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            await self._write(_Request(method, params, number))
            return msgspec.json.decode(await answered, type=shape)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Rejected(f"the editor's answer to {method} cannot be read: {error}") from error
        finally:
            del self._asked[number]

    def _take(self, line: bytes, answer: MethodAnswer) -> None:
        """Begin to do what a line asks for, or take the answer that it brings."""
        try:
            came = _message_in(line)
        except (ValueError, RecursionError) as error:
            problem = _Problem(_UNREADABLE, f"this line is no message: {error}")
            self.begin(self._write(_Failure(None, problem)))
            return
        if came.method:
            self.begin(self._answer(came, answer))
        elif isinstance(came.id, int) and (asked := self._asked.get(came.id)) is not None:
            if asked.done():
                return
            if came.error is None:
                asked.set_result(came.result)
            else:
                asked.set_exception(Rejected(f"the editor refuses: {came.error.message}"))

    async def _answer(self, came: _Incoming, answer: MethodAnswer) -> None:
        """Do what a request or a notification asks for. Only a request gets an answer."""
        said: _Result | _Failure
        number = None if came.id is msgspec.UNSET else came.id
        try:
            said = _Result(number, await answer(came.method, came.params))
        except (msgspec.MsgspecError, RecursionError) as error:
            said = _Failure(number, _Problem(_BAD_PARAMS, f"{came.method}: {error}"))
        except PerdureError as error:
            said = _Failure(number, _problem_of(error))
        if came.id is not msgspec.UNSET:
            await self._write(said)

    async def _write(self, message: object) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")
        # If the editor has gone, its end of the other stream closes too, which ends everything.
        with suppress(ConnectionError):
            await self._writer.drain()

    async def _lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that come. A line that is too long is skipped, and told."""
        held, is_skipping = bytearray(), False
        while piece := await self._reader.read(PIECE_BYTES):
            *lines, rest = piece.split(b"\n")
            for line in lines:
                held += line
                if held.strip() and not is_skipping:
                    yield bytes(held)
                held.clear()
                is_skipping = False
            held += rest
            if len(held) > LINE_BYTES_MAX:
                if not is_skipping:
                    yield b"a line that is too long"
                held.clear()
                is_skipping = True


def _message_in(line: bytes) -> _Incoming:
    """Return the message that a line holds. Characters that cannot be stored are replaced: an
    editor may cut a text in the middle of one. Raises `ValueError` or `RecursionError` if the line
    holds no message."""
    text = line.decode(errors="replace")
    try:
        return msgspec.json.decode(text, type=_Incoming)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Unlike this one, the standard library reads halves of surrogate pairs.
        mended = storable(json.dumps(json.loads(text), ensure_ascii=False))
        return msgspec.json.decode(mended, type=_Incoming)


def _problem_of(error: PerdureError) -> _Problem:
    """Return an error as the protocol says it."""
    match error:
        case NoMethod():
            code = _NO_METHOD
        case NotFound():
            code = _NO_RESOURCE
        case _:
            code = _FAILED
    return _Problem(code, error.message, {"code": error.code})


async def standard_link() -> EditorLink:
    """Return the link over the standard input and output of this process. Raises `Rejected` if no
    editor can be at the other end."""
    if not (_has_other_end(sys.stdin) and _has_other_end(sys.stdout)):
        raise Rejected(
            "an editor starts `perdure acp` and speaks with it over pipes; standard input and "
            "output cannot be files",
            code="config",
        )
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    heard = asyncio.StreamReaderProtocol(reader)
    told = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    await loop.connect_read_pipe(lambda: heard, sys.stdin)
    transport, _ = await loop.connect_write_pipe(lambda: told, sys.stdout)
    return EditorLink(reader, asyncio.StreamWriter(transport, told, None, loop))


def _has_other_end(stream: TextIO) -> bool:
    """Tell whether somebody may write to a stream, or read from it. An event loop cannot wait for
    files and `/dev/null`."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
