"""Renders the tree as text for places without any markup: IRC, SMS, a terminal, a notification.

Nothing that carries meaning is dropped: a link shows its target, a quote its `>`, a table its
columns. Emphasis is dropped. The marks around struck-out text stay, because it means the opposite
of what it says.
"""

import unicodedata
from collections.abc import Sequence
from typing import Final, assert_never

from perdure.domain.markdown.tree import (
    Align,
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

_CODE_INDENT: Final = "    "
_COLUMN_GAP: Final = "  "
_WIDE: Final = frozenset({"W", "F"})


def to_plain(blocks: Sequence[Block]) -> str:
    """Render blocks as plain text."""
    return "\n\n".join(filter(None, map(_block, blocks)))


def _block(block: Block) -> str:
    match block:
        case Paragraph(children) | Heading(_, children):
            return _inlines(children)
        case Code(_, text):
            return _indented(text, _CODE_INDENT)
        case Quote(blocks):
            return "\n".join(f"> {line}".rstrip() for line in to_plain(blocks).split("\n"))
        case List():
            return _list(block)
        case Table():
            return _table(block)
        case HorizontalRule():
            return "---"
        case RawHtml(text):
            return text
        case _:
            assert_never(block)


def _indented(text: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" if line else "" for line in text.split("\n"))


def _list(block: List) -> str:
    numbers = range(block.start, block.start + len(block.items))
    marks = [f"{number}." if block.is_ordered else "-" for number in numbers]
    width = max(map(len, marks), default=0)
    return "\n".join(
        _item(item, mark.ljust(width)) for item, mark in zip(block.items, marks, strict=True)
    )


def _item(item: ListItem, mark: str) -> str:
    box = {None: "", True: "[x] ", False: "[ ] "}[item.is_done]
    text = ""
    for block in item.blocks:
        # A list inside an item needs no blank line above it; anything else reads better with one.
        gap = "\n" if isinstance(block, List) else "\n\n"
        text = f"{text}{gap}{_block(block)}" if text else _block(block)
    indent = " " * (len(mark) + 1)
    return f"{mark} {box}{_indented(text, indent).removeprefix(indent)}".rstrip()


def _table(block: Table) -> str:
    rows = [[_cell(cell) for cell in row] for row in (block.header, *block.rows)]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        _COLUMN_GAP.join(map(_aligned, row, widths, block.aligns)).rstrip() for row in rows
    )


def _cell(cell: Sequence[Inline]) -> str:
    return " ".join(_inlines(cell).split())


def _aligned(cell: str, width: int, align: Align) -> str:
    space = width - _width(cell)
    match align:
        case Align.NONE | Align.LEFT:
            before = 0
        case Align.CENTER:
            before = space // 2
        case Align.RIGHT:
            before = space
        case _:
            assert_never(align)
    return " " * before + cell + " " * (space - before)


def _width(text: str) -> int:
    """Return how many columns a text takes on a screen whose columns are equally wide."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    """Return the columns of one character: none if it combines or is invisible, two if it is
    wide."""
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in _WIDE else 1


def _inlines(inlines: Sequence[Inline]) -> str:
    return "".join(map(_inline, inlines))


def _inline(inline: Inline) -> str:
    match inline:
        case Text(text) | InlineCode(text):
            return text
        case Emphasis(children) | Strong(children):
            return _inlines(children)
        case Struck(children):
            return f"~~{_inlines(children)}~~"
        case Link(target, _, children):
            return _leading(_inlines(children), target)
        case Image(target, alt):
            return _leading(alt, target)
        case Break():
            return "\n"
        case _:
            assert_never(inline)


def _leading(text: str, target: str) -> str:
    """Return a link's text with its target in brackets, unless both say the same."""
    if not text or not target:
        return text or target
    return text if target in (text, f"mailto:{text}") else f"{text} ({target})"
