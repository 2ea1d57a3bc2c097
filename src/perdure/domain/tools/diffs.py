"""Compares two texts line by line, in a time that grows with their length and not with its square.

Lines that occur exactly once in both texts are taken as the same line. The longest series of them
that has the same order in both divides the texts, and each part is compared again in the same way.
Where no such line is left, the part is shown as taken out and put in. So a difference may be longer
than the shortest possible one, but it is always correct.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, NamedTuple

import msgspec

from perdure.domain.text import BIDIRECTIONAL, INVISIBLE

_CONTEXT: Final = 3
_DEPTH_MAX: Final = 8
_NO_BREAK: Final = "\\ No newline at end of file"
_CONTROLS: Final = (code for code in (*range(32), *range(127, 160)) if chr(code) != "\t")
# Characters that would hide what a line holds from the person who reads it.
_SHOWN: Final = {code: f"<U+{code:04X}>" for code in (*_CONTROLS, *BIDIRECTIONAL, *INVISIBLE)}


class DiffBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits how much of a difference is shown."""

    lines: int = 200
    line_chars: int = 1_000
    chars: int = 16_000


USUAL_DIFF: Final = DiffBounds()


class _Span(NamedTuple):
    """Names lines `a` to `a_end` of the old text and lines `b` to `b_end` of the new one."""

    a: int
    a_end: int
    b: int
    b_end: int


def unified_diff(before: str | None, after: str, name: str, bounds: DiffBounds = USUAL_DIFF) -> str:
    """Return how a file changes, as a unified diff of bounded length. A file that does not exist
    yet is None; without a change the text is empty."""
    old, new = _lines(before or ""), _lines(after)
    changes = _changes(old, new)
    if not changes:
        return ""
    head = [f"--- {'/dev/null' if before is None else name}", f"+++ {name}"]
    body = (line for hunk in _hunks(changes) for line in _told(hunk, old, new))
    return "\n".join([*head, *_bounded(body, bounds)])


def _lines(text: str) -> list[str]:
    """Return the lines of a text, each with its line break."""
    pieces = text.split("\n")
    last = pieces.pop()
    return [f"{piece}\n" for piece in pieces] + ([last] if last else [])


def _bounded(lines: Iterator[str], bounds: DiffBounds) -> list[str]:
    """Return lines up to the bounds, and a note on how many more there are."""
    kept: list[str] = []
    chars = 0
    for line in islice(lines, bounds.lines):
        shown = _shown(line, bounds.line_chars)
        if chars + len(shown) > bounds.chars:
            return [*kept, _more(1 + sum(1 for _ in lines))]
        kept.append(shown)
        chars += len(shown)
    left = sum(1 for _ in lines)
    return [*kept, _more(left)] if left else kept


def _more(count: int) -> str:
    return f"… {count:,} more line{'s' if count > 1 else ''}"


def _shown(line: str, chars_max: int) -> str:
    """Return a line as people may see it: nothing is hidden, and what is cut is said."""
    cut = len(line) - chars_max
    kept = line[:chars_max].translate(_SHOWN)
    return f"{kept}… [{cut:,} more characters cut]" if cut > 0 else kept


def _changes(old: Sequence[str], new: Sequence[str]) -> list[_Span]:
    """Return what differs: the spans between the lines that are the same."""
    ends = _Span(len(old), len(old), len(new), len(new))
    same = [_Span(0, 0, 0, 0), *_same(old, new, _Span(0, len(old), 0, len(new)), 0), ends]
    gaps = (_Span(one.a_end, two.a, one.b_end, two.b) for one, two in pairwise(same))
    return [gap for gap in gaps if gap.a < gap.a_end or gap.b < gap.b_end]


