"""Reads the text of web pages, with headings, lists, tables, code and links as in markdown.

What belongs to the site and not to the page is left out: scripts, styles, navigation and forms.
"""

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin

from perdure.domain.reading.encodings import UTF_8, decoded_in, encoding_of
from perdure.domain.reading.markup import VOID, MarkupTag, parts_of
from perdure.domain.reading.texts import CUT, TEXT_MAX, Collector

# How much of a page is read. Markup is several times as long as its text.
MARKUP_MAX: Final = 4_000_000
# How much text is kept of a page whose address is known: it was fetched to be read.
PAGE_TEXT_MAX: Final = 1_000_000
# Longer addresses of links are left out.
_LINK_MAX: Final = 2_000
_DEPTH_MAX: Final = 8
_BLANKS: Final = re.compile(r"\s+")
# Elements whose content is not shown, or does not belong to the page.
_UNSEEN: Final = frozenset(
    {
        "script", "style", "template", "noscript", "svg", "math", "nav", "select", "button",
        "iframe", "noembed", "object", "canvas", "audio", "video", "textarea", "datalist", "dialog",
    }
)  # fmt: skip
# Elements that cannot be within unseen ones, so that one that was never closed hides no page.
_CERTAIN: Final = frozenset({"body", "main", "article"})
# Elements that stand on lines of their own, and those with an empty line around them.
_LINES: Final = frozenset(
    {
        "div", "br", "tr", "section", "header", "footer", "aside", "main", "article", "figure",
        "figcaption", "form", "fieldset", "address", "details", "summary", "body", "head", "dt",
        "dd", "caption", "thead", "tbody", "tfoot", "li",
    }
)  # fmt: skip
_PARAGRAPHS: Final = frozenset({"p", "blockquote", "table", "ul", "ol", "dl", "title"})
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def in_html(data: bytes, encoding: str = "", *, address: str = "") -> str:
    """Return the text of a page. With its `address`, links are told as whole addresses, and more
    text is kept; without it, only links that are whole already are told."""
    markup = decoded_in(data[:MARKUP_MAX], encoding or encoding_of(data) or UTF_8)
    found = Collector(PAGE_TEXT_MAX if address else TEXT_MAX)
    page = _Page(found, address)
    for part in parts_of(markup):
        if isinstance(part, str):
            page.text(part)
        else:
            page.tag(part)
        if found.is_full:
            break
    page.close_link()
    text = found.text()
    is_cut = len(data) > MARKUP_MAX and not found.is_full
    return f"{text}\n{CUT}" if is_cut else text


