"""Finds emphasis, code and links in the source of a paragraph.

The parser's tree has no positions within a line, and does not mention a mark that is not closed
yet. Cutting (`prose.py`) and healing (`heal.py`) need both, so this is a scan of its own: one pass
with the delimiter rules of CommonMark, without a tree. If it disagrees with the parser, an unneeded
mark is shown, or a cut is made in a worse place; no text is lost.
"""

import re
import unicodedata
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

import msgspec

# Bounds how many openings wait for their ends. Only hostile text has more; the oldest are given up.
_WAITING_MAX: Final = 16

_TOKEN: Final = re.compile(r"\\.|`+|\*+|_+|~~+|!?\[|\]|<", re.DOTALL)
_TAG: Final = re.compile(r"<[A-Za-z/!?][^<>]*+>")
_RUN: Final = re.compile(r"`+")

# The possessive quantifiers (`*+`) never go back, so hostile text costs only time in its length.
_PLAIN: Final = r"[^\s()\\]|\\."
_PAIRED: Final = rf"\((?:{_PLAIN}|\((?:{_PLAIN})*+\))*+\)"
_TITLE: Final = r"\"[^\"]*+\"|'[^']*+'|\([^()]*+\)"
_TARGET: Final = re.compile(
    rf"\(\s*+(?:<[^<>\n]*+>|(?:{_PLAIN}|{_PAIRED})*+)(?:\s++(?:{_TITLE})?+)?+\s*+\)", re.DOTALL
)
_HALF_TARGET: Final = re.compile(
    rf"\(\s*+(?:<[^<>\n]*+|(?:{_PLAIN}|\(|\))*+)(?:\s++(?:\"[^\"]*+|'[^']*+|\([^()]*+)?+)?+",
    re.DOTALL,
)


class Span(msgspec.Struct, frozen=True):
    """Holds a stretch of the text: `text[start:end]` stands between two `mark`s. If `mark` is
    empty, the stretch is a link or a tag, which is better not cut."""

    start: int
    end: int
    mark: str


class HalfLink(msgspec.Struct, frozen=True):
    """Holds a link at the end of the text whose target is incomplete: `text[start:label]` opens it,
    `text[label:end]` is its label, and `text[end:]` is its target so far."""

    start: int
    label: int
    end: int


class _OpenMarks(msgspec.Struct, frozen=True):
    """Holds what a scan has found: the spans, the marks that wait for their end (outermost first),
    and a half-written link at the end."""

    spans: tuple[Span, ...]
    waiting: tuple[str, ...]
    half_link: HalfLink | None


def marks_of(text: str) -> _OpenMarks:
    """Scan the source of a paragraph for marks."""
    return _Scan(text).read()


def closing_of(text: str) -> str:
    """Return the marks that close what a text leaves open, or an empty string if they cannot close
    it."""
    waiting = marks_of(text).waiting
    if not waiting:
        return ""
    closing = "".join(reversed(waiting))
    # Two runs of backticks side by side would be one longer run.
    if closing[0] == "`" == text[-1]:
        closing = " " + closing
    # A star inside a word may be closed by an end that was meant for another mark.
    return "" if marks_of(text + closing).waiting else closing


@dataclass(slots=True)
class _Opening:
    """Holds a run of `length` delimiters that waits for its end. `count` of them are still unused;
    they begin at `start`."""

    char: str
    count: int
    length: int
    start: int
    can_close: bool


