"""Keeps what a command writes, within bounds, and shows it as plain text.

A command may write without end, and in any bytes. So the beginning and the end are kept while it
runs, and the rest is only counted.
"""

import re
from typing import Final

from perdure.domain.text import without_disguise

# Matches what moves the cursor, sets colours or titles of a terminal.
_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[()#][0-9A-Za-z]|[0-Z\\^_a-z~])"
)
# How many last bytes of a piece are looked at for its last line.
_LINE_BYTES: Final = 400


class KeptOutput:
    """Keeps the first and the last bytes of an output. Without a head it is a log of which the
    oldest bytes go first."""

    def __init__(self, *, head_max: int, tail_max: int) -> None:
        self._head_max = head_max
        self._tail_max = tail_max
        self._head = bytearray()
        self._tail = bytearray()
        self.size = 0

    def add(self, piece: bytes) -> None:
        """Take what the command has written next."""
        self.size += len(piece)
        room = self._head_max - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        # Cut rarely, so that each byte is moved a few times at most.
        if len(self._tail) > 2 * self._tail_max:
            del self._tail[: -self._tail_max]

    @property
    def text(self) -> str:
        """Return what was kept, as plain text that says how much is missing between."""
        tail = bytes(self._tail[-self._tail_max :])
        left_out = self.size - len(self._head) - len(tail)
        if not left_out:
            return plain_text(bytes(self._head) + tail)
        gap = f"[… {left_out:,} bytes are left out here …]"
        head = f"{plain_text(bytes(self._head))}\n" if self._head else ""
        return f"{head}{gap}\n{plain_text(tail)}"

    def page(self, offset: int, length: int) -> tuple[int, bytes]:
        """Return at most so many bytes of a log, from an offset or from the first byte after it
        that is still kept, and where they begin. A page that has bytes after it ends with a whole
        line, if it holds one."""
        assert not self._head_max
        start = min(max(offset, self.size - min(len(self._tail), self._tail_max)), self.size)
        at = len(self._tail) - (self.size - start)
        found = bytes(self._tail[at : at + length])
        is_last = start + len(found) == self.size
        return start, found if is_last else found[: found.rfind(b"\n") + 1] or found


def plain_text(data: bytes) -> str:
    """Return bytes as text that is only text: without the orders that a terminal would obey, and
    with a replacement character for what is not UTF-8. Of a line that was written over, the last
    version is kept."""
    text = _SEQUENCE.sub("", data.decode(errors="replace")).replace("\r\n", "\n")
    if "\r" in text:
        lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
        text = "\n".join(lines)
    return without_disguise(text)


def last_line(piece: bytes) -> str:
    """Return the last line of an output that says something, to show how far a command is."""
    lines = plain_text(piece[-_LINE_BYTES:]).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
