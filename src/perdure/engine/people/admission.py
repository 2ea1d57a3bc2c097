"""Who may speak, asked again: whenever a turn begins, and when somebody's access may have ended.

The decision is the domain's (`domain/people/access.py`). The store brings the facts about the
person with every turn that is claimed, the terms are those of the configuration as it is now.
"""

from collections.abc import Callable
from typing import Final

import structlog

from perdure.domain.ids import TurnId
from perdure.domain.people.access import Speaker, Terms, refusal
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.turns import Turns
from perdure.ports.turns.wakes import Topic, Wakes

AT_ONCE: Final = 500
log = structlog.get_logger("access")


class Admission:
    """Says whether a turn may begin. `terms` are those of an adapter, read at every question."""

    def __init__(self, terms: Callable[[str], Terms]) -> None:
        self._terms = terms

    def refusal(self, speaker: Speaker) -> str:
        """Why a turn of this speaker may not begin; empty if it may."""
        return refusal(self._terms(speaker.adapter).rules, speaker)


class Review:
    """Ends the work of people who may not speak any more: what runs is stopped, what waits or was
    interrupted is refused. A turn that is missed here is found when it begins."""

    def __init__(self, turns: Turns, admission: Admission, feed: Feed, *, wakes: Wakes) -> None:
        self._turns = turns
        self._admission = admission
        self._feed = feed
        self._wakes = wakes

    async def step(self) -> None:
        """Look at every turn that is not settled. Those that an ending frees come last."""
        last: TurnId | None = None
        while found := await self._turns.unfinished(after=last, limit=AT_ONCE):
            for each in found:
                why_not = self._admission.refusal(each.speaker)
                if why_not:
                    await self._turn_away(each.turn, why_not)
            last = found[-1].turn

    async def _turn_away(self, turn: TurnId, why_not: str) -> None:
        recorded = await self._turns.turn_away(turn, why_not)
        self._wakes.publish(Topic.ENDED, turn)
        self._feed.publish_recorded(recorded)
        self._wakes.publish(Topic.TURNS)
        self._wakes.publish(Topic.OUTBOX)
        log.info("a turn was ended", turn=turn, reason=why_not)
