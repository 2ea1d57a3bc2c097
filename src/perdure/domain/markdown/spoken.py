"""Renders the tree as text to be read aloud.

A listener cannot look at code, tables and addresses, so these are left out: the written answer has
them. Each block ends like a sentence, so that a voice pauses behind headings and list items too.
"""

from collections.abc import Sequence
from typing import Final, assert_never

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
    Paragraph,
    Quote,
    RawHtml,
    Strong,
    Struck,
    Table,
    Text,
)

_ENDS: Final = (".", "?", "!", ":", ";", ",", "…", "。", "？", "！")  # noqa: RUF001 - any language
_ADDRESS: Final = ("http://", "https://")


def to_spoken(blocks: Sequence[Block]) -> str:
    """Render blocks as sentences, one block to a line."""
    return "\n".join(filter(None, map(_block, blocks)))


def _block(block: Block) -> str:
    match block:
        case Paragraph(children) | Heading(_, children):
            return _sentence(_inlines(children).split())
        case Quote(blocks):
            return to_spoken(blocks)
        case List(_, _, items):
            return "\n".join(filter(None, (to_spoken(item.blocks) for item in items)))
        case Code() | Table() | HorizontalRule() | RawHtml():
            return ""
        case _:
            assert_never(block)


def _sentence(words: Sequence[str]) -> str:
    """Join words, without addresses, so that they end like a sentence."""
    text = " ".join(word for word in words if not word.startswith(_ADDRESS))
    return text if not text or text.endswith(_ENDS) else f"{text}."


def _inlines(inlines: Sequence[Inline]) -> str:
    return "".join(map(_inline, inlines))


def _inline(inline: Inline) -> str:
    match inline:
        case Text(text) | InlineCode(text):
            return text
        case Emphasis(children) | Strong(children) | Link(_, _, children):
            return _inlines(children)
        case Image(_, alt):
            return alt
        case Break():
            return " "
        case Struck():
            return ""
        case _:
            assert_never(inline)
