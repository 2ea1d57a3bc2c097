"""From the bytes of a response body to an `Answer`, without any I/O.

A stream is told from an answer that came at once by its first byte: a server that ignores the wish
to stream sends one JSON object, and content types are not to be trusted. The size is bounded.
"""

from typing import Final

from perdure.agents.chat.answer import Answer, Garbage
from perdure.agents.chat.dialects import Dialect
from perdure.agents.chat.sse import EventSplitter, TooLong

BODY_BYTES_MAX: Final = 64 * 1024 * 1024


class Intake:
    """Feed it what arrives and close it at the end; both raise `Garbage`."""

    __slots__ = ("_bytes", "_dialect", "_events", "_has_started", "_whole", "answer")

    def __init__(self, dialect: Dialect) -> None:
        self.answer = Answer()
        self._dialect = dialect
        self._events = EventSplitter()
        self._whole: list[bytes] | None = None
        self._has_started = False
        self._bytes = 0

    def feed(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > BODY_BYTES_MAX:
            raise Garbage
        if not self._has_started:
            chunk = chunk.lstrip()
            if not chunk:
                return
            self._start(chunk)
        if self._whole is not None:
            self._whole.append(chunk)
            return
        try:
            events = self._events.feed(chunk)
        except TooLong as error:
            raise Garbage from error
        answer, read = self.answer, self._dialect.read
        for event in events:
            read(event, answer)
            if answer.is_over:
                return

    def _start(self, chunk: bytes) -> None:
        self._has_started = True
        if chunk.startswith(b"{"):
            self._whole = []
        elif chunk.startswith(b"<"):
            raise Garbage

    def close(self) -> None:
        """The body has ended. Without a finish, was it cut or never an answer?"""
        if self._whole is not None:
            self._dialect.read_whole(b"".join(self._whole), self.answer)
        elif self.answer.finish is None and self._events.is_foreign:
            raise Garbage
