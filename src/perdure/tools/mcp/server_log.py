"""Keeps the end of what a tool server says beside its answers."""

from collections import deque
from typing import Final

from perdure.domain.turn.errands import plain_line

LOG_BYTES_MAX: Final = 64 * 1024
# How much of one message is kept.
_NOTE_MAX: Final = 2_000


class ServerLog:
    """Holds the last words of one server, over all its lives: what it writes to standard error,
    the messages that it logs, and what was left out of its lists."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self.heard_bytes = 0

    def hear(self, piece: bytes) -> None:
        """Add a piece of what the server writes to standard error."""
        self.heard_bytes += len(piece)
        self._pieces.append(piece[-LOG_BYTES_MAX:])
        self._bytes += len(self._pieces[-1])
        while self._bytes - len(self._pieces[0]) >= LOG_BYTES_MAX:
            self._bytes -= len(self._pieces.popleft())

    def note(self, words: str) -> None:
        """Add a line."""
        self.hear(plain_line(words[:_NOTE_MAX]).encode(errors="replace") + b"\n")

    @property
    def text(self) -> str:
        """Return what is kept."""
        return b"".join(self._pieces)[-LOG_BYTES_MAX:].decode(errors="replace")

    @property
    def last_line(self) -> str:
        """Return the last line that holds anything; empty if there is none."""
        lines = map(plain_line, reversed(self.text[-_NOTE_MAX:].splitlines()))
        return next(filter(None, lines), "")
