"""Waiting for an instant by a clock that may be set back.

Whatever waits remembers when its wait was written. If that lies in the future, the clock has gone
back since, and the instant means nothing any more: it then waits for as long as it was to wait at
first, counted from now. Where several nodes share a store their clocks differ a little, so a small
difference is no such sign.
"""

from typing import Final

TOLERANCE_MS: Final = 2_000
# What is due at this instant waits for nothing, whatever the clock says.
AT_ONCE: Final = 0


def due_at(now_ms: int, wait_ms: int) -> int:
    """Return the instant before which something is not to be done, as it is stored."""
    return now_ms + wait_ms if wait_ms > 0 else AT_ONCE


def is_ahead(written_at: int, now_ms: int) -> bool:
    """Tell whether an instant of the past lies in the future: the clock was set back since."""
    return written_at > now_ms + TOLERANCE_MS
