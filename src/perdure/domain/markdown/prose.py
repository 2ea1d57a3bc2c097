"""Cuts a paragraph that does not fit, and searches for the best places to cut.

The best place is the end of a sentence or a line, then the end of a word, both outside links and
marks. Next comes the end of a word inside a mark, which is closed before the cut and opened again
after it. Then comes a place inside a link, or one after which the next piece would begin like a
list or another block. The last choice is anywhere between two characters. A place in the first half
of what would fit is taken only if the second half has none, so that one early full stop does not
make a piece of three words.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from perdure.domain.markdown.marks import Span, marks_of
from perdure.domain.markdown.units import border

# Matches the space between words, and the end of a sentence in scripts that write no space there.
_GAP: Final = re.compile(
    r"\s+|(?<=[\u3002\uff01\uff1f])(?![\s\u3002\uff01\uff1f\u300d\u300f\uff09])"
)
_SENTENCE_END: Final = re.compile(
    r"[.!?\u2026\u3002\uff01\uff1f][\"')\]*_\u00bb\u201d\u2019]{0,4}$"
)
# Matches text that would begin a list or another block if a piece began with it, such as a dash or
# a number within a sentence.
_BLOCK_START: Final = re.compile(r"[-+*=>#|]|\d{1,9}[.)](?:\s|$)|`{3}|~{3}|\[[^\]\n]{1,99}\]:")

# How many guesses are made by proportion before halving. A piece within 1/32 of the limit is long
# enough.
_GUESSES: Final = 4
_CLOSE: Final = 32
# The first guess takes an eighth of the limit, to learn how long the platform's form of the text
# is.
_SAMPLE: Final = 8
# How many places of one rank are tried.
_TRIES: Final = 4


class NoRoom(Exception):
    """Says that not even one character fits into the space."""


@dataclass(frozen=True, slots=True)
class Space:
    """Measures pieces against a `limit`. `size` returns the length of a piece, given how many
    pieces came before it."""

    size: Callable[[str, int], int]
    limit: int

    def fits(self, piece: str) -> bool:
        return self.size(piece, 0) <= self.limit

    def after(self, count: int) -> "Space":
        """Return the space for the pieces that follow `count` others."""
        return Space(lambda piece, index: self.size(piece, index + count), self.limit)

    def within(self, frame: Callable[[str, int], str]) -> "Space":
        """Return the space that a frame leaves for its content."""
        return Space(lambda piece, index: self.size(frame(piece, index), index), self.limit)


def furthest(
    ends: Sequence[int], first: int, *, start: int, size: Callable[[int], int], limit: int
) -> int:
    """Return the index after the last of `ends`, from `first` on, up to which the text from `start`
    fits.

    It is `first` if not even the nearest end fits. Measuring may mean rendering, so each guess is
    calculated from the size that the last guess had. The first guess is short, because a platform's
    form of some texts is many times as long as they are. If sizes do not grow with the text, the
    result may be shorter than it could be, but it fits.
    """
    low, high, reach = first, len(ends) + 1, max(limit // _SAMPLE, 1)
    guesses = 0
    while high - low > 1:
        guess = bisect_right(ends, start + reach) if guesses < _GUESSES else (low + high) // 2
        probe = min(max(guess, low + 1), high - 1)
        measured = size(ends[probe - 1])
        if measured > limit:
            high = probe
        else:
            low = probe
            if measured >= limit - limit // _CLOSE:
                break
        reach = (ends[probe - 1] - start) * limit // max(measured, 1)
        guesses += 1
    return low


def cut_prose(source: str, space: Space) -> list[str]:
    """Cut a paragraph into pieces. Marks are given up if they leave no room for text. Raises
    `NoRoom`."""
    paragraph = _Paragraph.of(source.strip())
    pieces: list[str] = []
    at = 0
    while at < len(paragraph.text):
        here = space.after(len(pieces))
        end = paragraph.end_from(at, here)
        if end == at:
            paragraph = _Paragraph.bare(paragraph.text)
            end = paragraph.end_from(at, here)
        if end == at:
            raise NoRoom
        pieces.append(paragraph.piece(at, end))
        at = paragraph.skip_space(end)
    return pieces


def cut_anywhere(text: str, at: int, end: int, space: Space) -> int:
    """Return the end of the longest piece of `text[at:end]` that fits, inside a word if need be.
    Raises `NoRoom`."""
    ends = range(at + 1, end + 1)

    def size(end: int) -> int:
        return space.size(text[at:end], 0)

    reach = at + furthest(ends, 0, start=at, size=size, limit=space.limit)
    if reach == at:
        raise NoRoom
    # A character of many code points may be too long by itself; then it is cut inside.
    between = border(text, reach, at)
    return between if between > at and space.fits(text[at:between]) else reach


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """Holds a paragraph, the spans over its positions, and its places to cut by rank, best
    first."""

    text: str
    covers: "_Covers"
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, text: str) -> "_Paragraph":
        """Prepare a paragraph with its marks."""
        covers = _Covers.of(marks_of(text).spans)
        return cls(text, covers, _ranked(text, covers))

    @classmethod
    def bare(cls, text: str) -> "_Paragraph":
        """Prepare a paragraph whose marks are cut like any other text."""
        covers = _Covers.of(())
        return cls(text, covers, _ranked(text, covers))

    def piece(self, at: int, end: int) -> str:
        """Return `text[at:end]`, with the marks that lie over its edges opened and closed."""
        opening = "".join(span.mark for span in self.covers.over(at))
        closing = "".join(span.mark for span in reversed(self.covers.over(end)))
        return opening + self.text[at:end].rstrip() + closing

    def skip_space(self, at: int) -> int:
        while at < len(self.text) and self.text[at].isspace():
            at += 1
        return at

    def end_from(self, at: int, space: Space) -> int:
        """Return where the piece that begins at `at` should end, or `at` if nothing fits."""
        ends = range(at + 1, len(self.text) + 1)

        def size(end: int) -> int:
            return space.size(self.piece(at, end), 0)

        reach = at + furthest(ends, 0, start=at, size=size, limit=space.limit)
        if reach in (at, len(self.text)):
            return reach
        # A shorter piece can take more room, because marks are closed at its end.
        for end in self._candidates(at, reach):
            if space.fits(self.piece(at, end)):
                return end
        return reach

    def _candidates(self, at: int, reach: int) -> Iterator[int]:
        """Yield the places at which a piece may end, best first, none of them after `reach`."""
        half = at + (reach - at) // 2
        *good, bad = self.places
        for floor, ranks in ((half, good), (at, good), (at, [bad])):
            for positions in ranks:
                behind = bisect_right(positions, reach)
                for position in reversed(positions[max(behind - _TRIES, 0) : behind]):
                    if position > floor:
                        yield position
        if (between := border(self.text, reach, at)) > at:
            yield between


def _ranked(text: str, covers: "_Covers") -> tuple[tuple[int, ...], ...]:
    """Return the places between words in four ranks, best first: after a sentence or a line,
    elsewhere outside marks, inside a mark, and inside a link or before the start of a block."""
    ranks: tuple[list[int], ...] = ([], [], [], [])
    for gap in _GAP.finditer(text):
        around = covers.over(gap.start())
        if any(not span.mark for span in around) or _BLOCK_START.match(text, gap.end()):
            rank = 3
        elif around:
            rank = 2
        else:
            is_end = "\n" in gap[0] or _SENTENCE_END.search(
                text, max(gap.start() - 8, 0), gap.start()
            )
            rank = 0 if is_end else 1
        ranks[rank].append(gap.start())
    return tuple(map(tuple, ranks))


@dataclass(frozen=True, slots=True)
class _Covers:
    """Knows which spans lie over a position. `turns` are the positions at which that changes, and
    `spans` are those between each turn and the next."""

    turns: tuple[int, ...]
    spans: tuple[tuple[Span, ...], ...]

    @classmethod
    def of(cls, spans: Sequence[Span]) -> "_Covers":
        edges = [(span.start, span) for span in spans] + [(span.end, span) for span in spans]
        turns, covers, over = [], [], set[Span]()
        for position, changes in groupby(sorted(edges, key=_position), key=_position):
            over ^= {span for _, span in changes}
            turns.append(position)
            covers.append(tuple(sorted(over, key=lambda span: (span.start, -span.end))))
        return cls(tuple(turns), tuple(covers))

    def over(self, position: int) -> tuple[Span, ...]:
        """Return the spans over a position, outermost first."""
        index = bisect_right(self.turns, position)
        spans = self.spans[index - 1] if index else ()
        return tuple(span for span in spans if span.start < position < span.end)


def _position(edge: tuple[int, Span]) -> int:
    return edge[0]
