"""Writes markdown in Slack's own markup, for notifications and for servers without markdown. Pure.

Ampersands and angle brackets are escaped, so no text can become a mention. Slack's formatting marks
cannot be escaped, but Slack reads most of them only at the edges of words.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from perdure.adapters.slack.text.mentions import INVISIBLE, unaddressed
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

_SAFE_TARGET: Final = re.compile(r"(?:https?://|mailto:|tel:)\S+\Z", re.IGNORECASE)
_RULE: Final = "———"
_BULLET: Final = "•"
_BOXES: Final = {True: "☑", False: "☐"}
_STEP: Final = "    "
# Looks like a backquote, but does not end inline code.
_GRAVE: Final = "\u02cb"


def mrkdwn(text: str) -> str:
    """Return a markdown text in Slack's markup."""
    return "\n\n".join(_blocks(parse(text)))


def escaped(text: str) -> str:
    """Return plain text with everything escaped that Slack's markup gives a meaning."""
    bare = unaddressed(text)
    return bare.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        yield _block(block)


def _block(block: Block) -> str:
    match block:
        case Paragraph(children):
            return _line(children)
        case Heading(_, children):
            # Slack reads no other marks inside bold text, so they are removed.
            return f"*{_line(_plain(children))}*"
        case Code(_, text) | RawHtml(text):
            return _fenced(text)
        case Quote(blocks):
            quoted = "\n\n".join(_blocks(blocks))
            return "\n".join(f"> {line}" for line in quoted.split("\n"))
        case List():
            return "\n".join(_items(block))
        case Table():
            return _fenced(to_plain((block,)))
        case HorizontalRule():
            return _RULE
        case _ as never:
            assert_never(never)


def _fenced(text: str) -> str:
    return f"```\n{escaped(text).replace('```', f'``{INVISIBLE}`')}\n```"


def _items(items: List) -> Iterator[str]:
    for number, item in enumerate(items.items, start=items.start):
        mark = f"{number}." if items.is_ordered else _BULLET
        yield f"{mark} {_item(item)}"


def _item(item: ListItem) -> str:
    box = f"{_BOXES[item.is_done]} " if item.is_done is not None else ""
    first, *rest = "\n".join(_blocks(item.blocks)).split("\n")
    return "\n".join([f"{box}{first}", *(f"{_STEP}{line}" for line in rest)])


def _line(inlines: Sequence[Inline]) -> str:
    return "".join(map(_inline, inlines))


def _inline(inline: Inline) -> str:
    match inline:
        case Text(text):
            return escaped(text)
        case Emphasis(children):
            return f"_{_line(children)}_"
        case Strong(children):
            return f"*{_line(children)}*"
        case Struck(children):
            return f"~{_line(children)}~"
        case InlineCode(text):
            return f"`{escaped(text).replace('`', _GRAVE)}`"
        case Link(target, _, children):
            return _link(target, _line(_plain(children)))
        case Image(target, alt):
            return _link(target, escaped(alt))
        case Break():
            return "\n"
        case _ as never:
            assert_never(never)


def _link(target: str, label: str) -> str:
    if not _SAFE_TARGET.match(target):
        return f"{label} ({escaped(target)})" if label else escaped(target)
    address = escaped(target).replace("|", "%7C")
    # A bar would end the URL, and a line break would end the link.
    words = " ".join(label.replace("|", "¦").split())
    return f"<{address}|{words}>" if words else f"<{address}>"


def _plain(inlines: Sequence[Inline]) -> tuple[Inline, ...]:
    """Return the same words without formatting and links."""
    words: list[Inline] = []
    for inline in inlines:
        match inline:
            case Text() | InlineCode():
                words.append(Text(inline.text))
            case Emphasis(children) | Strong(children) | Struck(children) | Link(_, _, children):
                words += _plain(children)
            case Image(_, alt):
                words.append(Text(alt))
            case Break():
                words.append(Text(" "))
            case _ as never:
                assert_never(never)
    return tuple(words)
