"""Turns the bytes of a response body into a `ModelAnswer`, without any I/O.

The first byte tells a stream from a single JSON object, which a server sends if it does not stream;
content types are not reliable. The number of bytes is bounded, as the content is: an answer that is
not streamed has to be held in memory until it is complete.
"""

from typing import Final

from perdure.agents.chat.answer.answer import Garbage, ModelAnswer
from perdure.agents.chat.dialects import ModelDialect
from perdure.agents.chat.sse import EVENT_BYTES_MAX, EventSplitter, TooLong
from perdure.domain.prompt.bounds import ROOM, AnswerRoom, Measure

# How many bytes of response are allowed for each byte of answer. A stream needs many times the
# bytes of its text, a single object far less.
STREAM_BYTES_MIN: Final = 64 * 1024 * 1024
STREAM_TIMES: Final = 16
WHOLE_TIMES: Final = 2


class AnswerIntake:
    """Parses a response body. Feed it what arrives, and close it at the end; both raise
    `Garbage`."""

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
        """Take the next bytes of the body."""
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
        """Keep bytes of an answer that is not streamed. It is parsed at the end."""
        whole.append(chunk)
        if self._bytes > self._whole_bytes_max:
            whole.clear()
            self.answer.exceed()

    def _start(self, chunk: bytes) -> None:
        """Decide by the first byte whether this is a stream or a single object. HTML is refused."""
        self._has_started = True
        if chunk.startswith(b"{"):
            self._whole = []
        elif chunk.startswith(b"<"):
            raise Garbage

    def close(self) -> None:
        """Note that the body has ended. Raises `Garbage` if it never was a model's answer; an
        answer that was only cut off has no `finish`."""
        if self._whole:
            self._dialect.read_whole(b"".join(self._whole), self.answer)
        elif self.answer.finish is None and self._events.is_foreign:
            raise Garbage
