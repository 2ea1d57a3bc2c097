"""Checks at which instants rules are due, against an expansion that walks every minute."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure.domain.errors import Rejected
from perdure.domain.schedule.recurrence import (
    Cron,
    Every,
    Once,
    Timing,
    due_between,
    newest_due,
    next_due,
    read_cron,
    read_every,
)

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/Havana",
)
EXPRESSIONS = (
    "30 2 * * *",
    "0 9 * * 1-5",
    "*/15 * * * *",
    "0 * * * *",
    "15 */2 * * *",
    "30 1,2,3 * * 0",
    "0 0 * * *",
    "45 1 * * *",
    "* 2 * * *",
    "*/7 1-3 * * *",
    "5 */3 * * *",
    "0 12 31 * *",
    "15 0 13 * 5",
    "0 0 1 */2 *",
)
YEAR = (datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
MINUTE = timedelta(minutes=1)


def values(field: str, low: int, high: int) -> set[int]:
    """Return what a field of an expression allows."""
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = span.partition("-")
        ends = (low, high) if span == "*" else (int(first), int(last or first))
        found |= set(range(ends[0], ends[1] + 1, int(step or 1)))
    return found


class Fields:
    """Reads an expression in the plainest way."""

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = expression.split()
        self.minutes, self.hours = values(minute, 0, 59), values(hour, 0, 23)
        self.days, self.months = values(day, 1, 31), values(month, 1, 12)
        self.weekdays = {each % 7 for each in values(weekday, 0, 7)}
        self.needs_both = day.startswith("*") or weekday.startswith("*")
        self.follows_time = minute.startswith("*") or hour.startswith("*")

    def fit(self, local: datetime) -> bool:
        days = (local.day in self.days, local.isoweekday() % 7 in self.weekdays)
        is_day = all(days) if self.needs_both else any(days)
        is_time = local.minute in self.minutes and local.hour in self.hours
        return is_time and local.month in self.months and is_day


def walked(expression: str, zone: str, start: datetime, end: datetime) -> Iterator[int]:
    """Yield the instants of an expression, minute by minute. A fixed time that comes twice counts
    the first time; one that is skipped counts at the end of the gap."""
    fields, place = Fields(expression), ZoneInfo(zone)
    before: datetime | None = None
    seen: set[datetime] = set()
    then = start
    while then < end:
        local = then.astimezone(place).replace(tzinfo=None, fold=0)
        is_due = fields.fit(local)
        if not fields.follows_time:
            is_due = is_due and local not in seen
            seen.add(local)
            skipped = before + MINUTE if before is not None else local
            while skipped < local:
                is_due |= fields.fit(skipped)
                skipped += MINUTE
        if is_due:
            yield int(then.timestamp() * 1000)
        before = local
        then += MINUTE


def changes(zone: str) -> Iterator[datetime]:
    """Yield the hours of a year in which a zone changes its clock."""
    place, then = ZoneInfo(zone), YEAR[0]
    while then < YEAR[1]:
        following = then + timedelta(hours=1)
        if then.astimezone(place).utcoffset() != following.astimezone(place).utcoffset():
            yield following
        then = following


def ms(then: datetime) -> int:
    return int(then.timestamp() * 1000)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_clock_change_is_met_as_walking_the_minutes_meets_it(
    zone: str, expression: str
) -> None:
    met = list(changes(zone))
    assert len(met) == 2
    for change in met:
        start, end = change - timedelta(hours=30), change + timedelta(hours=40)
        expected = [
            due
            for due in walked(expression, zone, start - timedelta(days=1), end)
            if ms(start) < due
        ]
        found = due_between(
            Timing(Cron(expression), zone), after=ms(start), until=ms(end) - 1, limit=10_000
        )
        assert found == expected


def test_each_instant_is_strictly_later_wherever_the_search_begins() -> None:
    timing = Timing(Cron("45 1 * * *"), "Europe/Berlin")
    then = ms(datetime(2026, 10, 24, 20, tzinfo=UTC))
    for minute in range(0, 900, 5):
        after = then + minute * 60_000
        due = next_due(timing, after=after)
        assert due is not None
        assert due > after


def test_intervals_count_from_their_anchor() -> None:
    timing = Timing(Every(60), anchor=5_000)
    assert next_due(timing, after=0) == 65_000
    assert next_due(timing, after=65_000) == 125_000
    assert due_between(timing, after=0, until=200_000, limit=9) == [65_000, 125_000, 185_000]
    assert newest_due(timing, after=0, until=200_000) == 185_000
    assert newest_due(timing, after=190_000, until=200_000) is None


def test_one_time_is_due_once() -> None:
    timing = Timing(Once(1_000))
    assert next_due(timing, after=999) == 1_000
    assert next_due(timing, after=1_000) is None
    assert newest_due(timing, after=0, until=5_000) == 1_000


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "x * * * *", "* * 30 2 *"),
        *("1#2/3 * * * *", "*/0 * * * *", "5-1 * * * *", "0 0 * * MON#9", "@reboot", "1," * 200),
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(Rejected, match="no cron expression"):
        read_cron(expression)


def test_names_and_short_forms_are_taken() -> None:
    assert read_cron("@daily") == Cron("0 0 * * *")
    assert read_cron(" 0  9 * jan mon-fri ") == Cron("0 9 * JAN MON-FRI")


@pytest.mark.parametrize("seconds", [0, -5, 0.5, 10**9])
def test_an_interval_has_bounds(seconds: float) -> None:
    with pytest.raises(Rejected, match="nearest valid form"):
        read_every(seconds)
