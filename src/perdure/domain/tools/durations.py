"""Reads how long something holds, as people write it."""

from typing import Final

_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# The longest time: a year.
_MAX_MS: Final = 366 * 86_400_000


def duration_ms(word: str) -> int:
    """Return the length of a time such as `30m`, `2h` or `1d`, or 0 if the word names none."""
    number, unit = word[:-1], word[-1:].lower()
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or len(number) > 6:
        return 0
    length_ms = int(number) * _UNITS[unit]
    return length_ms if length_ms <= _MAX_MS else 0
