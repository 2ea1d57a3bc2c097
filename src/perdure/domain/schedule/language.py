"""Defines how the times of a language are written: its words, and the forms they stand in."""

import re
from collections.abc import Mapping

import msgspec


class Language(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the words of a language and its forms.

    A form is a name, which says what it means, and a pattern. `units` are found by how a word
    begins, and so are `weekdays` (from Monday) and `months`. `parts` are the hours at which parts
    of a day begin. `fillers` may stand between a time and what is to be done then, and
    `first_fillers` before both.
    """

    counts: Mapping[str, int]
    units: Mapping[str, int]
    days: Mapping[str, int]
    parts: Mapping[str, int]
    clocks: Mapping[str, tuple[int, int]]
    weekdays: tuple[str, ...]
    months: tuple[str, ...]
    nths: Mapping[str, int]
    forms: tuple[tuple[str, re.Pattern[str]], ...]
    fillers: tuple[str, ...]
    first_fillers: tuple[str, ...]

    def count_of(self, word: str) -> int:
        """Return the number that a word means."""
        return int(word) if word.isdigit() else self.counts[word]

    def seconds_of(self, unit: str) -> int:
        """Return the length of a unit."""
        return next(length for begin, length in self.units.items() if unit.startswith(begin))

    def weekday_of(self, word: str) -> int:
        """Return the number of a weekday as cron counts: 1 is Monday, 7 is Sunday."""
        return 1 + next(i for i, begin in enumerate(self.weekdays) if word.startswith(begin))

    def month_of(self, word: str) -> int:
        """Return the number of a month."""
        if word.isdigit():
            return int(word)
        begin = "jan" if word.startswith("jän") else word[:3]
        return 1 + self.months.index(begin)

    def nth_of(self, word: str) -> int:
        """Return which day of a month a word means; -1 is the last."""
        digits = re.match(r"\d+", word)
        return int(digits.group()) if digits else self.nths[word]

    def part_of(self, word: str) -> int | None:
        """Return the hour at which a part of a day begins."""
        plain = word if word in self.parts else word.removesuffix("s")
        return self.parts.get(plain)
