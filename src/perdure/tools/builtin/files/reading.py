"""Reads a page of lines from a file of any size. Lines before the page are counted, not kept."""

import os

from perdure.domain.errors import Rejected
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.decoding import (
    ReadingDeadline,
    ReadingStopped,
    decoded_texts,
    encoding_for,
    head_of,
    note_on,
)
from perdure.tools.builtin.files.opening import opened_file, opened_folder
from perdure.tools.builtin.files.roots import RootedPath


def read_page(
    path: RootedPath, *, offset: int, count: int, bounds: FilesBounds, deadline: ReadingDeadline
) -> str:
    """Return lines of a file, after `offset` others, and how to go on."""
    with opened_folder(path.upward()) as folder, opened_file(folder, path) as file:
        size = os.fstat(file).st_size
        head = head_of(file)
        encoding = encoding_for(head)
        if not encoding:
            raise Rejected(
                f"{path.shown} is a binary file of {size:,} bytes, not text; it cannot be read"
            )
        page = _Page(offset, count, bounds)
        try:
            for text in decoded_texts(file, head, encoding, deadline):
                if not page.take(text):
                    break
            else:
                page.end()
        except ReadingStopped:
            page.stop()
    title = f"{path.shown}, {size:,} bytes{note_on(encoding)}"
    return page.told(title)


class _Page:
    """Collects the lines of a page from the pieces of a text."""

    def __init__(self, offset: int, count: int, bounds: FilesBounds) -> None:
        self._offset = offset
        self._count = count
        self._bounds = bounds
        self._line = 0  # how many lines have ended before the present place
        self._kept: list[str] = []
        self._bytes = 0
        self._parts: list[str] = []  # the beginning of the present line
        self._length = 0  # how many characters the present line has so far
        self._is_full = False
        self._has_more = False
        self._is_cut_short = False

    def take(self, text: str) -> bool:
        """Add a piece of the text. Tells whether the page wants more of it."""
        ends = text.count("\n")
        if self._line + ends < self._offset:
            self._line += ends
            # Of a line before the page, only whether it has any text is of interest.
            self._length = int(not text.endswith("\n")) if text else self._length
            return True
        pieces = text.split("\n")
        for piece in pieces[:-1]:
            self._add(piece)
            self._end_line()
            if self._has_more:
                return False
        self._add(pieces[-1])
        return not self._has_more

    def end(self) -> None:
        """Take note of the end of the file. The last line may lack its line break."""
        if self._length:
            self._end_line()

    def stop(self) -> None:
        """Take note that reading took too long. A line that is too long anyway is kept."""
        self._is_cut_short = True
        if self._length > self._bounds.line_chars:
            self._end_line()

    def _add(self, piece: str) -> None:
        """Add to the present line. What exceeds the longest line is only counted."""
        self._has_more |= self._is_full and bool(piece)
        room = self._bounds.line_chars - self._length
        if piece and room > 0 and self._line >= self._offset:
            self._parts.append(piece[:room])
        self._length += len(piece)

    def _end_line(self) -> None:
        """End the present line, and keep it if it belongs to the page."""
        if self._is_full:
            self._has_more = True
            return
        line, length = "".join(self._parts), self._length
        self._parts, self._length = [], 0
        if self._line >= self._offset:
            self._keep(line, length)
        self._line += 1

    def _keep(self, line: str, length: int) -> None:
        """Add a line to the page, or find the page full."""
        cut = length - len(line)
        shown = line.removesuffix("\r") if not cut else f"{line}… [{cut:,} more characters cut]"
        size = len(shown.encode("utf-8", "replace")) + 1
        if self._kept and self._bytes + size > self._bounds.page_bytes:
            self._is_full = self._has_more = True
            return
        self._kept.append(shown)
        self._bytes += size
        self._is_full = len(self._kept) == self._count

    def told(self, title: str) -> str:
        """Return the page with its heading, and how to go on."""
        last = self._offset + len(self._kept)
        text = "\n".join(self._kept)
        if self._is_cut_short and not self._kept:
            return (
                f"[{title}: reading stopped at line {self._line:,} because it took too long; use "
                "search, or a smaller offset]"
            )
        if not self._line:
            return f"[{title}: it is empty]"
        if not self._kept:
            return f"[{title}: it has {self._line:,} lines, so none after {self._offset:,}]"
        place = f"[{title}, lines {self._offset + 1:,} to {last:,}"
        if self._is_cut_short or self._has_more:
            return f"{place}]\n{text}\n[the file goes on; read with offset {last} for more]"
        return f"{place}, the last]\n{text}"
