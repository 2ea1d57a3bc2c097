"""Defines the port that orders work beside conversations."""

from typing import Protocol

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded


class Errands(Protocol):
    """Orders titles and summaries. An errand is a turn of its own, and the settlement of that turn
    brings its result back.

    Guarantees: each method is one transaction, and never orders an errand that is under way. It
    returns what it appended; empty if nothing was ordered.
    Requires: nothing.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: either the errand is queued, or the next turn orders it again.
    """

    async def entitle(self, session: SessionId, *, at: TurnId, agent: str) -> list[Recorded]:
        """Order a title for the session from the exchange of the turn `at`, unless it has a title
        or was tried too often."""

    async def compact(
        self, session: SessionId, *, keep_tokens: int, agent: str, stand_in: str = ""
    ) -> list[Recorded]:
        """Order a summary of the older turns, unless there are none, a summary is under way, or
        earlier failures say to wait. The newest turns, of `keep_tokens`, are left as they are. If
        `agent` cannot write it, `stand_in` does."""
