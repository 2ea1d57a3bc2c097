"""Reads text files, and limits how much text of any file is kept."""

from typing import Final

import msgspec

from perdure.domain.reading.encodings import UTF_8, decoded_in, encoding_of
from perdure.domain.text import storable

TEXT_MAX: Final = 100_000
CUT: Final = "[The text is cut here: the file holds more.]"


class UnreadableFile(Exception):
    """Says that a file has no text that we can read. The message says why."""


class FileReading(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the text of a file, or why there is none, and how many `seconds` it lasts if it is
    sound. `picture` are the bytes of a picture as models take it, if it did not fit as it was."""

    text: str = ""
    problem: str = ""
    seconds: int = 0
    picture: bytes = b""


class Collector:
    """Collects text up to a limit. When it `is_full`, nothing more is added."""

    def __init__(self, limit: int = TEXT_MAX) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return self._size > self._limit

    def add(self, text: str) -> None:
        if text and not self.is_full:
            self._pieces.append(text)
            self._size += len(text)

    def text(self) -> str:
        """Return the collected text, tidied, with a note at its end if it was cut."""
        whole = "".join(self._pieces)
        if not self.is_full:
            return tidy(whole)
        return f"{tidy(whole[: self._limit])}\n{CUT}"


def tidy(text: str) -> str:
    """Return a text without blanks at the ends of its lines, and with at most one empty line in a
    row."""
    lines = [line.rstrip() for line in storable(text).splitlines()]
    kept = [line for n, line in enumerate(lines) if line or (n and lines[n - 1])]
    return "\n".join(kept).strip("\n")


def bounded(text: str) -> str:
    """Return a text, or its beginning with a note if it is too long."""
    text = storable(text)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n{CUT}"


def decoded_text(data: bytes, encoding: str = "") -> str:
    """Return the text of a text file. Without an `encoding`, the one that the bytes show is taken,
    or else UTF-8. Bytes that do not fit become U+FFFD."""
    # A character takes at most four bytes in all encodings, so the rest is not needed.
    begun = data[: 4 * (TEXT_MAX + 1)]
    return bounded(decoded_in(begun, encoding or encoding_of(begun) or UTF_8))