@dataclass(slots=True)
class _Scan:
    """Reads a paragraph once, from left to right."""

    text: str
    spans: list[Span] = field(default_factory=list)
    openings: list[_Opening] = field(default_factory=list)
    brackets: list[tuple[int, int]] = field(default_factory=list)
    waiting_code: tuple[str, ...] = ()
    half_link: HalfLink | None = None
    # Where runs of backticks start, by their length. Otherwise each run without an end would search
    # the whole text for it.
    runs: dict[int, list[int]] = field(default_factory=dict)

    def read(self) -> _OpenMarks:
        for run in _RUN.finditer(self.text):
            self.runs.setdefault(len(run[0]), []).append(run.start())
        position = 0
        while found := _TOKEN.search(self.text, position):
            position = self._take(found)
        half = self.half_link
        if half and not _HALF_TARGET.fullmatch(self.text, half.end + 1):
            half = None
        waiting = self.waiting_code or self._waiting()
        return _OpenMarks(tuple(self.spans), waiting, half)

    def _take(self, found: re.Match[str]) -> int:
        """Read one token, and return where to continue."""
        match found[0][0]:
            case "`":
                return self._code(found)
            case "*" | "_" | "~":
                return self._delimiters(found)
            case "[" | "!":
                self.brackets.append((found.start(), found.end()))
            case "]":
                return self._bracket(found.start())
            case "<":
                return self._tag(found.start())
            case _:
                pass
        return found.end()

    def _code(self, found: re.Match[str]) -> int:
        """Read a run of backticks: code up to the next run of the same length, or an opening that
        waits for its end. Returns where to continue."""
        mark = found[0]
        starts = self.runs.get(len(mark), [])
        next_run = bisect_left(starts, found.end())
        if next_run == len(starts):
            # Only the first counts: what comes after it is code as soon as it is closed.
            self.waiting_code = self.waiting_code or (*self._waiting(), mark)
            return found.end()
        end = starts[next_run]
        self.spans.append(Span(found.end(), end, mark))
        return end + len(mark)

    def _tag(self, start: int) -> int:
        found = _TAG.match(self.text, start)
        if found is None:
            return start + 1
        self.spans.append(Span(start, found.end(), ""))
        return found.end()

    def _bracket(self, end: int) -> int:
        """Read a closing bracket. A target after it makes a link, which becomes a span. Returns
        where to continue."""
        if not self.brackets:
            return end + 1
        start, label = self.brackets.pop()
        if not self.text.startswith("(", end + 1):
            return end + 1
        target = _TARGET.match(self.text, end + 1)
        if target is None:
            # Only the last one can reach the end of the text; `read` checks whether it does.
            self.half_link = HalfLink(start, label, end)
            return end + 1
        self.spans.append(Span(start, target.end(), ""))
        # A mark that was opened inside a label cannot be closed outside.
        while self.openings and self.openings[-1].start > start:
            self.openings.pop()
        return target.end()

    def _delimiters(self, found: re.Match[str]) -> int:
        """Read a run of stars, underscores or tildes: close what it can, and open a mark with the
        rest. Returns where to continue."""
        char, length, start = found[0][0], len(found[0]), found.start()
        can_open, can_close = _flanks(self.text, start, found.end())
        if char == "~":
            length -= length % 2  # only pairs strike text out
        left = self._close(char, length, start, can_open=can_open) if can_close else length
        if left and can_open:
            self.openings.append(_Opening(char, left, length, found.end() - left, can_close))
            del self.openings[:-_WAITING_MAX]
        return found.end()

    def _close(self, char: str, length: int, start: int, *, can_open: bool) -> int:
        """Match a closing run with the openings before it, and return how much of the run is
        left."""
        left, index = length, len(self.openings) - 1
        while left and index >= 0:
            opening = self.openings[index]
            if opening.char != char or _is_odd(opening, length, can_open=can_open):
                index -= 1
                continue
            used = 2 if min(left, opening.count) > 1 else 1
            end = start + length - left
            self.spans.append(Span(opening.start + opening.count, end, char * used))
            opening.count -= used
            left -= used
            del self.openings[index + bool(opening.count) :]
            index = len(self.openings) - 1
        return left

    def _waiting(self) -> tuple[str, ...]:
        """Return the marks that are certainly open. A run that could also close is left out: it is
        more likely the star of a product, as in `5*6`, or part of a name."""
        return tuple(o.char * o.count for o in self.openings if not o.can_close)


def _is_odd(opening: _Opening, length: int, *, can_open: bool) -> bool:
    """Tell whether the rule of three of CommonMark keeps a run from closing this opening: by that
    rule, `*a**b*` is one emphasis and not two."""
    return (
        opening.char != "~"
        and (opening.can_close or can_open)
        and (opening.length + length) % 3 == 0
        and (opening.length % 3 != 0 or length % 3 != 0)
    )


def _flanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Tell whether a run of delimiters can open, and whether it can close."""
    before = text[start - 1] if start else " "
    after = text[end] if end < len(text) else " "
    is_space_before, is_space_after = before.isspace(), after.isspace()
    is_punct_before, is_punct_after = _is_punctuation(before), _is_punctuation(after)
    opens = not is_space_after and (not is_punct_after or is_space_before or is_punct_before)
    closes = not is_space_before and (not is_punct_before or is_space_after or is_punct_after)
    if text[start] != "_":
        return opens, closes
    return opens and (not closes or is_punct_before), closes and (not opens or is_punct_after)


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"
