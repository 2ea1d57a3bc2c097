"""The parser, and the bounds that it does not have itself.

Containers deeper than `_DEPTH` are one paragraph, and a table ends where the cells that its rows
have left out are too many. Neither loses text.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock

_DEPTH: Final = 40
_MISSING_CELLS_MAX: Final = 1_000


@cache
def reader() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 - a tenth of a second, so when needed

    options = {"maxNesting": _DEPTH, "inline_definitions": True, "store_labels": True}
    parser = MarkdownIt("commonmark", options)
    parser.enable(["table", "strikethrough"])
    parser.disable(["inline", "text_join"])
    parser.block.ruler.before("table", "too_deep", _too_deep, {"alt": []})
    parser.block.ruler.at("table", _bounded_table, {"alt": ["paragraph", "reference"]})
    return parser


@cache
def reader_without_links() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415

    parser = MarkdownIt("commonmark", {"maxNesting": _DEPTH})
    return parser.enable("strikethrough").disable(["link", "image"])


def _too_deep(state: "StateBlock", start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - the parser calls it so
    """Take what is too deep as a paragraph; the parser itself would drop it at `maxNesting`."""
    # A list takes two levels at once.
    if silent or state.level < _DEPTH - 2:
        return False
    line = start
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    content = state.getLines(start, line, state.blkIndent, keepLastLF=False).strip()
    state.line = line
    state.push("paragraph_open", "p", 1).map = [start, line]
    inline = state.push("inline", "", 0)
    inline.content, inline.map, inline.children = content, [start, line], []
    state.push("paragraph_close", "p", -1)
    return True


def _bounded_table(state: "StateBlock", start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Read a table, and end it where its rows have left out too many cells: the parser adds those,
    and a few bytes would become a large table. What follows is the text that it is."""
    from markdown_it.rules_block.table import table  # noqa: PLC0415 - loaded with the parser

    is_table = table(state, start, end, silent=True)
    if silent or not is_table:
        return is_table
    columns = _cell_count(state, start)
    line, missing = start + 2, 0
    while line < end and missing <= _MISSING_CELLS_MAX and not state.isEmpty(line):
        missing += max(columns - _cell_count(state, line), 0)
        line += 1
    return table(state, start, end if missing <= _MISSING_CELLS_MAX else line - 1, silent=False)


def _cell_count(state: "StateBlock", line: int) -> int:
    """About how many cells a line of a table has."""
    begin, end = state.bMarks[line], state.eMarks[line]
    return max(state.src.count("|", begin, end) - 1, 1)
