"""Replaces an exact text within a text, and says why it cannot: where it occurs, or what is near.

A model sees lines without their carriage returns. So in a file whose lines all end with CR LF, the
texts that it gives are taken to end their lines in the same way.
"""

import heapq
import re
from typing import Final

from perdure.domain.errors import Rejected

_PLACES_MAX: Final = 5
_NEAR_MAX: Final = 3
_NEAR_CHARS: Final = 200
_WORD: Final = re.compile(r"\w+")


def edited(text: str, old: str, new: str, *, is_all: bool, chars_max: int) -> str:
    """Return the text with `old` replaced by `new`, once or everywhere. Raises `Rejected` if it is
    not clear what is meant."""
    old, new = _in_style_of(text, old, new)
    first = text.find(old)
    if first < 0:
        raise Rejected(_not_found(text, old))
    if not is_all and text.find(old, first + 1) >= 0:
        raise Rejected(_ambiguous(text, old))
    count = text.count(old) if is_all else 1
    if len(text) + count * (len(new) - len(old)) > chars_max:
        raise Rejected(f"the file would grow beyond {chars_max:,} bytes; replace less at once")
    return text.replace(old, new, count)


def _in_style_of(text: str, old: str, new: str) -> tuple[str, str]:
    """Return both texts with the line ends that the file has."""
    ends = text.count("\n")
    if not ends or text.count("\r\n") != ends or "\r" in old:
        return old, new
    return old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _ambiguous(text: str, old: str) -> str:
    """Return the words for a text that occurs more than once."""
    count = text.count(old)
    lines: list[str] = []
    at, line, seen = text.find(old), 1, 0
    while at >= 0 and len(lines) < _PLACES_MAX:
        line += text.count("\n", seen, at)
        seen = at
        lines.append(str(line))
        at = text.find(old, at + 1)
    times = f"{count:,} times" if count > 1 else "at places that overlap"
    dots = ", …" if at >= 0 else ""
    return (
        f"old occurs {times} (at lines {', '.join(lines)}{dots}); give more of the text around the "
        "one you mean, or set all to true"
    )


def _not_found(text: str, old: str) -> str:
    """Return the words for a text that does not occur."""
    near = _nearest(text, old)
    if not near:
        return "old does not occur in the file, and no line is like it; read the file first"
    told = "\n".join(f"{number}: {line}" for number, line in near)
    return (
        "old does not occur in the file exactly so; mind blanks and line breaks. The nearest "
        f"lines are:\n{told}"
    )


def _nearest(text: str, old: str) -> list[tuple[int, str]]:
    """Return the lines that share most words with the longest line of `old`, with their numbers."""
    sought = max((line.strip() for line in old.split("\n")), key=len)
    words = set(_WORD.findall(sought[:_NEAR_CHARS]))
    if not words:
        return []
    scored = (
        (_likeness(words, line[:_NEAR_CHARS]), -number, line[:_NEAR_CHARS].strip())
        for number, line in enumerate(text.split("\n"), start=1)
    )
    best = heapq.nlargest(_NEAR_MAX, (each for each in scored if each[0] > 0))
    return [(-number, line) for _, number, line in best]


def _likeness(words: set[str], line: str) -> float:
    """Return the share of words that two lines have in common."""
    others = set(_WORD.findall(line))
    return len(words & others) / len(words | others)
