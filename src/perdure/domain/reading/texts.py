"""Text of bounded length, whatever it comes from."""

import re
from html.parser import HTMLParser
from typing import Final

import msgspec

from perdure.domain.text import storable

TEXT_MAX: Final = 100_000
CUT: Final = "[The text is cut here: the file holds more.]"
# Markup is several times as long as what it says; more than this is not looked at.
MARKUP_MAX: Final = 4_000_000
_BLANKS: Final = re.compile(r"\s+")
_UNSEEN: Final = frozenset({"script", "style", "template", "noscript", "svg"})
_LINES: Final = frozenset(
    {
        "p", "div", "br", "li", "tr", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6",
        "section", "article", "header", "footer", "pre", "blockquote", "title", "hr", "dt", "dd",
    }
)  # fmt: skip


class UnreadableFile(Exception):
    """The file says nothing that we can read; the words say why."""


class FileReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says, or why nobody can tell; how long it takes to hear it, if it is sound."""

    text: str = ""
    problem: str = ""
    seconds: int = 0


class Collector:
    """Text as it is found, up to a limit. `is_full`: there is no need to look any further."""

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
        whole = "".join(self._pieces)
        if not self.is_full:
            return tidy(whole)
        return f"{tidy(whole[: self._limit])}\n{CUT}"


def tidy(text: str) -> str:
    """Without trailing blanks and without more than one empty line in a row."""
    lines = [line.rstrip() for line in storable(text).splitlines()]
    kept = [line for n, line in enumerate(lines) if line or (n and lines[n - 1])]
    return "\n".join(kept).strip("\n")


def bounded(text: str) -> str:
    """The text as it is, or its beginning."""
    text = storable(text)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n{CUT}"


def written(data: bytes) -> str:
    """The text that these bytes spell. What is not UTF-8 was saved by an old program."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return bounded(data[: 4 * (TEXT_MAX + 1)].decode(encoding, "replace"))


def in_html(data: bytes) -> str:
    """What a page says, without its tags."""
    page = _Page()
    try:
        page.feed(data[:MARKUP_MAX].decode("utf-8", "replace"))
        page.close()
    except AssertionError as error:  # so the parser calls declarations that cannot be
        raise UnreadableFile("its markup is broken") from error
    text = page.found.text()
    is_cut = len(data) > MARKUP_MAX and not page.found.is_full
    return f"{text}\n{CUT}" if is_cut else text


class _Page(HTMLParser):
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
