"""Decides what may be shown of an answer that is still being written.

The first half of a Markdown construct is often a different construct: two stars are text until the
closing two come, and a row of dashes makes a heading of the line above before it makes a table. So
an end of the text whose meaning is uncertain is held back, and open marks are closed. `heal`
shortens the text until nothing more must be held back, and only then closes marks. Closing adds
nothing that would be held back, so healing a healed text changes nothing.

A finished text is returned unchanged, except for space at its end. Two endings of finished texts
are treated as half-written, because nobody can tell them apart: an open mark in the last paragraph,
and a last line that begins with a pipe.
"""

import re
from itertools import takewhile
from typing import Final

from perdure.domain.markdown.marks import closing_of, marks_of
from perdure.domain.markdown.parse import BlockKind, Tail, cells_of, lines_of, tail_of

# Bounds the work on hostile text. Each step holds back all that it can see, so other texts take
# fewer steps.
_STEPS_MAX: Final = 8

_BULLET: Final = r"(?:[-+*]|\d{1,9}[.)])"
# Matches a line with nothing but the marks of quotes, items and headings.
_BARE: Final = re.compile(rf"(?:[ \t>]*+(?:{_BULLET}|\#{{1,6}})(?![^\s>]))*+[ \t>]*+")
# Matches an item mark in a paragraph, where only a bullet or the number 1 can begin a list. Without
# text after it, the parser takes the mark for a part of the paragraph.
_BARE_IN_PARAGRAPH: Final = re.compile(r"[ \t>]*+(?:[-+*]|1[.)])[ \t]*+")
# Matches the box of a task that has no text yet, and a line that ends with one.
_BARE_BOX: Final = re.compile(r"\[[ xX]?\]?")
_ITEM_WITH_BOX: Final = re.compile(rf"[ \t>]*+(?:{_BULLET}[ \t]+)+\[[ xX]?\]?")
# Matches what may become the line below the header of a table.
_DELIMITER: Final = re.compile(r"[-:|][-:| \t]*")
_OPENING_FENCE: Final = re.compile(r"(.*?)(`{3,}|~{3,})")
_NOT_CONTAINER: Final = re.compile(r"[^>\s]")
# Matches marks at the end that can only open something.
_DANGLING: Final = re.compile(r"(?:^|(?<=[\s(\[{\u201c\u2018\u00ab]))(?:\*{2,3}|_{2,3}|~~)$")


def heal(text: str) -> str:
    """Return a half-written text as it may be shown: without an uncertain end, and with its marks
    closed."""
    text = text.rstrip()
    for _ in range(_STEPS_MAX):
        tail = tail_of(text)
        if tail is None:
            return text
        shorter = _held_back(text, tail).rstrip()
        if shorter == text:
            return _closed(text, tail)
        text = shorter
    return text


def _held_back(text: str, tail: Tail) -> str:
    """Return the text without the end that cannot be shown yet, or all of it if nothing is
    uncertain."""
    lines = lines_of(text)
    keep = _lines_to_keep(lines, tail)
    if keep < len(lines):
        return "\n".join(lines[:keep])
    is_prose = tail.kind in (BlockKind.PARAGRAPH, BlockKind.HEADING) and not tail.is_setext
    # If the text continues after its last paragraph (some headings end with marks), that paragraph
    # is finished.
    if is_prose and text.endswith(tail.content.rpartition("\n")[2]):
        return _without_half_marks(text, tail.content)
    return text


def _lines_to_keep(lines: list[str], tail: Tail) -> int:
    """Return how many lines may be shown. Lines of bare marks above a bare last line go with it."""
    is_prose = tail.kind in (BlockKind.PARAGRAPH, BlockKind.HEADING)
    if is_prose and (rows := _possible_table(tail, lines[-1])):
        return len(lines) - rows
    if _is_bare(lines[-1], tail, is_beyond=tail.end < len(lines)):
        bare = takewhile(_BARE.fullmatch, reversed(lines[:-1]))
        return len(lines) - 1 - sum(1 for _ in bare)
    match tail.kind:
        case BlockKind.FENCE if tail.is_open:
            return _code_to_keep(lines, tail)
        case BlockKind.TABLE:
            return _rows_to_keep(lines, tail)
        case _:
            return len(lines)


