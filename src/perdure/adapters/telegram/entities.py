"""Builds a text with marks on it, piece by piece.

Telegram counts in UTF-16 units, and so does the pen: it is told what to write and which mark
applies meanwhile. Marks are separate values, so nothing in a text can be mistaken for one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from perdure.domain.markdown.units import TextUnit, size_of

# Telegram ignores marks beyond this number, in the order of the text.
_MARKS_MAX: Final = 100
_CODE: Final = frozenset({"pre", "code"})
_LOOKS: Final = frozenset({"bold", "italic", "strikethrough"})


class Mark(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Holds one mark, as the Bot API takes it."""

    type: str
    offset: int
    length: int
    url: str = ""
    language: str = ""


class Rendered(msgspec.Struct, frozen=True):
    """Holds a text and the marks on it."""

    text: str
    marks: tuple[Mark, ...] = ()

    @property
    def size(self) -> int:
        """Return the length of the text in UTF-16 units."""
        return size_of(self.text, TextUnit.UTF16)


class _Open(msgspec.Struct):
    """Holds a mark that is not closed yet."""

    kind: str
    start: int
    url: str
    language: str


class Pen:
    """Writes into one text, and keeps track of where the marks are on it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._marks: list[Mark] = []
        self._open: list[_Open] = []
        self._margin = ""
        self._is_line_begun = True

    def write(self, text: str) -> None:
        """Write text under the marks that are open now. Each line begins with the margin."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if number:
                self._put("\n")
                self._is_line_begun = False
            if line:
                self._begin_line()
                self._put(line)

    def new_line(self) -> None:
        """End the current line, if one was begun."""
        if self._pieces and self._pieces[-1] != "\n":
            self.write("\n")

    def gap(self) -> None:
        """Write an empty line, unless nothing stands above it."""
        self.new_line()
        if self._pieces and self._pieces[-2:-1] != ["\n"]:
            self.write("\n")

    @contextmanager
    def marked(self, kind: str, *, url: str = "", language: str = "") -> Iterator[None]:
        """Put a mark on what is written inside the `with` block, where such a mark is allowed."""
        if not _may_hold([mark.kind for mark in self._open], kind):
            yield
            return
        self._begin_line()
        # Telegram allows no bold, italic or strikethrough around code. So these marks end before
        # the code and begin again after it.
        broken = [mark for mark in self._open if mark.kind in _LOOKS] if kind in _CODE else []
        for mark in broken:
            self._close(mark)
        opened = _Open(kind, self._size, url, language)
        self._open.append(opened)
        yield
        self._close(self._open.pop())
        for mark in broken:
            mark.start = self._size

    def _close(self, mark: "_Open") -> None:
        if self._size > mark.start:
            self._marks.append(
                Mark(
                    type=mark.kind,
                    offset=mark.start,
                    length=self._size - mark.start,
                    url=mark.url,
                    language=mark.language,
                )
            )

    @contextmanager
    def indented(self, margin: str | None) -> Iterator[None]:
        """Begin the lines written inside the `with` block with this margin as well. None removes
        all margins."""
        before = self._margin
        self._margin = "" if margin is None else before + margin
        if margin is None and self._margin != before:
            self.new_line()
        yield
        self._margin = before

    def is_inside(self, kind: str) -> bool:
        """Tell whether a mark of this kind is open."""
        return any(mark.kind == kind for mark in self._open)

    def rendered(self) -> Rendered:
        """Return the text without the space around it, with the marks moved accordingly."""
        text = "".join(self._pieces)
        lead = len(text) - len(text.lstrip())
        shift = size_of(text[:lead], TextUnit.UTF16)
        text = text.strip()
        return Rendered(text, _kept(self._marks, shift, size_of(text, TextUnit.UTF16)))

    def _begin_line(self) -> None:
        if not self._is_line_begun:
            self._is_line_begun = True
            self._put(self._margin)

    def _put(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._size += size_of(text, TextUnit.UTF16)


def _may_hold(around: list[str], kind: str) -> bool:
    """Tell whether a mark may be opened inside others. Nothing is allowed inside code or twice
    inside itself, and a link may contain only bold, italic and strikethrough."""
    if kind in around or not _CODE.isdisjoint(around):
        return False
    return kind in _LOOKS or "text_link" not in around


def _kept(marks: list[Mark], shift: int, size: int) -> tuple[Mark, ...]:
    """Move and cut the marks to fit the text without the space around it. Returns them in the order
    of the text, outer ones first."""
    kept = []
    for mark in marks:
        start = max(mark.offset - shift, 0)
        end = min(mark.offset - shift + mark.length, size)
        if end > start:
            kept.append(msgspec.structs.replace(mark, offset=start, length=end - start))
    # If there are too many marks, links and code are kept first: losing them loses meaning, while
    # losing bold only changes the looks.
    kept.sort(key=lambda mark: mark.type in _LOOKS)
    return tuple(sorted(kept[:_MARKS_MAX], key=lambda mark: (mark.offset, -mark.length)))
