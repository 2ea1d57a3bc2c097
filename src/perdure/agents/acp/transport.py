"""Carries the messages of an agent's process, a line of JSON each.

The official package reads requests and answers. Updates are handed on here, at once and in order,
because the package starts a task for each. Lines that are no message are left out, so nothing that
a process prints ends the connection.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from perdure.domain.errors import Transient
from perdure.ports.system.children import Child

LINE_BYTES: Final = 32 << 20
_PIECE_BYTES: Final = 256 * 1024
_UPDATE: Final = "session/update"
# After so many messages other work of the gateway gets its turn.
_AT_ONCE: Final = 100


class ChildTransport:
    """Implements the package's `Transport` over a child's standard streams. `hear` is given the
    parameters of each update with the size of its line, and `skip` hears about lines left out."""

    def __init__(
        self,
        child: Child,
        *,
        hear: Callable[[Any, int], None],
        skip: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self._child = child
        self._hear = hear
        self._skip = skip
        self._end = end
        self._writing = asyncio.Lock()
        self._rest = bytearray()
        self._searched = 0
        self._is_skipping = False
        self._given = 0

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raises `ConnectionError` if nobody reads it any more."""
        line = msgspec.json.encode(message) + b"\n"
        async with self._writing:
            try:
                await self._child.write(line)
            except Transient as error:
                # An answer that nobody can read is no failure of whoever gives it.
                if "method" in message:
                    raise ConnectionError(error.message) from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request or answer, or None at the end."""
        while True:
            line = self._next_line()
            if line is None:
                piece = await self._child.read(_PIECE_BYTES)
                if not piece:
                    self._end()
                    return None
                self._add(piece)
                continue
            self._given += 1
            if self._given % _AT_ONCE == 0:
                await asyncio.sleep(0)  # noqa: TID251 - no time passes
            message = self._message(line)
            if message is not None:
                return message

    async def close(self) -> None:
        """Do nothing: the pool ends the process."""

    def _add(self, piece: bytes) -> None:
        self._rest += piece
        if self._is_skipping:
            place = self._rest.find(b"\n")
            self._is_skipping = place < 0
            del self._rest[: place + 1 if place >= 0 else len(self._rest)]
            self._searched = 0
        elif len(self._rest) > LINE_BYTES and self._rest.find(b"\n", self._searched) < 0:
            self._rest.clear()
            self._searched = 0
            self._is_skipping = True
            self._skip()

    def _next_line(self) -> bytes | None:
        place = self._rest.find(b"\n", self._searched)
        if place < 0:
            self._searched = len(self._rest)
            return None
        line = bytes(self._rest[:place])
        del self._rest[: place + 1]
        self._searched = 0
        return line

    def _message(self, line: bytes) -> dict[str, Any] | None:
        """Return what the package reads of a line, or None."""
        if not line.strip():
            return None
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self._skip()
            return None
        method, identity = message.get("method"), message.get("id")
        if method is None:
            # Ours are numbers. The package cannot stand any other kind.
            return message if type(identity) is int else None
        if "id" in message:
            is_sound = isinstance(method, str) and isinstance(identity, str | int)
            return message if is_sound else None
        if method == _UPDATE:
            self._hear(message.get("params"), len(line))
        return None
