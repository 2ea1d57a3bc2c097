"""Orders the errands that follow a turn without being asked for: a title and a summary."""

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.journal.events import Recorded, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.engine.models.roster import Backend
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.errands import Errands
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic, Wakes

log = structlog.get_logger("errands")


class Afterwards:
    """Orders a title for a person's conversation that has none, and a summary when the context has
    grown past the agent's mark. An order that the store does not take is not repeated: the next
    turn gives it again."""

    def __init__(self, errands: Errands, feed: Feed, *, has_titles: bool, wakes: Wakes) -> None:
        self._errands = errands
        self._feed = feed
        self._has_titles = has_titles
        self._wakes = wakes

    async def turn_is_over(
        self,
        claimed: Claimed,
        backend: Backend,
        *,
        queued: TurnQueued,
        outcome: Outcome,
        context_tokens: int,
    ) -> None:
        """Order the errands that a settled turn has made necessary."""
        lease = claimed.lease
        is_nameless = not claimed.has_title and queued.kind == TurnKind.MESSAGE
        try:
            recorded: list[Recorded] = []
            if self._has_titles and is_nameless and outcome is Outcome.DONE:
                recorded += await self._errands.entitle(
                    lease.session, at=lease.turn, agent=backend.compact_agent or backend.name
                )
            if context_tokens > backend.compact_tokens:
                recorded += await self._errands.compact(
                    lease.session,
                    keep_tokens=backend.offer.keep_tokens,
                    agent=backend.compact_agent or backend.name,
                    stand_in=backend.name if backend.compact_agent else "",
                )
        except (Transient, Ambiguous) as error:
            log.debug("an errand may not be sent", error=error.message, session=lease.session)
            # The order may have been stored although the answer was lost: then it can be claimed.
            self._wakes.publish(Topic.TURNS)
            return
        if recorded:
            self._feed.publish_recorded(recorded)
            self._wakes.publish(Topic.TURNS)
