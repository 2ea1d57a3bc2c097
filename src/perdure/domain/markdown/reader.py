"""Creates the Markdown parser, and adds bounds that it does not have itself.

Quotes and lists deeper than `_DEPTH` become one paragraph, and a table ends where its rows have
left out too many cells. Neither loses text.
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
    """Return the parser. It reads only blocks and definitions; `parse.py` has it read the text
    inside the blocks later."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - loading takes a tenth of a second

    options = {"maxNesting": _DEPTH, "inline_definitions": True, "store_labels": True}
    parser = MarkdownIt("commonmark", options)
    parser.enable(["table", "strikethrough"])
    parser.disable(["inline", "text_join"])
    parser.block.ruler.before("table", "too_deep", _too_deep, {"alt": []})
    parser.block.ruler.at("table", _bounded_table, {"alt": ["paragraph", "reference"]})
    return parser


@cache
def reader_without_links() -> "MarkdownIt":
    """Return a parser that finds neither links nor images, for text with deeply nested brackets."""
    from markdown_it import MarkdownIt  # noqa: PLC0415

    parser = MarkdownIt("commonmark", {"maxNesting": _DEPTH})
    return parser.enable("strikethrough").disable(["link", "image"])


def _too_deep(state: "StateBlock", start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - the parser demands it
    """Take the text of containers that are too deep as a paragraph. The parser itself would drop
    that text at `maxNesting`."""
    # A list and its item take two levels at once.
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
    """Read a table, and end it where its rows have left out too many cells. The parser adds the
    missing cells, so a few bytes could become a large table. The lines after that end are read as
    ordinary text."""
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
    """Estimate how many cells a line of a table has."""
    begin, end = state.bMarks[line], state.eMarks[line]
    return max(state.src.count("|", begin, end) - 1, 1)
