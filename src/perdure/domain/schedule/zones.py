"""Finds time zones by their names."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

_MINUTE_S: Final = 60
_OFFSET: Final = "UTC"
_FORM: Final = re.compile(r"([+-])([01]\d|2[0-3]):([0-5]\d)")


def offset_name(then: datetime) -> str:
    """Return the offset of a time in its zone, such as UTC+02:00."""
    minutes = int((then.utcoffset() or timedelta()).total_seconds()) // _MINUTE_S
    sign = "-" if minutes < 0 else "+"
    return f"{_OFFSET}{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else _OFFSET


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo | None:
    """Return the zone with this name: UTC, UTC with an offset such as UTC+02:00, or a name of the
    time zone database. Returns None if there is none."""
    if name == _OFFSET:
        return UTC
    if name.startswith((f"{_OFFSET}+", f"{_OFFSET}-")):
        return _fixed(name.removeprefix(_OFFSET))
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - many machines are in UTC

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return None


def _fixed(offset: str) -> tzinfo | None:
    """Return the zone with an offset such as +02:00."""
    found = _FORM.fullmatch(offset)
    if found is None:
        return None
    sign, hours, minutes = found.groups()
    away = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-away if sign == "-" else away)
