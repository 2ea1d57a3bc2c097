"""Finds the name of the machine's time zone, which models are told."""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from perdure.domain.schedule.zones import offset_name, zone_of

ZONES: Final = "zoneinfo/"
LINK: Final = Path("/etc/localtime")
NAME: Final = Path("/etc/timezone")
_NAMES_OF_UTC: Final = ("UTC", "Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Universal", "GMT", "Etc/GMT")


def time_zone(environ: Mapping[str, str], *, link: Path = LINK, name: Path = NAME) -> str:
    """Return the name of the time zone: that of TZ, else the machine's. A zone without a known name
    is named by the offset that it has now, such as UTC+02:00."""
    if "TZ" in environ:
        named = [environ["TZ"].removeprefix(":") or "UTC"]
    else:
        named = [str(link.resolve()), _words(name)]
    for each in named:
        found = each.rpartition(ZONES)[2]
        if found in _NAMES_OF_UTC:
            return "UTC"
        if found and not found.startswith("/") and zone_of(found) is not None:
            return found
    away = timedelta(seconds=time.localtime().tm_gmtoff)
    return offset_name(datetime.fromtimestamp(0, tz=timezone(away)))


def _words(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""
