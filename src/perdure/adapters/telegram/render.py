"""Renders markdown as Telegram shows it: a text, and marks on it. Pure.

Marks are sent as data and not as MarkdownV2 or HTML, so no text can be refused for its markup.
Where Telegram has no mark, text takes its place: a heading is bold, a list has bullets, and a table
is aligned in columns.
"""

import re
from collections.abc import Sequence
from typing import Final, assert_never

from perdure.adapters.telegram.entities import Pen, Rendered
from perdure.domain.markdown.parse import parse
from perdure.domain.markdown.plain import to_plain
from perdure.domain.markdown.tree import (
    Block,
    Break,
    Code,
    Emphasis,
    Heading,
    HorizontalRule,
    Image,
    Inline,
    InlineCode,
    Link,
    List,
    ListItem,
    Paragraph,
    Quote,
    RawHtml,
    Strong,
    Struck,
    Table,
    Text,
)

# Telegram itself notifies nobody by these words, but other bots in the same group may.
GROUP_MENTION: Final = re.compile(r"@(?=(?:all|channel|everyone|here|room)\b)", re.IGNORECASE)
_UNSEEN: Final = "\u2060"
_WEB: Final = re.compile(r"https?://[^\s]+\Z", re.IGNORECASE)


def rendered(text: str) -> Rendered:
    """Return the text and the marks of a markdown text."""
    return of_blocks(parse(text))


def size(text: str) -> int:
    """Return the length of a markdown text once it is rendered, in UTF-16 units."""
    return rendered(text).size


def of_blocks(blocks: Sequence[Block]) -> Rendered:
    """Return the text and the marks of parsed markdown."""
    pen = Pen()
    _blocks(pen, blocks)
    return pen.rendered()


def is_web(target: str) -> bool:
    """Tell whether an address is an `http` or `https` link. Telegram accepts these, and they only
    open a page."""
    return _WEB.match(target) is not None


def harmless(text: str) -> str:
    """Return the text with an invisible character inside every word that would notify a whole
    group."""
    return GROUP_MENTION.sub(f"@{_UNSEEN}", text)


def _blocks(pen: Pen, blocks: Sequence[Block], *, is_tight: bool = False) -> None:
    for number, block in enumerate(blocks):
        if number:
            pen.new_line() if is_tight else pen.gap()
        _block(pen, block)


def _block(pen: Pen, block: Block) -> None:
    match block:
        case Paragraph(children):
            _inlines(pen, children)
        case Heading(_, children):
            with pen.marked("bold"):
                _inlines(pen, children)
        case Code(_, text):
            _columns(pen, text, language=block.language)
        case Quote(blocks):
            _quote(pen, blocks)
        case List():
            _list(pen, block)
        case Table():
            _columns(pen, to_plain((block,)))
        case HorizontalRule():
            pen.write("———")
        case RawHtml(text):
            pen.write(harmless(text.rstrip("\n")))
        case _:
            assert_never(block)


def _columns(pen: Pen, text: str, *, language: str = "") -> None:
    """Write text whose columns must stay aligned, so without a margin."""
    with pen.indented(None), pen.marked("pre", language=language):
        pen.write(text.rstrip("\n"))


def _quote(pen: Pen, blocks: Sequence[Block]) -> None:
    if not pen.is_inside("blockquote"):
        with pen.marked("blockquote"):
            _blocks(pen, blocks)
        return
    # Telegram has no quotes inside quotes, so the inner one is shown with `>`.
    pen.write("> ")
    with pen.indented("> "):
        _blocks(pen, blocks)


def _list(pen: Pen, block: List) -> None:
    for number, item in enumerate(block.items):
        if number:
            pen.new_line()
        sign = f"{block.start + number}. " if block.is_ordered else "• "
        pen.write(sign + _box(item))
        with pen.indented(" " * (len(sign) + 1)):
            _blocks(pen, item.blocks, is_tight=True)


def _box(item: ListItem) -> str:
    match item.is_done:
        case None:
            return ""
        case True:
            return "☑ "
        case False:
            return "☐ "


def _inlines(pen: Pen, inlines: Sequence[Inline]) -> None:
    for inline in inlines:
        _inline(pen, inline)


def _inline(pen: Pen, inline: Inline) -> None:
    match inline:
        case Text(text):
            pen.write(harmless(text))
        case Emphasis(children):
            _looks(pen, "italic", children)
        case Strong(children):
            _looks(pen, "bold", children)
        case Struck(children):
            _looks(pen, "strikethrough", children)
        case InlineCode(text):
            with pen.marked("code"):
                pen.write(text)
        case Link(target, _, children):
            _link(pen, target, children)
        case Image(target, alt):
            _link(pen, target, (Text(alt or target),))
        case Break():
            pen.write("\n")
        case _:
            assert_never(inline)


def _looks(pen: Pen, kind: str, children: Sequence[Inline]) -> None:
    with pen.marked(kind):
        _inlines(pen, children)


def _link(pen: Pen, target: str, children: Sequence[Inline]) -> None:
    words = children or (Text(target),)
    if is_web(target):
        with pen.marked("text_link", url=target):
            _inlines(pen, words)
        return
    # Other links may trigger something in the app. So their address is shown, and people see it
    # before they use it.
    _inlines(pen, words)
    if target and words != (Text(target),) and words != (Text(target.removeprefix("mailto:")),):
        pen.write(f" ({harmless(target)})")
