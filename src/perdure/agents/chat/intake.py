"""From the bytes of a response body to an `ModelAnswer`, without any I/O.

A stream is told from an answer that came at once by its first byte: a server that ignores the wish
to stream sends one JSON object, and content types are not to be trusted. The size is bounded, as
that of what is in it is: an answer that is not streamed has to be held until it is whole.
"""

from typing import Final

from perdure.agents.chat.answer import Garbage, ModelAnswer
from perdure.agents.chat.dialects import ModelDialect
from perdure.agents.chat.sse import EVENT_BYTES_MAX, EventSplitter, TooLong
from perdure.domain.prompt.bounds import ROOM, AnswerRoom, Measure

# A stream takes many times the bytes of the text in it, one object far less.
STREAM_BYTES_MIN: Final = 64 * 1024 * 1024
STREAM_TIMES: Final = 16
WHOLE_TIMES: Final = 2


class AnswerIntake:
    """Feed it what arrives and close it at the end; both raise `Garbage`."""

    __slots__ = (
        *("_bytes", "_dialect", "_events", "_has_started", "_stream_bytes_max", "_whole"),
        *("_whole_bytes_max", "answer"),
    )

    def __init__(self, dialect: ModelDialect, room: AnswerRoom = ROOM) -> None:
        self.answer = ModelAnswer(measure=Measure(room))
        self._dialect = dialect
        allowed = room.bounds.answer_bytes
        self._stream_bytes_max = max(STREAM_BYTES_MIN, STREAM_TIMES * allowed)
        self._whole_bytes_max = max(EVENT_BYTES_MAX, WHOLE_TIMES * allowed)
        self._events = EventSplitter(bytes_max=self._whole_bytes_max)
        self._whole: list[bytes] | None = None
        self._has_started = False
        self._bytes = 0

    def feed(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > self._stream_bytes_max:
            self.answer.exceed()
            return
        if not self._has_started:
            chunk = chunk.lstrip()
            if not chunk:
                return
            self._start(chunk)
        if self._whole is not None:
            self._take_whole(self._whole, chunk)
            return
        try:
            events = self._events.feed(chunk)
        except TooLong:
            self.answer.exceed()
            return
        answer, read = self.answer, self._dialect.read
        for event in events:
            read(event, answer)
            if answer.is_over:
                return

    def _take_whole(self, whole: list[bytes], chunk: bytes) -> None:
        whole.append(chunk)
        if self._bytes > self._whole_bytes_max:
            whole.clear()
            self.answer.exceed()

    def _start(self, chunk: bytes) -> None:
        self._has_started = True
        if chunk.startswith(b"{"):
            self._whole = []
        elif chunk.startswith(b"<"):
            raise Garbage

    def close(self) -> None:
        """The body has ended. Without a finish, was it cut or never an answer?"""
        if self._whole:
            self._dialect.read_whole(b"".join(self._whole), self.answer)
        elif self.answer.finish is None and self._events.is_foreign:
            raise Garbage
