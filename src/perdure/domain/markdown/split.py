"""Splits one long answer into pieces of Markdown source that a platform accepts.

The caller measures a piece in the platform's own form and unit. Escaping may make that form many
times longer than the source, so characters are counted here only to guess where to look first.
Pieces are cut between blocks. A block that is itself too long is cut where it hurts least: code
between lines, a table between rows, a list between items, prose between sentences and then words.
Each piece of a block gets the block's frame: a fence with its info string, the head of a table, the
`>` of a quote.

A block inside a quote or an item is cut like one at the top, but measured with its frame. If the
frame leaves no room for even one character, the frame is given up and its source is cut as prose.
If that does not fit either, `split` raises `ValueError`.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from perdure.domain.markdown.parse import BlockKind, Slice, blocks_of, lines_of
from perdure.domain.markdown.prose import NoRoom, Space, cut_anywhere, cut_prose, furthest

# Blocks that are nested deeper than this are cut as prose.
_DEPTH_MAX: Final = 12
# A block or item that must be cut begins in the same piece as the text before it if that text takes
# at most an eighth of the limit, and otherwise in a new piece.
_SHORT: Final = 8
# How many sizes are kept, because the same text is measured again.
_KEPT: Final = 16

_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,})")
_FENCE_END: Final = re.compile(r" {0,3}(?:`{3,}|~{3,})[ \t]*")
_QUOTE_MARK: Final = re.compile(r"^ {0,3}> ?", re.MULTILINE)
_ITEM_MARK: Final = re.compile(r" {0,3}([-+*]|\d{1,9}[.)])( {1,4}(?! )|[ \t]|$)", re.MULTILINE)
_RUNS: Final = {"`": re.compile("`+"), "~": re.compile("~+")}
_NEWLINE: Final = re.compile(r"\n")
_LATER_LINE: Final = re.compile(r"(?<=\n)(?=[^\n]*\S)")


def split(text: str, *, size: Callable[[str], int], limit: int) -> tuple[str, ...]:
    """Split a text into pieces of source, in order, each at most `limit` long by the caller's
    `size`. Raises `ValueError` if not even one character fits."""
    if not text.strip():
        return ()
    measured = _measuring(size, limit)
    if measured(text) <= limit:
        return (text,)
    space = Space(lambda piece, _: measured(piece), limit)
    try:
        return tuple(_split_blocks("\n".join(lines_of(text)), space, 0))
    except NoRoom:
        raise ValueError(
            f"A limit of {limit} has no room for one character of this text; raise the limit."
        ) from None


def _measuring(size: Callable[[str], int], limit: int) -> Callable[[str], int]:
    """Return a `size` that costs less, because measuring may mean rendering. It keeps the last few
    sizes. If the first lines of a long text do not fit already, it estimates the whole from them: a
    platform's form of a table may be many times as long as the table."""
    kept = lru_cache(maxsize=_KEPT)(size)

    def measured(text: str) -> int:
        end = text.rfind("\n", 0, limit) if len(text) > 2 * limit else -1
        if end > 0 and (begun := kept(text[:end])) > limit:
            return begun * len(text) // end
        return kept(text)

    return measured


def stretches(text: str, *, least: int) -> tuple[str, ...]:
    """Cut a text between blocks into stretches of at least `least` characters; only the last may be
    shorter. When more text is added at the end, all stretches except the last stay the same,
    because a block is only ended by a line that is itself complete."""
    source = "\n".join(lines_of(text))
    complete = source[: source.rfind("\n") + 1]
    lines = _line_starts(source)
    cuts = [0]
    for block in blocks_of(complete)[1:]:
        if lines[block.start] - cuts[-1] >= least:
            cuts.append(lines[block.start])
    return tuple(_parts(source, cuts).text(at, at + 1) for at in range(len(cuts)))


def _split_blocks(source: str, space: Space, depth: int) -> list[str]:
    """Split the source of some blocks, which may stand inside a quote or an item."""
    blocks = blocks_of(source)
    lines = _line_starts(source)
    parts = _parts(source, [lines[block.start] for block in blocks])

    def cut(index: int, space: Space) -> list[str]:
        return _cut_block(parts.text(index, index + 1), blocks[index], space, depth)

    headings = frozenset(i for i, block in enumerate(blocks) if block.kind is BlockKind.HEADING)
    return _pack(parts, space, cut, headings)


