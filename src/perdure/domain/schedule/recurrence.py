"""Computes the instants at which a job is due.

A rule is a cron expression, an interval or one instant. Cron expressions are read in a time zone,
as Debian's cron does. A fixed local time that a clock change skips is due at the first instant
after the gap, and one that comes twice is due once. An expression whose minute or hour begins with
a star follows elapsed time: it is due in both of two equal hours, and never in a skipped one.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.schedule.zones import zone_of

INVALID: Final = "invalid_schedule"
# Five fields of any use are much shorter.
EXPRESSION_MAX: Final = 200
EVERY_MAX_S: Final = 366 * 86_400
_FIELDS: Final = 5
_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """Recurs as a cron expression of five fields says."""

    expression: str


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Recurs after each interval, counted from the job's anchor."""

    seconds: int


class Once(msgspec.Struct, frozen=True, tag="at"):
    """Happens at one instant, in milliseconds."""

    at: int


Recurrence: TypeAlias = Cron | Every | Once


class Timing(msgspec.Struct, frozen=True):
    """Holds a rule with the zone that it is read in, and the instant from which intervals count."""

    rule: Recurrence
    zone: str = "UTC"
    anchor: int = 0


def read_cron(expression: str) -> Cron:
    """Return a cron expression in its plain form. Raises `Rejected` if it is none, or never due."""
    words = " ".join(expression.split()).upper()
    words = _NAMED.get(words.lower(), words)
    if len(words) <= EXPRESSION_MAX and len(words.split()) == _FIELDS and _is_ever_due(words):
        return Cron(words)
    raise Rejected(f"{expression[:80]!r} is no cron expression", code=INVALID)


def _is_ever_due(expression: str) -> bool:
    try:
        return next(_ticks(expression, datetime(2024, 1, 1, tzinfo=UTC)), None) is not None
    except Rejected:
        return False


def read_every(seconds: float) -> Every:
    """Return an interval. Raises `Rejected` if it is too short or too long."""
    if not 1 <= seconds <= EVERY_MAX_S:
        raise Rejected(
            f"an interval is between 1 and {EVERY_MAX_S:,} seconds, and {seconds:g} is not; the "
            f"nearest valid form is every_s = {min(max(int(seconds), 1), EVERY_MAX_S)}",
            code=INVALID,
        )
    return Every(int(seconds))


def upcoming(timing: Timing, *, after: int) -> Iterator[int]:
    """Yield the instants later than `after` at which the rule is due, in order."""
    match timing.rule:
        case Once(at=at):
            if at > after:
                yield at
        case Every(seconds=seconds):
            step = seconds * 1000
            due = timing.anchor + max((after - timing.anchor) // step + 1, 1) * step
            while True:
                yield due
                due += step
        case Cron(expression=expression):
            yield from _cron(expression, known_zone(timing.zone), after)


def next_due(timing: Timing, *, after: int) -> int | None:
    """Return the first instant later than `after` at which the rule is due, or None."""
    return next(upcoming(timing, after=after), None)


def due_between(timing: Timing, *, after: int, until: int, limit: int) -> list[int]:
    """Return the first instants later than `after` and not later than `until`."""
    found: list[int] = []
    for due in islice(upcoming(timing, after=after), limit):
        if due > until:
            break
        found.append(due)
    return found


def newest_due(timing: Timing, *, after: int, until: int) -> int | None:
    """Return the last instant later than `after` and not later than `until`, or None."""
    if isinstance(timing.rule, Every):
        step = timing.rule.seconds * 1000
        due = timing.anchor + (until - timing.anchor) // step * step
        return due if due > max(after, timing.anchor) else None
    newest = None
    for due in upcoming(timing, after=after):
        if due > until:
            break
        newest = due
    return newest


def known_zone(name: str) -> tzinfo:
    """Return the zone with this name. Raises `Rejected` if there is none."""
    zone = zone_of(name)
    if zone is None:
        raise Rejected(
            f"there is no time zone {name[:80]!r}; use a name of the time zone database, such as "
            "Europe/Berlin, or an offset such as UTC+02:00",
            code="unknown_timezone",
        )
    return zone


def instant_of(local: datetime, zone: tzinfo) -> int:
    """Return the instant of a local time without a zone: the first one if it comes twice, and the
    first valid instant after it if it does not exist."""
    minute = timedelta(minutes=1)
    while True:
        then = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if then.astimezone(zone).replace(tzinfo=None) == local:
            return _ms(then)
        local = local.replace(second=0, microsecond=0) + minute


def _cron(expression: str, zone: tzinfo, after: int) -> Iterator[int]:
    """Yield the instants of an expression. Around a clock change the library may name an instant
    that is not later than the one before it; such a one has been due already."""
    minute, hour, *_ = expression.split()
    begin = datetime.fromtimestamp(after / 1000, UTC)
    follows_time = minute.startswith("*") or hour.startswith("*")
    found = _elapsed(expression, zone, begin) if follows_time else _fixed(expression, zone, begin)
    last = after
    for due in found:
        if due > last:
            yield due
            last = due


def _fixed(expression: str, zone: tzinfo, after: datetime) -> Iterator[int]:
    """Yield the instants of an expression that names its hours and minutes."""
    for then in _ticks(expression, after.astimezone(zone)):
        yield _ms(then)


def _elapsed(expression: str, zone: tzinfo, after: datetime) -> Iterator[int]:
    """Yield the instants of an expression that follows elapsed time. It is read in local time for
    as long as the zone keeps its offset, and anew from each clock change on."""
    since = begin = after
    while True:
        offset = _offset(zone, since)
        last = since
        for then in _ticks(expression, (begin + offset).replace(tzinfo=None)):
            due = then.replace(tzinfo=UTC) - offset
            if _offset(zone, due) != offset:
                break
            yield _ms(due)
            last = due
        else:
            return
        since = _change_between(zone, last, due)
        begin = since - timedelta(seconds=1)  # the instant of the change itself may be due


def _change_between(zone: tzinfo, early: datetime, late: datetime) -> datetime:
    """Return the instant at which the zone leaves the offset that it has at `early`."""
    offset = _offset(zone, early)
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) / 2
        early, late = (middle, late) if _offset(zone, middle) == offset else (early, middle)
    return late.replace(microsecond=0)


def _offset(zone: tzinfo, then: datetime) -> timedelta:
    return then.astimezone(zone).utcoffset() or timedelta()


def _ticks(expression: str, after: datetime) -> Iterator[datetime]:
    """Yield what the library finds. Its errors for wrong expressions are of several kinds."""
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - many people have no jobs

    try:
        ticks = CronSim(expression, after)
    except (CronSimError, AssertionError, ValueError, TypeError, RecursionError) as error:
        raise Rejected(
            f"{expression[:80]!r} is no cron expression: {error}", code=INVALID
        ) from None
    while True:
        try:
            yield next(ticks)
        except (StopIteration, OverflowError, ValueError):
            return


def _ms(then: datetime) -> int:
    return int(then.timestamp()) * 1000
