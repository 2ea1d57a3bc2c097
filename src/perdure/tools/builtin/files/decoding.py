"""Decodes files piece by piece, however large they are."""

import codecs
import os
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Final

from perdure.domain.reading.encodings import UTF_8, encoding_of, may_be_text

CHUNK: Final = 64 * 1024
HEAD: Final = 8 * 1024
_GUESSED: Final = "cp1252"


class ReadingStopped(Exception):
    """Says that reading stopped before the end: the time was over, or nobody waits any more."""


class ReadingDeadline:
    """Decides when reading has taken too long."""

    def __init__(self, seconds: float, is_unwanted: Event) -> None:
        self._is_unwanted = is_unwanted
        self._end_s = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Tell whether to stop now."""
        return self._is_unwanted.is_set() or time.monotonic() >= self._end_s


def head_of(file: int) -> bytes:
    """Read the beginning of a file."""
    return os.read(file, HEAD)


def encoding_for(head: bytes) -> str:
    """Return the encoding of the text that begins with these bytes, or an empty string if they are
    no text. Old encodings of eight bits cannot be told apart, so Windows-1252 stands for all."""
    # A character that is cut at the end would look broken, so it is not judged.
    _, complete = codecs.utf_8_decode(head, "replace", len(head) < HEAD)
    whole = head[:complete]
    found = encoding_of(whole)
    if found == UTF_8 and b"\0" in whole:
        return ""
    if found:
        return found
    return _GUESSED if may_be_text(whole, is_said=False) else ""


def note_on(encoding: str) -> str:
    """Return the words about an encoding other than UTF-8, or an empty string."""
    if encoding == _GUESSED:
        return ", an old encoding, read as Windows-1252"
    return "" if encoding == UTF_8 else f", encoded as {encoding.upper()}"


def _count_nothing(size: int) -> None:
    """Ignore how much was read."""


def decoded_texts(
    file: int,
    head: bytes,
    encoding: str,
    deadline: ReadingDeadline,
    *,
    count: Callable[[int], None] = _count_nothing,
    errors: str = "replace",
) -> Iterator[str]:
    """Yield the text of an open file of which the head was read already. `count` is told of every
    piece of bytes. Raises `ReadingStopped` if it takes too long, and `UnicodeDecodeError` for bytes
    that are no text if `errors` is `strict`."""
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    piece = head
    while piece:
        count(len(piece))
        yield decoder.decode(piece)
        if deadline.is_over:
            raise ReadingStopped
        piece = os.read(file, CHUNK)
    yield decoder.decode(b"", final=True)
