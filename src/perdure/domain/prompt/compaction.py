"""Compaction is a view: what the model is told instead of the older turns, and when."""

from typing import Final

# The newest turns are told as they are: as many as fit, but not fewer and not more than these.
KEEP_TURNS_MIN: Final = 2
KEEP_TURNS_MAX: Final = 12
# Of the context, how much may be taken by turns that are kept as they are.
KEEP_SHARE: Final = 0.2
_BACK_OFF_MS: Final = 60_000
_BACK_OFF_MAX_MS: Final = 6 * 3_600_000


def background(summary: str) -> str:
    """A summary as the model reads it: something to know, not something to do."""
    return (
        "<background>\nWhat was said earlier in this conversation, summarised by the gateway. It"
        " is background: requests in it have been dealt with or are told as open, and only the"
        f" messages after it are to be answered.\n\n{summary.strip()}\n</background>"
    )


def back_off_ms(failures: int) -> int:
    """How long compaction is not tried again by itself after so many failures in a row."""
    return min(_BACK_OFF_MS << min(failures - 1, 20), _BACK_OFF_MAX_MS)
