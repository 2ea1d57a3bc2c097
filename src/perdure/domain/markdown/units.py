"""How long a platform takes a text to be, and where a text may be cut.

Platforms count code points, UTF-16 units or bytes. Whatever the unit, a cut never falls inside what
a reader takes for one character: a letter and its accents, a flag, a family joined by ZWJ.
"""

import unicodedata
from enum import StrEnum
from typing import Final


class TextUnit(StrEnum):
    CHARS = "chars"
    UTF16 = "utf16"
    BYTES = "bytes"


_JOINER: Final = "\u200d"
_NON_JOINER: Final = "\u200c"
_MARKS: Final = frozenset({"Mn", "Mc", "Me"})


def size_of(text: str, unit: TextUnit) -> int:
    """The length of a text in a unit. A lone surrogate counts as what it would take if sent."""
    if unit is TextUnit.CHARS or text.isascii():
        return len(text)
    if unit is TextUnit.UTF16:
        return len(text.encode("utf-16-le", "surrogatepass")) // 2
    return len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, unit: TextUnit, limit: int) -> str:
    """The longest prefix that fits and ends between two characters; "" if the first is too long."""
    if size_of(text, unit) <= limit:
        return text
    # No character takes less than one of any unit, so the prefix ends within `limit` code points.
    left, end = limit, 0
    for char in text[: max(limit, 0)]:
        left -= size_of(char, unit)
        if left < 0:
            break
        end += 1
    return text[: border(text, end)]


def border(text: str, end: int, start: int = 0) -> int:
    """The last border between characters at or before `end`, but not before `start`."""
    while start < end < len(text) and _is_inside(text, end, start):
        end -= 1
    return end


def _is_inside(text: str, index: int, start: int) -> bool:
    """Whether a character goes on from `index - 1` to `index`."""
    before, after = text[index - 1], text[index]
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
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _is_odd_flag(text: str, index: int, start: int) -> bool:
    """Regional indicators go in pairs from the first of their run."""
    first = index
    while first > start and _is_flag(text[first - 1]):
        first -= 1
    return (index - first) % 2 == 1


def _joins_hangul(before: str, after: str) -> bool:
    """Leading consonant, vowel and trailing consonant that are written as separate jamo."""
    if "\u1160" <= after <= "\u11a7":
        return "\u1100" <= before <= "\u11a7" or "\uac00" <= before <= "\ud7a3"
    if "\u11a8" <= after <= "\u11ff":
        return "\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    return "\u1100" <= before <= "\u115f" and "\u1100" <= after <= "\u115f"
