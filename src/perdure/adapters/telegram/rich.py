"""Decides which answers are sent as rich messages. Pure.

Telegram parses these itself, by rules that are nearly ours. An answer with a table or a heading
looks better that way, but only if both parsers read it alike. So answers with pictures (Telegram
would fetch them), HTML (it would be interpreted) or links other than web pages (they open things in
the app) are excluded.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from perdure.adapters.telegram.render import GROUP_MENTION, is_web
from perdure.domain.markdown.parse import parse
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

# Wider tables are not sent as rich messages.
_COLUMNS_MAX: Final = 20
_TAG: Final = re.compile(r"<[A-Za-z/!?]")


def is_rich(text: str) -> bool:
    """Tell whether an answer gains by a rich message, and is safe to send as one."""
    # A quick test first: most answers have none of these signs, so they need not be parsed.
    if "#" not in text and "|" not in text and "\n=" not in text and "\n-" not in text:
        return False
    blocks = tuple(_all(parse(text)))
    return any(isinstance(block, Table | Heading) for block in blocks) and all(
        map(_is_plain, blocks)
    )


def _all(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield all blocks, including those inside quotes and lists."""
    for block in blocks:
        yield block
        match block:
            case Quote(inner):
                yield from _all(inner)
            case List(_, _, items):
                for item in items:
                    yield from _all(item.blocks)
            case _:
                pass


def _is_plain(block: Block) -> bool:
    """Tell whether a block contains nothing that Telegram would read differently."""
    match block:
        case Paragraph(children) | Heading(_, children):
            return _reads_alike(children)
        case Table(header, rows):
            cells = [cell for row in (header, *rows) for cell in row]
            return len(header) <= _COLUMNS_MAX and all(map(_reads_alike, cells))
        case RawHtml():
            return False
        case Code() | Quote() | List() | HorizontalRule():
            return True
        case _:
            assert_never(block)


def _reads_alike(inlines: Sequence[Inline]) -> bool:
    return all(map(_is_alike, inlines))


def _is_alike(inline: Inline) -> bool:
    """Tell whether Telegram reads an inline element as we do."""
    match inline:
        case Text(text):
            return _TAG.search(text) is None and GROUP_MENTION.search(text) is None
        case Emphasis(children) | Strong(children) | Struck(children):
            return _reads_alike(children)
        case Link(target, _, children):
            return is_web(target) and _reads_alike(children)
        case Image():
            return False
        case InlineCode() | Break():
            return True
        case _:
            assert_never(inline)
