"""Splits a byte stream into server-sent events, wherever the network cuts it.

Only `data` lines are read, because both wires name the kind of an event inside its JSON. An event
counts once its blank line has arrived; an incomplete one at the end is dropped. A line that is
neither a field nor a comment is skipped, as the standard says, but remembered: it shows that the
server speaks another protocol and was not merely cut off.
"""

from typing import Final

# Bounds the memory for one event.
EVENT_BYTES_MAX: Final = 8 * 1024 * 1024
_FIELDS: Final = (b"data", b"event", b"id", b"retry", b":")


class TooLong(Exception):
    """Reports that an event is longer than its bound."""


class EventSplitter:
    """Takes bytes as they arrive, and returns the data of the events that are complete."""

    __slots__ = ("_bytes_max", "_data", "_held", "_held_bytes", "has_foreign_lines")

    def __init__(self, *, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._data: list[bytes] = []
        self.has_foreign_lines = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take more bytes. Returns the data of every event that is now complete."""
        self._held_bytes += len(chunk)
        if self._held_bytes > self._bytes_max + len(chunk):
            raise TooLong
        self._held.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = (b"".join(self._held) if len(self._held) > 1 else chunk).split(b"\n")
        self._held = [rest] if rest else []
        events = self._events(lines)
        self._held_bytes = len(rest) + sum(map(len, self._data))
        return events

    def _events(self, lines: list[bytes]) -> list[bytes]:
        if not self._data and len(lines) % 2 == 0 and not any(lines[1::2]):
            # A fast path for what nearly every read is: complete events of one line each.
            events = [line[5:].strip() for line in lines[::2] if line[:5] == b"data:"]
            if len(events) * 2 == len(lines):
                return events
        return self._events_of_any_shape(lines)

    def _events_of_any_shape(self, lines: list[bytes]) -> list[bytes]:
        """Collect events from lines, also events of several lines."""
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[5:])
            elif line in (b"", b"\r"):
                if data:
                    events.append(b"\n".join(data).strip() if len(data) > 1 else data[0].strip())
                    data.clear()
            elif not line.startswith(_FIELDS):
                self.has_foreign_lines = True
        return events

    @property
    def is_foreign(self) -> bool:
        """Tell whether something arrived that is no server-sent event."""
        rest = b"".join(self._held)
        begins = any(rest.startswith(name) or name.startswith(rest) for name in _FIELDS)
        return self.has_foreign_lines or not begins
