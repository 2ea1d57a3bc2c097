"""What a text says, in no platform's words.

The tree is closed and small: a dialect matches every kind and ends with `assert_never`, so a new
kind is an error of the type checker in each dialect and not a hole in somebody's answer. There is
no raw inline: HTML inside a line is `Text`, and HTML blocks are `RawHtml`, to be shown, not obeyed.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Align(StrEnum):
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
    children: "tuple[Inline, ...]"


class InlineCode(msgspec.Struct, frozen=True):
    text: str


class Link(msgspec.Struct, frozen=True):
    """No link or image stands inside another; there an image is its alternative text."""

    target: str
    title: str
    children: "tuple[Inline, ...]"


class Image(msgspec.Struct, frozen=True):
    target: str
    alt: str


class Break(msgspec.Struct, frozen=True):
    is_hard: bool


Inline: TypeAlias = Text | Emphasis | Strong | Struck | InlineCode | Link | Image | Break


class Paragraph(msgspec.Struct, frozen=True):
    children: tuple[Inline, ...]


class Heading(msgspec.Struct, frozen=True):
    level: int
    children: tuple[Inline, ...]


class Code(msgspec.Struct, frozen=True):
    """`info` is all that stood after the opening fence; its first word names the language."""

    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split(maxsplit=1)[0] if self.info.strip() else ""


class Quote(msgspec.Struct, frozen=True):
    blocks: "tuple[Block, ...]"


class ListItem(msgspec.Struct, frozen=True):
    """`is_done` is the state of a task's box, None where there is no box."""

    blocks: "tuple[Block, ...]"
    is_done: bool | None = None


class List(msgspec.Struct, frozen=True):
    is_ordered: bool
    start: int
    items: tuple[ListItem, ...]


Cell: TypeAlias = tuple[Inline, ...]


class Table(msgspec.Struct, frozen=True):
    """Every row has as many cells as the header."""

    header: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    aligns: tuple[Align, ...]


class HorizontalRule(msgspec.Struct, frozen=True):
    pass


class RawHtml(msgspec.Struct, frozen=True):
    text: str


Block: TypeAlias = Paragraph | Heading | Code | Quote | List | Table | HorizontalRule | RawHtml