def _is_bare(line: str, tail: Tail, *, is_beyond: bool) -> bool:
    """Tell whether the last line is only the mark of an item, a quote or a heading whose text has
    not come yet. `is_beyond` says that the line stands after the last block."""
    if tail.kind is BlockKind.PARAGRAPH and not is_beyond:
        if _BARE_BOX.fullmatch(tail.content):
            return _ITEM_WITH_BOX.fullmatch(line) is not None
        return "\n" in tail.content and _BARE_IN_PARAGRAPH.fullmatch(line) is not None
    if tail.is_setext:
        # The parser takes one or two dashes under a paragraph for the line of a heading, but more
        # likely an item begins here.
        return len(line.strip(" \t>")) < 3
    is_empty = (
        tail.kind in (BlockKind.ITEM, BlockKind.QUOTE, BlockKind.HEADING) and not tail.content
    )
    return (is_beyond or is_empty) and _BARE.fullmatch(line) is not None


def _code_to_keep(lines: list[str], tail: Tail) -> int:
    """Return how many lines to keep if the text ends in an open code block. A block without code is
    left out, and so is a last line that may become the closing fence."""
    if not tail.content.strip():
        return tail.start
    last = lines[-1].strip(" \t>")
    _, mark = _fence(lines[tail.start])
    is_half_end = last == mark[0] * len(last) and len(last) < len(mark)
    return len(lines) - is_half_end


def _rows_to_keep(lines: list[str], tail: Tail) -> int:
    """Return how many lines to keep if the text ends in a table. A row is complete when it has all
    its cells and, if the header ends with a pipe, a pipe at its end. If even the line below the
    header is incomplete, the whole table is left out."""
    is_framed = _ends_with_pipe(lines[tail.start])
    keep = len(lines)
    while keep > tail.start + 1:
        row = lines[keep - 1]
        if len(cells_of(row)) >= tail.columns and (_ends_with_pipe(row) or not is_framed):
            return keep
        keep -= 1
    return tail.start


def _ends_with_pipe(line: str) -> bool:
    line = line.rstrip()
    return line.endswith("|") and not line.endswith("\\|")


def _possible_table(tail: Tail, last: str) -> int:
    """Return how many lines at the end of a paragraph may become the head of a table."""
    content = tail.content.split("\n")
    if tail.is_setext:
        return 2 if "|" in content[-1] and last.strip(" \t>")[0] == "-" else 0
    rows = sum(1 for _ in takewhile(lambda line: line.lstrip().startswith("|"), reversed(content)))
    if rows or len(content) < 2:
        return rows
    return 2 if "|" in content[-2] and _DELIMITER.fullmatch(content[-1].strip()) else 0


def _without_half_marks(text: str, content: str) -> str:
    """Return the text without a mark that has only begun at its end. Of a half-written link, only
    the label is kept."""
    if dangling := _DANGLING.search(content):
        return text[: len(text) - len(dangling[0])]
    marks = marks_of(content)
    half = marks.half_link
    if half and text.endswith(content[half.start :]):
        start = len(text) - len(content) + half.start
        return text[:start] + content[half.label : half.end]
    if not marks.waiting:
        return text
    # Code that was opened at the very end has no text yet.
    run = len(content) - len(content.rstrip("`"))
    if run and "`" * run == marks.waiting[-1]:
        return text[: len(text) - run]
    escape = len(content) - len(content.rstrip("\\"))
    # A lone backslash would escape the mark that is added after it. In code it is only a character.
    if escape % 2 and marks.waiting[-1][0] != "`":
        return text[:-1]
    return text


def _closed(text: str, tail: Tail) -> str:
    """Return the text with an end for its open code block, or else for the open marks of its last
    paragraph."""
    if tail.is_open:
        lead, mark = _fence(lines_of(text)[tail.start])
        # The end stands at the indent of the opening fence, with an item's mark replaced by spaces.
        # Elsewhere it would begin another block.
        return f"{text}\n{_NOT_CONTAINER.sub(' ', lead)}{mark}"
    is_prose = tail.kind in (BlockKind.PARAGRAPH, BlockKind.HEADING) and not tail.is_setext
    if is_prose and text.endswith(tail.content.rpartition("\n")[2]):
        return text + closing_of(tail.content)
    return text


def _fence(line: str) -> tuple[str, str]:
    """Return what stands before a fence on its opening line, and the fence itself."""
    found = _OPENING_FENCE.match(line)
    assert found, "the parser found a fence on this line"
    return found[1], found[2]
