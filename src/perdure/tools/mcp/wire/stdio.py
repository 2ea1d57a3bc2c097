"""Carries messages over the standard input and output of a program, a line for each.

The package reads and writes with these objects directly: no task of ours stands between it and the
pipe. Lines that are no messages are passed over, up to a bound.
"""

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from perdure.domain.errors import Transient
from perdure.ports.system.children import Child, ChildProgram, Children
from perdure.tools.mcp.link import ANSWER_BYTES_MAX
from perdure.tools.mcp.server_log import ServerLog
from perdure.tools.mcp.wire.crowding import MANY_VALUES, is_crowded
from perdure.tools.mcp.wire.going import GOING, LinkEnd

_PIECE_BYTES: Final = 64 * 1024
# A program that closes its output has mostly ended; how, is known a moment later.
_LAST_WORDS_S: Final = 0.5


class ProgramTransport(AbstractAsyncContextManager["tuple[ProgramReading, ProgramWriting]"]):
    """Starts a program, and ends it."""

    def __init__(
        self, program: ChildProgram, *, children: Children, log: ServerLog, end: LinkEnd
    ) -> None:
        self._program = program
        self._children = children
        self._log = log
        self._end = end
        self._child: Child | None = None

    async def __aenter__(self) -> "tuple[ProgramReading, ProgramWriting]":
        child = await self._children.start(self._program, hear=self._log.hear)
        self._child = child
        return ProgramReading(child, self._end), ProgramWriting(child, self._end)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._child is not None
        ending = asyncio.ensure_future(_ended(self._child))  # noqa: TID251 - it is waited for
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            # The port ends the program in bounded time, so it is waited for all the same.
            await asyncio.shield(ending)
            raise


async def _ended(child: Child) -> None:
    """End a program. It may have to write before it can read that its input has ended."""
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(_drain(child))
        await child.end()
        draining.cancel()


async def _drain(child: Child) -> None:
    while await child.read(_PIECE_BYTES):
        pass


class ProgramReading:
    """Reads messages."""

    def __init__(self, child: Child, end: LinkEnd) -> None:
        self._child = child
        self._end = end
        self._rest = bytearray()
        # Where the search for the next line's end goes on.
        self._searched = 0
        self._garbage_bytes = 0

    async def receive(self) -> SessionMessage:
        while True:
            line = self._next_line()
            if line is None:
                await self._read_on()
            elif is_crowded(line):
                self._end.tell(MANY_VALUES)
                raise anyio.EndOfStream
            elif (message := _message(line)) is not None:
                self._garbage_bytes = 0
                return message
            else:
                self._garbage_bytes += len(line) + 1
                self._bound(self._garbage_bytes, "that are no messages")

    def _next_line(self) -> bytes | None:
        place = self._rest.find(b"\n", self._searched)
        if place < 0:
            self._searched = len(self._rest)
            return None
        line = bytes(self._rest[:place])
        del self._rest[: place + 1]
        self._searched = 0
        return line

    async def _read_on(self) -> None:
        self._bound(len(self._rest), "without the end of a line")
        piece = await self._child.read(_PIECE_BYTES)
        if not piece:
            await _tell_end(self._child, self._end)
            raise anyio.EndOfStream
        self._rest += piece

    def _bound(self, size: int, what: str) -> None:
        if size > ANSWER_BYTES_MAX:
            self._end.tell(f"has written more than {ANSWER_BYTES_MAX:,} bytes {what}")
            raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Do nothing: the program is ended by its transport."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


async def _tell_end(child: Child, end: LinkEnd) -> None:
    """Tell how a program has ended that reads or writes no more."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_WORDS_S):
            await child.wait()
    end.tell(child.ended.words if child.ended else "has closed its output")


def _message(line: bytes) -> SessionMessage | None:
    """Return the message of a line, or None if it is none. What is not UTF-8 in it is replaced."""
    if not line.lstrip().startswith(b"{"):
        return None
    with contextlib.suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    with contextlib.suppress(ValueError):
        text = line.decode(errors="replace")
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    return None


class ProgramWriting:
    """Writes messages, one at a time."""

    def __init__(self, child: Child, end: LinkEnd) -> None:
        self._child = child
        self._end = end
        self._lock = asyncio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._lock:
            if self._end.words:
                raise anyio.BrokenResourceError
            if (going := GOING.get()) is not None:
                going.is_sent = True
            try:
                await self._child.write(line)
            except Transient as error:
                await _tell_end(self._child, self._end)
                raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Do nothing: the program is ended by its transport."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
