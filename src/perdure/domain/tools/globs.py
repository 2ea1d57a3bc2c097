"""Matches paths and argument vectors against the globs of rules.

`*` stands for any characters within one part of a path, `**` for any characters, and `?` for one
character of a part. The glob is read as an automaton whose states are the bits of one number, so
each character of the text takes a few operations, whatever the glob is.
"""

from functools import lru_cache
from typing import Final

import msgspec

_STARS: Final = ("*", "**")


class _Automaton(msgspec.Struct, frozen=True):
    """Holds a glob. A bit stands for a place in it: how many signs the text read so far may have
    used up. `by_char` are the places before each single character, `any_char` those before a `?`,
    `stars` those before any star, and `wide` those before a `**`."""

    by_char: dict[str, int]
    any_char: int
    stars: int
    wide: int
    end: int


def is_match(glob: str, text: str) -> bool:
    """Tell whether the whole text matches the glob."""
    found = _automaton(glob)
    by_char, any_char, stars, wide = found.by_char, found.any_char, found.stars, found.wide
    reached = 1 | ((1 & stars) << 1)
    for char in text:
        if char == "/":
            steps, stays = by_char.get(char, 0), wide
        else:
            steps, stays = by_char.get(char, 0) | any_char, stars
        reached = ((reached & steps) << 1) | (reached & stays)
        if not reached:
            return False
        # A star may stand for nothing. No star follows another one, so one step is enough.
        reached |= (reached & stars) << 1
    return bool(reached & found.end)


@lru_cache(maxsize=256)
def _automaton(glob: str) -> _Automaton:
    """Return a glob as an automaton."""
    by_char: dict[str, int] = {}
    any_char = stars = wide = 0
    signs = _signs(glob)
    for place, sign in enumerate(signs):
        bit = 1 << place
        if sign in _STARS:
            stars |= bit
            wide |= bit if sign == "**" else 0
        elif sign == "?":
            any_char |= bit
        else:
            by_char[sign] = by_char.get(sign, 0) | bit
    return _Automaton(by_char, any_char, stars, wide, 1 << len(signs))


def _signs(glob: str) -> list[str]:
    """Return the parts of a glob: `**`, `*`, `?`, and single characters."""
    signs: list[str] = []
    for char in glob:
        if char == "*" and signs and signs[-1] in _STARS:
            signs[-1] = "**"
        else:
            signs.append(char)
    return signs
