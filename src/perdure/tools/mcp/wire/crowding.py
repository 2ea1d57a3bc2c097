"""Counts the values in a message of a server before anybody reads it.

A message of many small values takes a hundred times as long to read, and as much memory, as one of
the same size that is a long text. It would make everybody wait.
"""

from typing import Final

# As much as a table of ten thousand rows, and far more than any list of tools.
WEIGHT_MAX: Final = 200_000
# A message that is shorter cannot hold so many.
SMALL_BYTES: Final = 64 * 1024
# What is said of a server then.
MANY_VALUES: Final = "has written a message of too many values"
# A structure takes longer to read than what it holds.
_STRUCTURE: Final = 5
_LINE_ENDS: Final = (b"\n", b"\r")


class Crowd:
    """Counts what a message of JSON holds while it comes, in pieces. A stream of events holds many
    messages, in lines that begin with the name of a field, and an empty line ends each."""

    def __init__(self, *, is_of_events: bool) -> None:
        self._is_of_events = is_of_events
        self._weight = 0
        self._is_in_text = False
        self._is_line_empty = True
        self._held = b""
        self._ended_by_return = False

    def is_too_large_with(self, piece: bytes) -> bool:
        """Take a piece. Tells whether the message holds too many values."""
        piece = self._held + piece
        # Whether a backslash belongs to a quotation mark is known with the next piece.
        slashes = len(piece) - len(piece.rstrip(b"\\"))
        self._held = b"\\" * (slashes % 2)
        plain = piece.removesuffix(self._held) if self._held else piece
        plain = plain.replace(b"\\\\", b"").replace(b'\\"', b"")
        if not self._is_of_events:
            self._weigh(plain)
            return self._weight > WEIGHT_MAX
        return self._is_too_large_with_lines(plain)

    def _is_too_large_with_lines(self, plain: bytes) -> bool:
        if self._ended_by_return:
            plain = plain.removeprefix(b"\n")
        self._ended_by_return = plain.endswith(b"\r")
        for number, line in enumerate(plain.splitlines()):
            if number:
                self._end_line()
            self._weigh(line)
            if self._weight > WEIGHT_MAX:
                return True
        if plain.endswith(_LINE_ENDS):
            self._end_line()
        return False

    def _end_line(self) -> None:
        # A text of JSON goes over no line's end.
        self._is_in_text = False
        if self._is_line_empty:
            self._weight = 0
        self._is_line_empty = True

    def _weigh(self, line: bytes) -> None:
        if not line:
            return
        self._is_line_empty = False
        parts = line.split(b'"')
        outside = b"".join(parts[1 if self._is_in_text else 0 :: 2])
        structures = outside.count(b"{") + outside.count(b"[")
        self._weight += len(parts) - 1 + outside.count(b",") + _STRUCTURE * structures
        self._is_in_text ^= len(parts) % 2 == 0


def is_crowded(message: bytes) -> bool:
    """Tell whether a whole message holds too many values."""
    if len(message) <= SMALL_BYTES:
        return False
    crowd = Crowd(is_of_events=False)
    pieces = range(0, len(message), SMALL_BYTES)
    return any(crowd.is_too_large_with(message[at : at + SMALL_BYTES]) for at in pieces)
