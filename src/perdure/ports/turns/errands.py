"""Work the gateway does beside conversations."""

from typing import Protocol

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded


class Errands(Protocol):
    """Sends errands on their way; they come back by the machinery of turns.

    Guarantees: `entitle` asks for a title from the exchange `at`, unless the session has one or
    was asked about too often;
    `compact` asks for a summary of the older turns, unless there is nothing to summarise, one is on
    its way, or earlier failures say to wait. Both return what they appended: the errand's turn can
    be claimed then. Nothing is sent twice at a time.
    Requires: nothing.
    Raises: `Transient`, `Ambiguous`.
    After a crash: either the errand is queued, or the next turn asks for it again.
    """

    async def entitle(self, session: SessionId, *, at: TurnId, agent: str) -> list[Recorded]: ...

    async def compact(
        self, session: SessionId, *, keep_tokens: int, agent: str
    ) -> list[Recorded]: ...
