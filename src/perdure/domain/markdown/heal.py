"""What may be shown of an answer that is still being written.

Half of Markdown is other Markdown: two stars are text until the next two come, a row of dashes
makes a heading of the line above before it makes a table. So what cannot be told yet is held back,
and what is open is closed. First the end of the text is held back until nothing more need be, then
marks are closed; closing leaves nothing to hold back, so healing twice is healing once.

A finished text is left as it is, but for space at its end. It looks half-written only where nobody
could tell: an open mark in its last paragraph, a last line that begins with a pipe.
"""

import re
from itertools import takewhile
from typing import Final

from perdure.domain.markdown.marks import closing_of, marks_of
from perdure.domain.markdown.parse import BlockKind, Tail, cells_of, lines_of, tail_of

# Each step holds back all it can see. More steps than this are needed by no text but a hostile one.
_STEPS_MAX: Final = 8

_BULLET: Final = r"(?:[-+*]|\d{1,9}[.)])"
_BARE: Final = re.compile(rf"(?:[ \t>]*+(?:{_BULLET}|\#{{1,6}})(?![^\s>]))*+[ \t>]*+")
_BARE_IN_PARAGRAPH: Final = re.compile(r"[ \t>]*+(?:[-+*]|1[.)])[ \t]*+")
_BARE_BOX: Final = re.compile(r"\[[ xX]?\]?")
_ITEM_WITH_BOX: Final = re.compile(rf"[ \t>]*+(?:{_BULLET}[ \t]+)+\[[ xX]?\]?")
_DELIMITER: Final = re.compile(r"[-:|][-:| \t]*")
_OPENING_FENCE: Final = re.compile(r"(.*?)(`{3,}|~{3,})")
_NOT_CONTAINER: Final = re.compile(r"[^>\s]")
_DANGLING: Final = re.compile(r"(?:^|(?<=[\s(\[{\u201c\u2018\u00ab]))(?:\*{2,3}|_{2,3}|~~)$")


def heal(text: str) -> str:
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
    """The text without what cannot be shown yet; the text itself if all can be."""
    lines = lines_of(text)
    keep = _lines_to_keep(lines, tail)
    if keep < len(lines):
        return "\n".join(lines[:keep])
    is_prose = tail.kind in (BlockKind.PARAGRAPH, BlockKind.HEADING) and not tail.is_setext
    # Where the text goes on after its last paragraph (the marks at the end of some headings),
    # that paragraph is finished.
    if is_prose and text.endswith(tail.content.rpartition("\n")[2]):
        return _without_half_marks(text, tail.content)
    return text


def _lines_to_keep(lines: list[str], tail: Tail) -> int:
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
    """Whether the last line is only the mark of an item, a quote or a heading to come."""
    if tail.kind is BlockKind.PARAGRAPH and not is_beyond:
        if _BARE_BOX.fullmatch(tail.content):
            return _ITEM_WITH_BOX.fullmatch(line) is not None
        return "\n" in tail.content and _BARE_IN_PARAGRAPH.fullmatch(line) is not None
    if tail.is_setext:
        # One or two dashes under a paragraph are an item to come rather than a heading's line.
        return len(line.strip(" \t>")) < 3
    is_empty = (
        tail.kind in (BlockKind.ITEM, BlockKind.QUOTE, BlockKind.HEADING) and not tail.content
    )
    return (is_beyond or is_empty) and _BARE.fullmatch(line) is not None


def _code_to_keep(lines: list[str], tail: Tail) -> int:
    if not tail.content.strip():
        return tail.start
    last = lines[-1].strip(" \t>")
    _, mark = _fence(lines[tail.start])
    is_half_end = last == mark[0] * len(last) and len(last) < len(mark)
    return len(lines) - is_half_end


def _rows_to_keep(lines: list[str], tail: Tail) -> int:
    """A row is complete when it has all its cells and, if the header has one, its last pipe."""
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
    """How many lines at the end of a paragraph may turn out to be the head of a table."""
    content = tail.content.split("\n")
    if tail.is_setext:
        return 2 if "|" in content[-1] and last.strip(" \t>")[0] == "-" else 0
    rows = sum(1 for _ in takewhile(lambda line: line.lstrip().startswith("|"), reversed(content)))
    if rows or len(content) < 2:
        return rows
    return 2 if "|" in content[-2] and _DELIMITER.fullmatch(content[-1].strip()) else 0


def _without_half_marks(text: str, content: str) -> str:
    if dangling := _DANGLING.search(content):
        return text[: len(text) - len(dangling[0])]
    marks = marks_of(content)
    half = marks.half_link
    if half and text.endswith(content[half.start :]):
        start = len(text) - len(content) + half.start
        return text[:start] + content[half.label : half.end]
    if not marks.waiting:
        return text
    run = len(content) - len(content.rstrip("`"))
    if run and "`" * run == marks.waiting[-1]:
        return text[: len(text) - run]
    escape = len(content) - len(content.rstrip("\\"))
    # The end of a mark behind an unfinished escape would be escaped.
    if escape % 2 and marks.waiting[-1][0] != "`":
        return text[:-1]
    return text


def _closed(text: str, tail: Tail) -> str:
    if tail.is_open:
        lead, mark = _fence(lines_of(text)[tail.start])
        # Without the indent of its item, the end would be the beginning of another block.
        return f"{text}\n{_NOT_CONTAINER.sub(' ', lead)}{mark}"
    is_prose = tail.kind in (BlockKind.PARAGRAPH, BlockKind.HEADING) and not tail.is_setext
    if is_prose and text.endswith(tail.content.rpartition("\n")[2]):
        return text + closing_of(tail.content)
    return text


def _fence(line: str) -> tuple[str, str]:
    """What stands before a fence, and the fence."""
    found = _OPENING_FENCE.match(line)
    assert found, "the parser found a fence on this line"
    return found[1], found[2]