def _cut_block(text: str, block: Slice, space: Space, depth: int) -> list[str]:
    """Cut a block in the way of its kind, or as prose if the frame leaves no room."""
    try:
        match block.kind:
            case _ if depth > _DEPTH_MAX:
                return cut_prose(text, space)
            case BlockKind.FENCE:
                return _cut_fence(text, space)
            case BlockKind.INDENTED:
                return _cut_lines(text, space)
            case BlockKind.TABLE:
                return _cut_table(text, space)
            case BlockKind.QUOTE:
                return _cut_quote(text, space, depth)
            case BlockKind.LIST:
                return _cut_list(text, [item - block.start for item in block.items], space, depth)
            case _:
                return cut_prose(text, space)
    except NoRoom:
        return cut_prose(text, space)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Holds a source in parts, each with the blank lines after it."""

    source: str
    starts: Sequence[int]
    ends: Sequence[int]

    def text(self, first: int, behind: int) -> str:
        """Return the parts from `first` up to `behind`, without `behind`, as one text."""
        if first == behind:
            return ""
        return self.source[self.starts[first] : self.ends[behind - 1]].strip("\n").rstrip()


def _parts(source: str, starts: Sequence[int]) -> _Parts:
    return _Parts(source, starts, [*starts[1:], len(source)])


def _pack(
    parts: _Parts,
    space: Space,
    cut: Callable[[int, Space], list[str]],
    headings: frozenset[int] = frozenset(),
) -> list[str]:
    """Put parts together into pieces, and cut a part that fits into none.

    If the text before a part that must be cut is short, the part begins in the same piece. The last
    piece of a part that was cut is filled up with the parts after it. A heading does not end a
    piece, unless the piece holds nothing else.
    """
    pieces: list[str] = []
    held, at = "", 0
    while at < len(parts.starts):
        here = space.after(len(pieces))
        behind = _fitting(parts, at, held, here)
        fitting = _under(held, parts.text(at, behind))
        if behind == len(parts.starts):
            return [*pieces, fitting]
        if not fitting or (
            here.size(fitting, 0) <= here.limit // _SHORT
            and not here.after(1).fits(parts.text(behind, behind + 1))
        ):
            *cut_off, held = _cut_under(fitting, behind, cut, here) or [""]
            pieces += cut_off
            at = behind + 1
            continue
        keep = _without_headings(at, behind, headings, is_bare=not held)
        kept = _under(held, parts.text(at, keep))
        # A size need not grow with the text, so the shorter piece is measured as well.
        is_kept = keep == behind or here.fits(kept)
        pieces.append(kept if is_kept else fitting)
        held, at = "", keep if is_kept else behind
    return [*pieces, held] if held else pieces


def _without_headings(at: int, behind: int, headings: frozenset[int], *, is_bare: bool) -> int:
    """Return the end of a piece without the headings at its end. If the piece would then be empty
    (`is_bare`: nothing is above its parts), they stay."""
    keep = behind
    while keep > at and keep - 1 in headings:
        keep -= 1
    return behind if keep == at and is_bare else keep


def _fitting(parts: _Parts, at: int, held: str, space: Space) -> int:
    """Return the index after the last part that fits into a piece below the text `held`."""
    start = parts.starts[at]

    def size(end: int) -> int:
        return space.size(_under(held, parts.source[start:end].strip("\n").rstrip()), 0)

    return furthest(parts.ends, at, start=start - len(held), size=size, limit=space.limit)


def _cut_under(
    lead: str, index: int, cut: Callable[[int, Space], list[str]], space: Space
) -> list[str]:
    """Cut a part into pieces, the first of them below the text `lead` if there is room."""
    if not lead:
        return cut(index, space)

    def frame(piece: str, number: int) -> str:
        return piece if number else _under(lead, piece)

    try:
        return _framed(cut(index, space.within(frame)), frame) or [lead]
    except NoRoom:
        return [lead, *cut(index, space.after(1))]


def _under(above: str, below: str) -> str:
    """Join two texts by a blank line, unless one of them is empty."""
    return f"{above}\n\n{below}" if above and below else above or below


def _framed(pieces: Sequence[str], frame: Callable[[str, int], str]) -> list[str]:
    """Return pieces, each inside its frame."""
    return [frame(piece, number) for number, piece in enumerate(pieces)]


def _cut_fence(text: str, space: Space) -> list[str]:
    """Cut code between lines, and put the fence around each piece."""
    opening, *lines = text.split("\n")
    if lines and _FENCE_END.fullmatch(lines[-1]):
        lines.pop()
    body = "\n".join(lines)
    found = _FENCE.match(opening)
    assert found, "a fence begins with its mark"
    indent, mark = found.groups()
    if not body.strip():
        # There is no code to put into the frame: what is too long is the info string.
        raise NoRoom
    if mark in body:
        # If a line is cut, its rest could be taken for the end of the code. So the fence becomes
        # longer than every such run in the code.
        longest = max(map(len, _RUNS[mark[0]].findall(body)))
        mark = mark[0] * (longest + 1)
    opening = indent + mark + opening[found.end() :]

    def frame(piece: str, _: int) -> str:
        return f"{opening}\n{piece}\n{indent}{mark}"

    return _framed(_cut_lines(body, space.within(frame)), frame)


def _cut_lines(text: str, space: Space) -> list[str]:
    """Cut a text between lines, with as many lines in a piece as fit. Blank pieces are left out."""
    ends = [*_line_starts(text)[1:], len(text)]
    pieces: list[str] = []
    at = 0
    while at < len(text):
        here = space.after(len(pieces))
        first = bisect_right(ends, at)

        def size(end: int, at: int = at, here: Space = here) -> int:
            return here.size(text[at:end].strip("\n"), 0)

        behind = furthest(ends, first, start=at, size=size, limit=space.limit)
        end = ends[behind - 1] if behind > first else cut_anywhere(text, at, ends[first], here)
        if text[at:end].strip():
            pieces.append(text[at:end].strip("\n"))
        at = end
    return pieces


def _cut_table(text: str, space: Space) -> list[str]:
    """Cut a table between rows, and put the head above each piece."""
    head_end = _line_starts(text + "\n")[2]
    head, body = text[:head_end].rstrip(), text[head_end:]
    if not space.fits(head):
        raise NoRoom

    def frame(rows: str, _: int) -> str:
        return f"{head}\n{rows}"

    framed = space.within(frame)
    parts = _parts(body, _line_starts(body) if body else [])
    pieces: list[str] = []
    at = 0
    while at < len(parts.starts):
        behind = _fitting(parts, at, "", framed.after(len(pieces)))
        if behind > at:
            pieces.append(frame(parts.text(at, behind), 0))
        else:
            # A row that is too long even alone is cut as text, without the head. If it comes first,
            # the head is a piece of its own, so that it is not lost.
            pieces += [] if pieces else [head]
            pieces += cut_prose(parts.text(at, at + 1), space.after(len(pieces)))
        at = max(behind, at + 1)
    return pieces or [head]


def _cut_quote(text: str, space: Space, depth: int) -> list[str]:
    """Cut the blocks inside a quote, and put its mark before each line."""

    def frame(piece: str, _: int) -> str:
        return "\n".join(f"> {line}".rstrip() for line in piece.split("\n"))

    inner = _QUOTE_MARK.sub("", text)
    return _framed(_split_blocks(inner, space.within(frame), depth + 1), frame)


def _cut_list(text: str, items: Sequence[int], space: Space, depth: int) -> list[str]:
    """Cut a list between items. An item that is too long is cut inside."""
    lines = _line_starts(text)
    parts = _parts(text, [lines[item] for item in items])

    def cut(index: int, space: Space) -> list[str]:
        item = parts.text(index, index + 1)
        try:
            return _cut_item(item, space, depth)
        except NoRoom:
            return cut_prose(item, space)

    return _pack(parts, space, cut)


def _cut_item(text: str, space: Space, depth: int) -> list[str]:
    """Cut the blocks inside an item. The first piece has the item's mark; the others stand at the
    indent of the list."""
    found = _ITEM_MARK.match(text)
    assert found, "an item begins with its mark"
    mark, indent = f"{found[1]} ", " " * (len(found[1]) + 1)
    # If no text follows the mark, the item's content is one column further to the right.
    width = found.end() + (found[2] == "")
    first, *others = text[found.end() :].split("\n")
    inner = "\n".join([first, *(_dedented(line, width) for line in others)])

    def frame(piece: str, number: int) -> str:
        return piece if number else mark + _LATER_LINE.sub(indent, piece)

    pieces = _split_blocks(inner, space.within(frame), depth + 1)
    # An item without text is kept for its number.
    return _framed(pieces, frame) or cut_prose(text, space)


def _dedented(line: str, width: int) -> str:
    """Return a line without the first `width` columns of its indent."""
    bare = line.lstrip(" \t")
    indent = line[: len(line) - len(bare)].expandtabs(4)
    return indent[width:] + bare


def _line_starts(text: str) -> list[int]:
    """Return the positions at which the lines of a text begin."""
    return [0, *(found.end() for found in _NEWLINE.finditer(text))]
