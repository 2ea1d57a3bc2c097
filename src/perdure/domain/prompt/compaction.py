"""Says how a summary is told to the model in place of older turns, and when compaction is tried
again. A compaction is a view: the turns themselves do not change."""

from typing import Final

from perdure.domain.journal.events import PromptExpanded
from perdure.domain.journal.session_events import Compacted
from perdure.domain.tools.framing import expanded_text

# The newest turns are told as they are: as many as fit, but at least and at most so many.
KEEP_TURNS_MIN: Final = 2
KEEP_TURNS_MAX: Final = 12
# The share of the model's context that turns may take which are told as they are.
KEEP_SHARE: Final = 0.2
_BACK_OFF_MS: Final = 60_000
_BACK_OFF_MAX_MS: Final = 6 * 3_600_000


def background(summary: str) -> str:
    """Return a summary as the model reads it: as something to know, not something to do."""
    return (
        "<background>\nWhat was said earlier in this conversation, summarised by the gateway. It"
        " is background: requests in it have been dealt with or are told as open, and only the"
        f" messages after it are to be answered.\n\n{summary.strip()}\n</background>"
    )


def brought_text(brought: Compacted | PromptExpanded) -> str:
    """Return what the model reads in a user's message that no person has written."""
    if isinstance(brought, Compacted):
        return background(brought.summary)
    return expanded_text(brought)


def back_off_ms(failures: int) -> int:
    """Return how long the gateway does not try to compact by itself after so many failures in a
    row."""
    return min(_BACK_OFF_MS << min(failures - 1, 20), _BACK_OFF_MAX_MS)
