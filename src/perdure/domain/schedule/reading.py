"""Reads when a job is to run, from whatever a person or a program gives, and says what would be
right where that is wrong."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.schedule.recurrence import (
    INVALID,
    Once,
    Recurrence,
    Timing,
    known_zone,
    read_cron,
    read_every,
    upcoming,
)

SHOWN: Final = 3
_RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_WORST: Final = "0 9 * * *"


class WhenGiven(msgspec.Struct, frozen=True, kw_only=True):
    """Holds when a job is to run, as it was given; exactly one of these is set. `at` is a time in
    ISO 8601, and `when` a time in plain words."""

    cron: str | None = None
    every_s: float | None = None
    at: str | None = None
    when: str | None = None


def rule_of(given: WhenGiven, *, zone: str, now: int) -> Recurrence:
    """Return the rule that was given. Raises `Rejected` for a wrong one, with the nearest form that
    is right and the next times at which that would run."""
    names = [name for name, value in msgspec.structs.asdict(given).items() if value is not None]
    if len(names) != 1:
        raise Rejected(
            "a job needs exactly one of `cron`, `every_s`, `at` and `when`"
            + (f", and not {' and '.join(names)}" if names else ""),
            code=INVALID,
        )
    known_zone(zone)
    if given.every_s is not None:
        return read_every(given.every_s)
    if given.cron is not None:
        return _cron(given.cron, zone=zone, now=now)
    return _words(given.when or given.at or "", zone=zone, now=now)


def _cron(expression: str, *, zone: str, now: int) -> Recurrence:
    try:
        return read_cron(expression)
    except Rejected:
        near = nearest_cron(expression)
        rule = read_cron(near)
    raise Rejected(f"{error_words(expression)}; {_instead(near, rule, zone, now)}", code=INVALID)


def error_words(expression: str) -> str:
    """Return what is wrong with an expression, in words for everybody."""
    count = len(expression.split())
    if count != len(_RANGES):
        return (
            f"{expression[:80]!r} is no cron expression: it has {count} fields and not five "
            "(minute, hour, day of the month, month, day of the week)"
        )
    return f"{expression[:80]!r} is no cron expression that is ever due"


def _words(text: str, *, zone: str, now: int) -> Recurrence:
    # Imported here: most nodes never read a time in words.
    from perdure.domain.schedule.phrases import nearest_phrase, now_in, read_phrase  # noqa: PLC0415

    present = now_in(zone, now)
    try:
        rule = read_phrase(text, present)
    except Rejected:
        near = nearest_phrase(text, present)
        rule = read_phrase(near, present)
        told = f"{text.strip()[:80]!r} is no time that is understood here"
        raise Rejected(f"{told}; {_instead(near, rule, zone, now)}", code=INVALID) from None
    if isinstance(rule, Once) and rule.at <= now:
        raise Rejected(
            f"{text.strip()[:80]!r} lies in the past; name a time that is still to come",
            code=INVALID,
        )
    return rule


def nearest_cron(expression: str) -> str:
    """Return a cron expression that is probably meant."""
    fields = expression.upper().replace("?", "*").split()[:7]
    if len(fields) == len(_RANGES) + 1:
        fields = fields[1:]  # seconds come first in other systems
    fields = (fields + ["*"] * len(_RANGES))[: len(_RANGES)]
    mended = " ".join(map(_mended, fields, _RANGES))
    for candidate in (" ".join(fields), mended):
        if _is_cron(candidate) and any(map(str.isdigit, candidate)):
            return candidate
    return _WORST


def _mended(field: str, span: tuple[int, int]) -> str:
    """Return a field with its numbers in range; the star, if it cannot be read."""
    low, high = span
    if field.isdigit():
        return str(min(max(int(field[:6]), low), high))
    trial = ["0", "0", "1", "1", "*"]
    trial[_RANGES.index(span)] = field
    return field if _is_cron(" ".join(trial)) else "*"


def _is_cron(expression: str) -> bool:
    try:
        read_cron(expression)
    except Rejected:
        return False
    return True


def _instead(near: str, rule: Recurrence, zone: str, now: int) -> str:
    times = ", ".join(next_times(Timing(rule, zone, now), now=now))
    return f"the nearest valid form is {near!r}, which would run at {times}"


def next_instants(timing: Timing, *, now: int, count: int = SHOWN) -> Sequence[int]:
    """Return the next instants at which a rule is due."""
    return list(islice(upcoming(timing, after=now), count))


def next_times(timing: Timing, *, now: int) -> list[str]:
    """Return the next instants at which a rule is due, in local time, as people read them."""
    return [told_time(each, timing.zone) for each in next_instants(timing, now=now)]


def told_time(at: int, zone: str) -> str:
    """Return an instant as people read it in a zone."""
    return f"{datetime.fromtimestamp(at / 1000, known_zone(zone)):%a %Y-%m-%d %H:%M}"
