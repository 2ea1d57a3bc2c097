"""Parses Markdown source into the tree of `tree.py`, with the parser of `reader.py`.

markdown-it reads in two passes, and so does this module. The first pass finds the blocks and the
lines they stand on; splitting and healing need no more. The second pass reads the text inside them.

A text may come from a stranger, so its reading is bounded: emphasis deeper than `_INLINE_DEPTH` is
flattened, and a paragraph whose brackets nest deeper than `_BRACKET_DEPTH` has no links, because
the time to look for them grows with the depth. None of this loses text. Where Markdown itself would
lose text, it is kept: surplus cells of a row stay in its last cell, and a definition that nothing
refers to is shown, because in a piece of a longer answer the reference may stand in another piece.
"""

import re
from collections.abc import Iterator, MutableMapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.domain.markdown.reader import reader, reader_without_links
from perdure.domain.markdown.tree import (
    Align,
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

if TYPE_CHECKING:
    from markdown_it.token import Token

_INLINE_DEPTH: Final = 16
_BRACKET_DEPTH: Final = 4

_BRACKET: Final = re.compile(r"[\[\]]")
_BOX: Final = re.compile(r"\[([ xX])\](?:\s+|$)")
_NEWLINE: Final = re.compile(r"\r\n?|\n")
# The characters that can begin something other than text.
_MARK: Final = re.compile(r"[\\`*_~\[<&\n]")
_PIPE: Final = re.compile(r"(?<!\\)\|")

Env = MutableMapping[str, object]


class BlockKind(StrEnum):
    """Names the kinds of blocks that have a place in the source."""

    PARAGRAPH = "paragraph"
    HEADING = "heading"
    FENCE = "fence"
    INDENTED = "indented"
    QUOTE = "quote"
    LIST = "list"
    ITEM = "item"
    TABLE = "table"
    RULE = "rule"
    HTML = "html"
    DEFINITION = "definition"


_KINDS: Final = {
    "paragraph_open": BlockKind.PARAGRAPH,
    "heading_open": BlockKind.HEADING,
    "fence": BlockKind.FENCE,
    "code_block": BlockKind.INDENTED,
    "blockquote_open": BlockKind.QUOTE,
    "bullet_list_open": BlockKind.LIST,
    "ordered_list_open": BlockKind.LIST,
    "list_item_open": BlockKind.ITEM,
    "table_open": BlockKind.TABLE,
    "hr": BlockKind.RULE,
    "html_block": BlockKind.HTML,
    "definition": BlockKind.DEFINITION,
}


class Slice(msgspec.Struct, frozen=True):
    """Holds the place of a top-level block: the lines from `start` up to `end`, without `end`.
    `items` are the lines at which the items of a list begin.

    Blank lines after a list may count as its own.
    """

    kind: BlockKind
    start: int
    end: int
    items: tuple[int, ...] = ()


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the innermost block in which a text ends, which a stream would continue.

    `content` is the text of a paragraph, a heading or code, and `columns` the number of columns of
    a table. `is_open`: the end of a code fence is missing. `is_setext`: the heading is made by a
    line under it.
    """

    kind: BlockKind
    start: int
    end: int
    content: str = ""
    columns: int = 0
    is_open: bool = False
    is_setext: bool = False


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as the parser numbers them."""
    return _NEWLINE.split(text)


def cells_of(row: str) -> list[str]:
    """Return the cells of a table's line, which may begin with the marks of quotes."""
    cells = [cell.strip() for cell in _PIPE.split(row.strip(" \t>").removeprefix("|"))]
    return cells if cells[-1] else cells[:-1]


def parse(text: str) -> tuple[Block, ...]:
    """Parse a text into its tree."""
    env: Env = {}
    tokens = _block_tokens(text, env)
    used = _read_lines(tokens, env)
    return _blocks(iter(tokens), "", _Source(lines_of(text), used))


def blocks_of(text: str) -> tuple[Slice, ...]:
    """Return the top-level blocks of a text, without reading the text inside them."""
    tokens = _block_tokens(text, {})
    slices = []
    for index, token in enumerate(tokens):
        if token.level or token.map is None or token.type not in _KINDS:
            continue
        kind, (start, end) = _KINDS[token.type], token.map
        items = _items(tokens, index) if kind is BlockKind.LIST else ()
        slices.append(Slice(kind, start, end, items))
    return tuple(slices)


def tail_of(text: str) -> Tail | None:
    """Return the block in which a text ends, or None if it has no block."""
    # Without its newline, the last line would not count among the lines of a fence.
    tokens = _block_tokens(text + "\n", {})
    index = len(tokens) - 1
    while index >= 0 and (tokens[index].nesting < 0 or tokens[index].type not in _LEAVES):
        index -= 1
    return _tail(tokens, index) if index >= 0 else None


# The tokens in which a text can end. An item or a quote is one of them as long as it is empty.
_LEAVES: Final = frozenset(
    {
        "inline",
        "fence",
        "code_block",
        "html_block",
        "hr",
        "definition",
        "list_item_open",
        "blockquote_open",
    }
)


def _tail(tokens: "Sequence[Token]", index: int) -> Tail:
    token = tokens[index]
    if token.type == "inline":
        token = tokens[index - 1]
        if token.type in ("td_open", "th_open"):
            return _table_tail(tokens, index)
    start, end = token.map or (0, 0)
    kind = _KINDS[token.type]
    # A fence that is closed takes two lines more than its code.
    lines = token.content.count("\n")
    return Tail(
        kind=kind,
        start=start,
        end=end,
        content=tokens[index].content,
        is_open=kind is BlockKind.FENCE and end - start < lines + 2,
        is_setext=kind is BlockKind.HEADING and token.markup in ("-", "="),
    )


def _table_tail(tokens: "Sequence[Token]", index: int) -> Tail:
    while tokens[index].type != "table_open":
        index -= 1
    start, end = tokens[index].map or (0, 0)
    # Only the cells of the header are `th`, so they count the columns.
    cells = [t for t in tokens[index:] if t.type == "th_open"]
    return Tail(kind=BlockKind.TABLE, start=start, end=end, columns=len(cells))


def _items(tokens: "Sequence[Token]", index: int) -> tuple[int, ...]:
    """Return the lines at which the items of a list begin."""
    starts = []
    while (token := tokens[index + 1]).level > 0:
        if token.level == 1 and token.type == "list_item_open" and token.map:
            starts.append(token.map[0])
        index += 1
    return tuple(starts)


def _block_tokens(text: str, env: Env) -> "list[Token]":
    return reader().parse(text, env)


def _read_lines(tokens: "Sequence[Token]", env: Env) -> frozenset[str]:
    """Read the text inside every block, and return the labels that links refer to."""
    used = set()
    for index, token in enumerate(tokens):
        if token.type != "inline":
            continue
        if index > 1 and tokens[index - 2].type == "list_item_open":
            _take_box(tokens[index - 2], token)
        token.children = _children(token, env)
        used |= {str(c.meta["label"]) for c in token.children if "label" in c.meta}
    return frozenset(used)


def _children(token: "Token", env: Env) -> "list[Token]":
    """Return the inline tokens of a block's text."""
    children: list[Token] = []
    if _MARK.search(token.content) is None:
        # Text without a single mark, as in most cells of a table, need not be parsed.
        return [token.copy(type="text", children=None)] if token.content else children
    parser = reader_without_links() if _nests_absurdly(token.content) else reader()
    parser.inline.parse(token.content, parser, env, children)
    return children


def _take_box(item: "Token", inline: "Token") -> None:
    """Move the box of a task from an item's text to the item itself."""
    if found := _BOX.match(inline.content):
        item.meta["is_done"] = found[1] != " "
        inline.content = inline.content[found.end() :]


def _nests_absurdly(content: str) -> bool:
    """Tell whether brackets nest too deep to look for links."""
    depth = 0
    for bracket in _BRACKET.findall(content):
        depth = depth + 1 if bracket == "[" else max(depth - 1, 0)
        if depth > _BRACKET_DEPTH:
            return True
    return False


class _Source(msgspec.Struct, frozen=True):
    """Holds the lines of the source, and the labels that links refer to."""

    lines: list[str]
    used: frozenset[str]


def _blocks(tokens: "Iterator[Token]", end: str, source: _Source) -> tuple[Block, ...]:
    """Build the blocks up to the token of type `end`."""
    blocks: list[Block] = []
    for token in tokens:
        if token.type == end:
            break
        block = _block(token, tokens, source)
        if block is not None:
            blocks.append(block)
    return tuple(blocks)


def _block(token: "Token", tokens: "Iterator[Token]", source: _Source) -> Block | None:
    match _KINDS.get(token.type):
        case BlockKind.PARAGRAPH:
            return Paragraph(_inlines(next(tokens)))
        case BlockKind.HEADING:
            return Heading(int(token.tag[1:]), _inlines(next(tokens)))
        case BlockKind.FENCE | BlockKind.INDENTED:
            return Code(token.info.strip(), token.content.removesuffix("\n"))
        case BlockKind.RULE:
            return HorizontalRule()
        case BlockKind.HTML:
            return RawHtml(token.content.rstrip("\n"))
        case BlockKind.DEFINITION:
            return _definition(token, source)
        case _:
            return _container(token, tokens, source)


def _container(token: "Token", tokens: "Iterator[Token]", source: _Source) -> Block | None:
    match token.type:
        case "blockquote_open":
            return Quote(_blocks(tokens, "blockquote_close", source))
        case "bullet_list_open":
            items = _list_items(tokens, "bullet_list_close", source)
            return List(is_ordered=False, start=1, items=items)
        case "ordered_list_open":
            start = int(token.attrs.get("start", 1))
            items = _list_items(tokens, "ordered_list_close", source)
            return List(is_ordered=True, start=start, items=items)
        case "table_open":
            return _table(tokens, source)
        case _:
            # This token ends a paragraph or a heading, which is built already.
            return None


def _list_items(tokens: "Iterator[Token]", end: str, source: _Source) -> tuple[ListItem, ...]:
    items = []
    for token in tokens:
        if token.type == end:
            break
        is_done = bool(token.meta["is_done"]) if "is_done" in token.meta else None
        items.append(ListItem(_blocks(tokens, "list_item_close", source), is_done))
    return tuple(items)


def _table(tokens: "Iterator[Token]", source: _Source) -> Table:
    aligns: list[Align] = []
    rows: list[list[Cell]] = []
    line = 0
    for token in tokens:
        match token.type:
            case "table_close":
                break
            case "tr_open":
                line = token.map[0] if token.map else 0
                rows.append([])
            case "th_open":
                aligns.append(Align(str(token.attrs.get("style", "")).removeprefix("text-align:")))
            case "inline":
                rows[-1].append(_inlines(token))
                if len(rows) > 1 and len(rows[-1]) == len(aligns):
                    rows[-1][-1] += _surplus(source.lines[line], len(aligns))
            case _:
                continue
    header, *body = [tuple(row) for row in rows]
    return Table(header, tuple(body), tuple(aligns))


def _surplus(line: str, columns: int) -> tuple[Text, ...]:
    """Return as text the cells that a row has beyond the columns of the header."""
    more = cells_of(line)[columns:] if line.count("|") >= columns else []
    return (Text(" | " + " | ".join(more)),) if more else ()


def _definition(token: "Token", source: _Source) -> Paragraph | None:
    """Return a definition as a paragraph, or None if a link refers to it and shows its target."""
    if token.meta["id"] in source.used:
        return None
    url = str(token.meta["url"])
    label = Text(f"[{token.meta['label']}]: ")
    return Paragraph((label, Link(url, str(token.meta["title"]), (Text(url),))))


class _Span(msgspec.Struct):
    """Holds an inline that is not closed yet. Without an `opening`, the content goes to the
    children of its parent: the inline is too deep, or a link inside another."""

    children: list[Inline]
    opening: "Token | None" = None
    is_linked: bool = False


def _inlines(token: "Token") -> tuple[Inline, ...]:
    stack = [_Span([])]
    for child in token.children or ():
        if child.nesting > 0:
            stack.append(_opened(child, stack[-1], depth=len(stack)))
        elif child.nesting < 0:
            span = stack.pop()
            if span.opening is not None:
                stack[-1].children.append(_spanning(span.opening, _joined(span.children)))
        else:
            leaf = _leaf(child)
            if stack[-1].is_linked and isinstance(leaf, Image):
                leaf = Text(leaf.alt or leaf.target)
            stack[-1].children.append(leaf)
    return _joined(stack[0].children)


def _opened(token: "Token", parent: _Span, *, depth: int) -> _Span:
    is_link = token.type == "link_open"
    if depth > _INLINE_DEPTH or (is_link and parent.is_linked):
        return _Span(parent.children, is_linked=parent.is_linked)
    return _Span([], token, is_link or parent.is_linked)


def _joined(inlines: list[Inline]) -> tuple[Inline, ...]:
    """Return the inlines with each run of texts as one text, and without empty texts."""
    joined: list[Inline] = []
    for is_text, run in groupby(inlines, key=lambda each: isinstance(each, Text)):
        if not is_text:
            joined += run
        elif text := "".join(each.text for each in run if isinstance(each, Text)):
            joined.append(Text(text))
    return tuple(joined)


def _spanning(opening: "Token", children: tuple[Inline, ...]) -> Inline:
    match opening.type:
        case "em_open":
            return Emphasis(children)
        case "strong_open":
            return Strong(children)
        case "s_open":
            return Struck(children)
        case _:
            target, title = opening.attrs.get("href", ""), opening.attrs.get("title", "")
            return Link(str(target), str(title), children)


def _leaf(token: "Token") -> Inline:
    match token.type:
        case "code_inline":
            return InlineCode(token.content)
        case "softbreak" | "hardbreak":
            return Break(token.type == "hardbreak")
        case "image":
            alt = "".join(each.content for each in token.children or ())
            return Image(str(token.attrs.get("src", "")), alt)
        case _:
            return Text(token.content)
