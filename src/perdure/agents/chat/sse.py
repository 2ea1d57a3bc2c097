"""Server-sent events out of a byte stream, wherever the network happens to cut it.

Only `data` lines matter here: both wires name the kind of an event inside its JSON. An event
counts once its blank line has arrived; what a broken stream leaves behind is dropped. A line that
is no field and no comment is skipped, as the standard says, and remembered: it tells a server
that speaks something else from one that was cut.
"""

from typing import Final

EVENT_BYTES_MAX: Final = 8 * 1024 * 1024
_FIELDS: Final = (b"data", b"event", b"id", b"retry", b":")


class TooLong(Exception):
    """An event outgrew its bound."""


class EventSplitter:
    """Feed it what arrives; it gives the data of the events that became whole."""

    __slots__ = ("_bytes_max", "_data", "_held", "_held_bytes", "has_foreign_lines")

    def __init__(self, *, bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._data: list[bytes] = []
        self.has_foreign_lines = False

    def feed(self, chunk: bytes) -> list[bytes]:
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
            # Nearly always a read is whole events of one line each.
            events = [line[5:].strip() for line in lines[::2] if line[:5] == b"data:"]
            if len(events) * 2 == len(lines):
                return events
        return self._events_of_any_shape(lines)

    def _events_of_any_shape(self, lines: list[bytes]) -> list[bytes]:
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
        """Has something arrived that no server-sent event looks like?"""
        rest = b"".join(self._held)
        begins = any(rest.startswith(name) or name.startswith(rest) for name in _FIELDS)
        return self.has_foreign_lines or not begins
