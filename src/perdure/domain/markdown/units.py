"""Measures how long a text is for a platform, and finds where it may be cut.

Platforms count code points, UTF-16 units or bytes. Whatever the unit, a cut never falls inside what
a reader sees as one character: a letter with its accents, a flag, or a family of emoji joined by
U+200D (the zero-width joiner).
"""

import unicodedata
from enum import StrEnum
from typing import Final


class TextUnit(StrEnum):
    """Names the units in which platforms count the length of a text."""

    CHARS = "chars"
    UTF16 = "utf16"
    BYTES = "bytes"


_JOINER: Final = "\u200d"
_NON_JOINER: Final = "\u200c"
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})


def size_of(text: str, unit: TextUnit) -> int:
    """Return the length of a text in a unit. A lone surrogate counts as much as it would take if it
    were sent."""
    if unit is TextUnit.CHARS or text.isascii():
        return len(text)
    if unit is TextUnit.UTF16:
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, unit: TextUnit, limit: int) -> str:
    """Return the longest prefix that fits and ends between two characters. It is empty if the first
    character is too long."""
    if size_of(text, unit) <= limit:
        return text
    # A code point takes at least one of any unit, so the prefix has at most `limit` code points.
    left, end = limit, 0
    for char in text[: max(limit, 0)]:
        left -= size_of(char, unit)
        if left < 0:
            break
        end += 1
    return text[: border(text, end)]


def border(text: str, end: int, start: int = 0) -> int:
    """Return the last border between characters at or before `end`, but not before `start`."""
    while start < end < len(text) and _is_inside(text, end, start):
        end -= 1
    return end


def _is_inside(text: str, index: int, start: int) -> bool:
    """Tell whether a character continues from `index - 1` to `index`."""
    before, after = text[index - 1], text[index]
    # Below U+0300 nothing combines except the two characters of a Windows line break.
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    return (
        before == _JOINER
        or _extends(after)
        or (_is_high(before) and _is_low(after))
        or _joins_hangul(before, after)
        or (_is_flag(before) and _is_flag(after) and _is_odd_flag(text, index, start))
    )


def _extends(char: str) -> bool:
    """Tell whether a code point belongs to the character before it."""
    return (
        char in (_JOINER, _NON_JOINER)
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tags, as in the flag of Wales
        or unicodedata.category(char) in _MARKS
    )


def _is_high(char: str) -> bool:
    return "\ud800" <= char <= "\udbff"


def _is_low(char: str) -> bool:
    return "\udc00" <= char <= "\udfff"


def _is_flag(char: str) -> bool:
    """Tell whether a code point is a regional indicator. Two of them make a flag."""
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _is_odd_flag(text: str, index: int, start: int) -> bool:
    """Tell whether `index` falls inside a flag. Regional indicators make pairs, counted from the
    first of their run."""
    first = index
    while first > start and _is_flag(text[first - 1]):
        first -= 1
    return (index - first) % 2 == 1


def _joins_hangul(before: str, after: str) -> bool:
    """Tell whether two letters of the Korean script make one syllable: a leading consonant, a vowel
    and a trailing consonant may be written as separate code points."""
    if "\u1160" <= after <= "\u11a7":
        return "\u1100" <= before <= "\u11a7" or "\uac00" <= before <= "\ud7a3"
    if "\u11a8" <= after <= "\u11ff":
        return "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    return "\u1100" <= before <= "\u115f" and "\u1100" <= after <= "\u115f"