def _same(old: Sequence[str], new: Sequence[str], span: _Span, depth: int) -> Iterator[_Span]:
    """Yield the spans of lines within a span that both texts have, in order."""
    a, a_end, b, b_end = span
    while a < a_end and b < b_end and old[a] == new[b]:
        a, b = a + 1, b + 1
    if a > span.a:
        yield _Span(span.a, a, span.b, b)
    while a < a_end and b < b_end and old[a_end - 1] == new[b_end - 1]:
        a_end, b_end = a_end - 1, b_end - 1
    if depth < _DEPTH_MAX and a < a_end and b < b_end:
        yield from _between_anchors(old, new, _Span(a, a_end, b, b_end), depth)
    if a_end < span.a_end:
        yield _Span(a_end, span.a_end, b_end, span.b_end)


def _between_anchors(
    old: Sequence[str], new: Sequence[str], span: _Span, depth: int
) -> Iterator[_Span]:
    """Yield the anchors of a span, and what is the same between them."""
    anchors = _anchors(old, new, span)
    if not anchors:
        return
    a, b = span.a, span.b
    for at, to in anchors:
        if a < at and b < to:
            yield from _same(old, new, _Span(a, at, b, to), depth + 1)
        yield _Span(at, at + 1, to, to + 1)
        a, b = at + 1, to + 1
    if a < span.a_end and b < span.b_end:
        yield from _same(old, new, _Span(a, span.a_end, b, span.b_end), depth + 1)


def _anchors(old: Sequence[str], new: Sequence[str], span: _Span) -> list[tuple[int, int]]:
    """Return the longest series of lines that occur once in both, and in the same order."""
    once_old, once_new = _once(old, span.a, span.a_end), _once(new, span.b, span.b_end)
    pairs = [(at, once_new[line]) for line, at in once_old.items() if line in once_new]
    return _rising(sorted(pairs))


def _once(lines: Sequence[str], start: int, end: int) -> dict[str, int]:
    """Return the places of the lines that occur once in a span."""
    places: dict[str, int] = {}
    for at in range(start, end):
        places[lines[at]] = -1 if lines[at] in places else at
    return {line: at for line, at in places.items() if at >= 0}


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest part of the pairs whose second numbers rise."""
    ends: list[int] = []  # the smallest last number of a rising series of each length
    holders: list[int] = []  # the pair that has it
    before: list[int] = []  # for each pair, the pair before it in its series, or -1
    for index, (_, to) in enumerate(pairs):
        place = bisect_left(ends, to)
        before.append(holders[place - 1] if place else -1)
        ends[place : place + 1] = [to]
        holders[place : place + 1] = [index]
    found: list[tuple[int, int]] = []
    index = holders[-1] if holders else -1
    while index >= 0:
        found.append(pairs[index])
        index = before[index]
    return found[::-1]


def _hunks(changes: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Yield the changes in groups: those of a group share the lines around them."""
    group: list[_Span] = []
    for change in changes:
        if group and change.a - group[-1].a_end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _told(hunk: Sequence[_Span], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """Yield the lines of one hunk: its heading, and the changes with the lines around them."""
    lead = min(_CONTEXT, hunk[0].a)
    a, b = hunk[0].a - lead, hunk[0].b - lead
    a_end = min(hunk[-1].a_end + _CONTEXT, len(old))
    b_end = hunk[-1].b_end + a_end - hunk[-1].a_end
    yield f"@@ -{_range(a, a_end)} +{_range(b, b_end)} @@"
    for change in hunk:
        yield from _marked(" ", old, a, change.a)
        yield from _marked("-", old, change.a, change.a_end)
        yield from _marked("+", new, change.b, change.b_end)
        a = change.a_end
    yield from _marked(" ", old, a, a_end)


def _range(start: int, end: int) -> str:
    """Return a range of lines as heads of hunks write it."""
    count = end - start
    first = start + 1 if count else start
    return str(first) if count == 1 else f"{first},{count}"


def _marked(sign: str, lines: Sequence[str], start: int, end: int) -> Iterator[str]:
    for at in range(start, end):
        yield f"{sign}{lines[at].removesuffix(chr(10))}"
        if not lines[at].endswith("\n"):
            yield _NO_BREAK
