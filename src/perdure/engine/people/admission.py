"""Checks again who may speak: whenever a turn begins, and when somebody's access may have ended.

`domain/people/access.py` decides. The store returns the facts about the person with every claimed
turn, and the terms are those of the current configuration.
"""

from collections.abc import Callable
from typing import Final

import structlog

from perdure.domain.ids import TurnId
from perdure.domain.people.access import Speaker, Terms, access_refusal
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.turns import Turns
from perdure.ports.turns.wakes import Topic, Wakes

# How many turns are read at a time.
AT_ONCE: Final = 500
log = structlog.get_logger("access")


class Admission:
    """Decides whether a turn may begin. `terms` returns the current terms of an adapter."""

    def __init__(self, terms: Callable[[str], Terms]) -> None:
        self._terms = terms

    def refusal(self, speaker: Speaker) -> str:
        """Return why a turn of this speaker may not begin, or an empty string if it may."""
        return access_refusal(self._terms(speaker.adapter).rules, speaker)


class Review:
    """Ends the turns of people who may not speak any more: a turn at work is stopped, one that is
    queued or interrupted is refused. A turn that is missed here is refused when it begins."""

    def __init__(self, turns: Turns, admission: Admission, feed: Feed, *, wakes: Wakes) -> None:
        self._turns = turns
        self._admission = admission
        self._feed = feed
        self._wakes = wakes

    async def step(self) -> None:
        """Look at every turn that is not settled, in the order of their ids. When a turn ends, its
        untaken messages become turns with newer ids, so this finds them too."""
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
