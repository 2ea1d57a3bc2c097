"""Keeps waits right although the clock may be set back.

Each stored wait has the instant at which it was written. If that instant is in the future, the
clock was set back since, and the stored deadline means nothing any more. The wait then begins
again: it lasts as long as it was to last at first, counted from now. The clocks of several nodes
differ a little, so a small difference is no such sign.
"""

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
