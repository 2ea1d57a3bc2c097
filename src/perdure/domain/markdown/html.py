"""Renders the tree as the HTML that Matrix allows in a message.

Every character of the answer is escaped, and tags are written only in this file, so an answer
cannot bring tags, attributes or URL schemes of its own. A link with any other scheme is shown as
text: its label, then its target. A line break in the source is a line break in the chat, as on
every other platform.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import Final, assert_never

from perdure.domain.markdown.tree import (
    Block,
    Break,
    Cell,
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

# Matches the targets that become links.
_SCHEME: Final = re.compile(r"(?:https?|mailto|matrix):[^\x00-\x20]+", re.IGNORECASE)
_BOXES: Final = {True: "\N{BALLOT BOX WITH CHECK}", False: "\N{BALLOT BOX}"}


def to_html(blocks: Sequence[Block]) -> str:
    """Render blocks as HTML."""
    return "".join(map(_block, blocks))


def _block(block: Block) -> str:
    match block:
        case Paragraph(children):
            return f"<p>{_inlines(children)}</p>"
        case Heading(level, children):
            return f"<h{level}>{_inlines(children)}</h{level}>"
        case Code():
            return _code(block)
        case Quote(blocks):
            return f"<blockquote>{to_html(blocks)}</blockquote>"
        case List():
            return _list(block)
        case Table():
            return _table(block)
        case HorizontalRule():
            return "<hr>"
        case RawHtml(text):
            return f"<p>{_lines(text)}</p>"
        case _:
            assert_never(block)


def _code(block: Code) -> str:
    language = f' class="language-{escape(block.language)}"' if block.language else ""
    return f"<pre><code{language}>{escape(block.text)}\n</code></pre>"


def _list(block: List) -> str:
    items = "".join(map(_item, block.items))
    if not block.is_ordered:
        return f"<ul>{items}</ul>"
    start = f' start="{block.start}"' if block.start != 1 else ""
    return f"<ol{start}>{items}</ol>"


def _item(item: ListItem) -> str:
    blocks = item.blocks if item.is_done is None else _boxed(item.blocks, _BOXES[item.is_done])
    match blocks:
        # Most items are one paragraph and perhaps a nested list. With a <p> around the paragraph,
        # clients would set the items too far apart.
        case (Paragraph(children), *others) if all(isinstance(each, List) for each in others):
            return f"<li>{_inlines(children)}{to_html(others)}</li>"
        case _:
            return f"<li>{to_html(blocks)}</li>"


def _boxed(blocks: Sequence[Block], box: str) -> tuple[Block, ...]:
    """Return the blocks of an item with the box of a task before its text."""
    match blocks:
        case (Paragraph(children), *others):
            return (Paragraph((Text(f"{box} "), *children)), *others)
        case _:
            return (Paragraph((Text(box),)), *blocks)


def _table(block: Table) -> str:
    rows = "".join(_row(row, "td") for row in block.rows)
    body = f"<tbody>{rows}</tbody>" if rows else ""
    return f"<table><thead>{_row(block.header, 'th')}</thead>{body}</table>"


def _row(cells: Sequence[Cell], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{_inlines(cell)}</{tag}>" for cell in cells) + "</tr>"


def _inlines(inlines: Sequence[Inline]) -> str:
    return "".join(map(_inline, inlines))


def _inline(inline: Inline) -> str:
    match inline:
        case Text(text):
            return _lines(text)
        case Emphasis(children):
            return f"<em>{_inlines(children)}</em>"
        case Strong(children):
            return f"<strong>{_inlines(children)}</strong>"
        case Struck(children):
            return f"<del>{_inlines(children)}</del>"
        case InlineCode(text):
            return f"<code>{escape(text)}</code>"
        case Link(target, _, children):
            return _link(target, _inlines(children))
        case Image(target, alt):
            return _link(target, _lines(alt))
        case Break():
            return "<br>"
        case _:
            assert_never(inline)


def _lines(text: str) -> str:
    """Escape a text, and write its line breaks as tags."""
    return escape(text).replace("\n", "<br>")


def _link(target: str, label: str) -> str:
    """Return a link, or its label and target as text if it may not be a link. The label is escaped
    already."""
    label = label or escape(target)
    if _SCHEME.fullmatch(target):
        return f'<a href="{escape(target)}">{label}</a>'
    return f"{label} ({escape(target)})" if target and label != escape(target) else label
