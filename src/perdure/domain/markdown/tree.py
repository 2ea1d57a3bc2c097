"""Defines the tree of a text that was parsed, which knows nothing of any platform.

The set of kinds is closed and small. Each renderer matches every kind and ends with `assert_never`,
so the type checker finds every renderer that does not know a new kind. There is no raw inline: HTML
inside a line is `Text`. HTML blocks are `RawHtml`, which is shown as it is written and never
interpreted.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Align(StrEnum):
    """Names how the cells of a column are aligned."""

    NONE = ""
    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


class Text(msgspec.Struct, frozen=True):
    text: str


class Emphasis(msgspec.Struct, frozen=True):
    children: "tuple[Inline, ...]"


class Strong(msgspec.Struct, frozen=True):
    children: "tuple[Inline, ...]"


class Struck(msgspec.Struct, frozen=True):
    """Holds text that is struck out."""

    children: "tuple[Inline, ...]"


class InlineCode(msgspec.Struct, frozen=True):
    text: str


class Link(msgspec.Struct, frozen=True):
    """Holds a link. It contains no other link and no image: of an image inside a link, the
    alternative text stays."""

    target: str
    title: str
    children: "tuple[Inline, ...]"


class Image(msgspec.Struct, frozen=True):
    target: str
    alt: str


class Break(msgspec.Struct, frozen=True):
    """Ends a line. A hard break was asked for by the author; any other is a line end in the
    source."""

    is_hard: bool


Inline: TypeAlias = Text | Emphasis | Strong | Struck | InlineCode | Link | Image | Break


class Paragraph(msgspec.Struct, frozen=True):
    children: tuple[Inline, ...]


class Heading(msgspec.Struct, frozen=True):
    level: int
    children: tuple[Inline, ...]


class Code(msgspec.Struct, frozen=True):
    """Holds a block of code. `info` is all that stood after the opening fence; its first word names
    the language."""

    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split(maxsplit=1)[0] if self.info.strip() else ""


class Quote(msgspec.Struct, frozen=True):
    blocks: "tuple[Block, ...]"


class ListItem(msgspec.Struct, frozen=True):
    """Holds an item of a list. `is_done` is the state of the box of a task, or None if there is no
    box."""

    blocks: "tuple[Block, ...]"
    is_done: bool | None = None


class List(msgspec.Struct, frozen=True):
    """Holds a list. `start` is the number of its first item."""

    is_ordered: bool
    start: int
    items: tuple[ListItem, ...]


Cell: TypeAlias = tuple[Inline, ...]


class Table(msgspec.Struct, frozen=True):
    """Holds a table. Every row has as many cells as the header."""

    header: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    aligns: tuple[Align, ...]


class HorizontalRule(msgspec.Struct, frozen=True):
    pass


class RawHtml(msgspec.Struct, frozen=True):
    """Holds an HTML block as it was written."""

    text: str


Block: TypeAlias = Paragraph | Heading | Code | Quote | List | Table | HorizontalRule | RawHtml
