"""Reads text files and HTML pages, and limits how much text of any file is kept."""

import re
from html.parser import HTMLParser
from typing import Final

import msgspec

from perdure.domain.reading.encodings import UTF_8, decoded_in, encoding_of
from perdure.domain.text import storable

TEXT_MAX: Final = 100_000
CUT: Final = "[The text is cut here: the file holds more.]"
# How much of a page is read. Markup is several times as long as its text.
MARKUP_MAX: Final = 4_000_000
_BLANKS: Final = re.compile(r"\s+")
# Elements whose content is not shown on a page.
_UNSEEN: Final = frozenset({"script", "style", "template", "noscript", "svg"})
# Elements that stand on lines of their own.
_LINES: Final = frozenset(
    {
        "p", "div", "br", "li", "tr", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6",
        "section", "article", "header", "footer", "pre", "blockquote", "title", "hr", "dt", "dd",
    }
)  # fmt: skip


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


def in_html(data: bytes, encoding: str = "") -> str:
    """Return the text of a page, without its tags. Raises `UnreadableFile`."""
    page = _Page()
    try:
        page.feed(decoded_in(data[:MARKUP_MAX], encoding or encoding_of(data) or UTF_8))
        page.close()
    except AssertionError as error:  # the parser's answer to impossible declarations
        raise UnreadableFile("its markup is broken") from error
    text = page.found.text()
    is_cut = len(data) > MARKUP_MAX and not page.found.is_full
    return f"{text}\n{CUT}" if is_cut else text


class _Page(HTMLParser):
    """Collects the text of a page while it is parsed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found = Collector()
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag in _LINES:
            self.found.add("\n")
        elif tag in ("td", "th"):
            self.found.add("\t")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(self._unseen - 1, 0)
        elif tag in _LINES:
            self.found.add("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.found.add(_BLANKS.sub(" ", data))
