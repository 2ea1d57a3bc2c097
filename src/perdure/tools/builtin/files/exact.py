"""Reads lines of a file exactly as they are, for a program that writes them back."""

import os
from typing import Final

from perdure.domain.errors import Rejected
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.decoding import (
    ReadingDeadline,
    ReadingStopped,
    decoded_texts,
    head_of,
)
from perdure.tools.builtin.files.opening import opened_file, opened_folder
from perdure.tools.builtin.files.roots import RootedPath

# A mark at the beginning of a file stays in its text, so that it is written back.
_UTF_8: Final = "utf-8"


def read_exactly(
    path: RootedPath, *, offset: int, count: int, bounds: FilesBounds, deadline: ReadingDeadline
) -> str:
    """Return lines of a file of UTF-8, after `offset` others, with their line breaks. Raises
    `Rejected` if it is no such text, or if that is more than a call may return."""
    lines = _Lines(path, offset, count, bounds.exact_bytes)
    with opened_folder(path.upward()) as folder, opened_file(folder, path) as file:
        size = os.fstat(file).st_size
        if not offset and not count and size > bounds.exact_bytes:
            raise lines.too_much()
        try:
            for text in decoded_texts(file, head_of(file), _UTF_8, deadline, errors="strict"):
                if not lines.take(text):
                    break
        except UnicodeDecodeError as error:
            raise Rejected(
                f"{path.shown} is not text in UTF-8, so it cannot be read exactly"
            ) from error
        except ReadingStopped as error:
            raise Rejected(
                f"reading {path.shown} took too long; read from a smaller line"
            ) from error
    return lines.text


class _Lines:
    """Collects some lines from the pieces of a text."""

    def __init__(self, path: RootedPath, offset: int, count: int, limit: int) -> None:
        self._path = path
        self._before = offset  # how many lines are still left out
        self._wanted = count  # how many lines are still wanted; 0 for all
        self._is_bounded = count > 0
        self._limit = limit
        self._kept: list[str] = []
        self._bytes = 0

    @property
    def text(self) -> str:
        return "".join(self._kept)

    def take(self, text: str) -> bool:
        """Add a piece of the text. Tells whether more is wanted."""
        if "\0" in text:
            raise Rejected(f"{self._path.shown} is a binary file, not text; it cannot be read")
        start = 0
        while self._before:
            found = text.find("\n", start)
            if found < 0:
                return True
            start = found + 1
            self._before -= 1
        end = start
        while self._is_bounded and self._wanted:
            found = text.find("\n", end)
            if found < 0:
                break
            end = found + 1
            self._wanted -= 1
        is_done = self._is_bounded and not self._wanted
        piece = text[start:end] if is_done else text[start:]
        self._bytes += len(piece.encode())
        if self._bytes > self._limit:
            raise self.too_much()
        self._kept.append(piece)
        return not is_done

    def too_much(self) -> Rejected:
        """Return the refusal of a text that is too long."""
        return Rejected(
            f"{self._path.shown} is longer than the {self._limit:,} bytes that are read at once; "
            "give line and limit for a part of it"
        )
