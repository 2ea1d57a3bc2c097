"""Decides how often growing text is stored and shown, and so how often it is worth reading.

The pauses grow with the age of the message. A flush writes a whole page, so a long answer that was
flushed as often as its first words would write a hundred times its own size. The longer pauses end
at instants that all messages share, so that their flushes share a commit.
"""

import math
from typing import Final

CADENCE_S: Final = 0.06
CADENCE_MAX_S: Final = 0.24
# A reader that reads this long before a flush has handed over the text when the flush begins.
_BEFORE_S: Final = 0.01


def pause_s(now_s: float, *, grown_s: float) -> float:
    """Return how long to wait before the next flush of a message that has grown for `grown_s`.

    The step doubles with the age of the message, from `CADENCE_S` to `CADENCE_MAX_S`. Once it has
    grown, the pause takes at least `CADENCE_S` and ends at a multiple of the step on the clock.
    """
    step_s = _step_s(grown_s)
    if step_s == CADENCE_S:
        return CADENCE_S
    return math.ceil((now_s + CADENCE_S) / step_s) * step_s - now_s


def gathering_s(now_s: float, *, grown_s: float) -> float:
    """Return for how long more text may arrive before it is read: until just before the next flush
    of a message that has grown for `grown_s`. The text of a young message is read at once."""
    step_s = _step_s(grown_s)
    if step_s == CADENCE_S:
        return 0.0
    return math.ceil((now_s + 2 * _BEFORE_S) / step_s) * step_s - _BEFORE_S - now_s


def _step_s(grown_s: float) -> float:
    """Return the time between two flushes of a message of this age."""
    step_s = CADENCE_S
    while 2 * step_s <= min(grown_s, CADENCE_MAX_S):
        step_s *= 2
    return step_s