class _Page:
    """Writes a page down while it is read."""

    def __init__(self, found: Collector, address: str) -> None:
        self._found = found
        self._address = address
        self._unseen: list[str] = []
        self._lists: list[int] = []
        self._in_pre = False
        self._is_line_begun = False
        self._is_apart = False
        self._link = ""
        self._is_first_cell = True
        # How many line breaks the page ends with so far. No break comes right after the mark of an
        # entry or a cell, so that its first paragraph stands beside it.
        self._ends = 2
        self._is_marked = False

    def text(self, text: str) -> None:
        """Write text. Outside of `pre`, blanks and line breaks are one blank."""
        if self._unseen:
            return
        if self._in_pre:
            self._write(text)
            return
        blank = self._is_apart and self._is_line_begun
        text = _BLANKS.sub(" ", text)
        if text == " " or not text:
            self._is_apart = self._is_apart or bool(text)
            return
        begins = " " if (blank or text[0] == " ") and self._is_line_begun else ""
        self._is_apart = text[-1] == " "
        self._write(begins + text.strip(" "))

    def tag(self, tag: MarkupTag) -> None:
        """Note where an element begins or ends."""
        name = tag.name
        if name in _CERTAIN and not tag.is_end:
            self._unseen.clear()
        if self._is_hidden(tag):
            return
        if name in _HEADINGS:
            self._break(2)
            if not tag.is_end:
                self._mark(f"{'#' * int(name[1])} ")
        elif name in _PARAGRAPHS:
            self._break(2)
            self._count(tag)
        elif name in _LINES:
            self._break(1)
            self._begin_line(tag)
        elif name in _INLINE:
            _INLINE[name](self, tag)

    def _is_hidden(self, tag: MarkupTag) -> bool:
        """Tell whether a tag is within something unseen, or begins or ends it."""
        if tag.name in _UNSEEN:
            if not tag.is_end:
                if len(self._unseen) < _DEPTH_MAX:
                    self._unseen.append(tag.name)
            elif tag.name in self._unseen:
                while self._unseen.pop() != tag.name:
                    pass
            return True
        return bool(self._unseen) and tag.name not in VOID | _CERTAIN

    def _count(self, tag: MarkupTag) -> None:
        """Keep the numbers of lists up to date."""
        if tag.name not in ("ul", "ol"):
            return
        if tag.is_end:
            del self._lists[-1:]
        elif len(self._lists) < _DEPTH_MAX:
            self._lists.append(1 if tag.name == "ol" else 0)

    def _begin_line(self, tag: MarkupTag) -> None:
        """Write what stands at the beginning of an entry or a row."""
        self._is_first_cell = True
        if tag.name != "li" or tag.is_end:
            return
        number = self._lists[-1] if self._lists else 0
        if number:
            self._lists[-1] += 1
        mark = f"{number}." if number else "-"
        self._mark(f"{'  ' * max(len(self._lists) - 1, 0)}{mark} ")

    def cell(self, tag: MarkupTag) -> None:
        """Separate the cells of a row."""
        if tag.is_end:
            return
        if not self._is_first_cell:
            self._mark(" | ")
        self._is_first_cell = False

    def link(self, tag: MarkupTag) -> None:
        """Write a link as in markdown, if it leads to another page."""
        self.close_link()
        target = "" if tag.is_end else self._target(tag.attributes.get("href", ""))
        if target:
            self._write(" [" if self._is_apart and self._is_line_begun else "[")
            self._link = target
            self._is_line_begun = self._is_apart = False

    def close_link(self) -> None:
        """End the link that is open, if there is one."""
        if self._link:
            self._write(f"]({self._link})")
            self._link = ""

    def _target(self, href: str) -> str:
        """Return the whole address of a link; an empty string if it leads to no other page."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > _LINK_MAX:
            return ""
        try:
            whole = urljoin(self._address, href)
        except ValueError:
            return ""
        is_web = whole.startswith(("http://", "https://"))
        return _BLANKS.sub("%20", whole).replace(")", "%29") if is_web else ""

    def preformatted(self, tag: MarkupTag) -> None:
        """Write code as it is, between fences."""
        if tag.is_end is self._in_pre:
            self._break(1)
            self._write("```")
            self._break(1)
            self._in_pre = not tag.is_end

    def code(self, tag: MarkupTag) -> None:
        """Mark code within a line."""
        if not self._in_pre:
            self._write(" `" if self._is_apart and self._is_line_begun and not tag.is_end else "`")
            self._is_apart = False

    def picture(self, tag: MarkupTag) -> None:
        """Write the words that stand for a picture."""
        words = _BLANKS.sub(" ", tag.attributes.get("alt", "")).strip()
        if words:
            self.text(f" [picture: {words}] ")

    def rule(self, _: MarkupTag) -> None:
        """Write a line across the page."""
        self._break(1)
        self._write("---")
        self._break(1)

    def base(self, tag: MarkupTag) -> None:
        """Note from where the page says that its links begin."""
        if self._address:
            self._address = self._target(tag.attributes.get("href", "")) or self._address

    def _break(self, ends: int) -> None:
        """End the line, so that at least this many line breaks stand here."""
        self.close_link()
        if ends > self._ends and not self._is_marked:
            self._found.add("\n" * (ends - self._ends))
            self._ends = ends
        self._is_line_begun = self._is_apart = False

    def _write(self, text: str) -> None:
        self._found.add(text)
        self._is_line_begun = True
        self._is_marked = False
        self._ends = 0

    def _mark(self, text: str) -> None:
        """Write what stands before the text of an entry, a cell or a heading."""
        self._write(text)
        self._is_line_begun = self._is_apart = False
        self._is_marked = True


_INLINE: Final[dict[str, Callable[[_Page, MarkupTag], None]]] = {
    "a": _Page.link,
    "base": _Page.base,
    "code": _Page.code,
    "hr": _Page.rule,
    "img": _Page.picture,
    "pre": _Page.preformatted,
    "td": _Page.cell,
    "th": _Page.cell,
}
