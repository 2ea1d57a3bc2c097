"""Keeps waits right although the clock may be set back.

Each stored wait has the instant at which it was written. If that instant is in the future, the
clock was set back since, and the stored deadline means nothing any more. The wait then begins
again: it lasts as long as it was to last at first, counted from now. The clocks of several nodes
differ a little, so a small difference is no such sign.
"""

from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

TOLERANCE_MS: Final = 2_000
# The due instant of something that need not wait, whatever the clock says.
AT_ONCE: Final = 0


def due_at(now_ms: int, wait_ms: int) -> int:
    """Return the instant before which something must not be done, in the form in which it is
    stored."""
    return now_ms + wait_ms if wait_ms > 0 else AT_ONCE


def is_ahead(written_at: int, now_ms: int) -> bool:
    """Tell whether an instant that was stored earlier is in the future, which means that the clock
    was set back since."""
    return written_at > now_ms + TOLERANCE_MS


def retry_after_s(headers: Mapping[str, str], *, now_ms: int) -> float | None:
    """Return the wait that `Retry-After` asks for, given in seconds or as a date; None if there is
    none."""
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return float(value[:9])
    until_s = _instant_s(value)
    if until_s is None:
        return None
    # A date is compared with the server's own clock if it sends one: ours may be wrong by hours.
    asked_s = _instant_s(headers.get("Date", ""))
    return max(until_s - (now_ms / 1000 if asked_s is None else asked_s), 0.0)


def _instant_s(value: str) -> float | None:
    """Return the date of a header in seconds since 1970, or None if it is no date."""
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
