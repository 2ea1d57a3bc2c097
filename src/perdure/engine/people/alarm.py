"""Tells those who run the gateway what only they can mend, and decides what others are told.

A refused key fails every message of everybody. Each of them is told in a sentence that there is no
answer; the operators' home conversations get the whole story, once for each agent and reason, and
again only when it has worked in between and some time has passed. What was told is remembered in
memory: after a restart it is told once more.
"""

from functools import partial
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.outcomes import Outcome
from perdure.domain.text import sentence
from perdure.domain.turn.endings import ALARMING, Audience
from perdure.engine.foundation.persist import persist
from perdure.engine.watching.feed import Feed
from perdure.ports.people.operators import Operators
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Claimed, Settlement
from perdure.ports.turns.wakes import Topic, Wakes

# A server that works every other time is no reason to write every other time.
AGAIN_S: Final = 600.0
log = structlog.get_logger("turn")


class Alarm:
    """Remembers which agents fail for which reasons, and when the operators were told."""

    def __init__(self, operators: Operators, feed: Feed, *, clock: Clock, wakes: Wakes) -> None:
        self._operators = operators
        self._feed = feed
        self._clock = clock
        self._wakes = wakes
        self._failing: set[tuple[str, str]] = set()
        self._told_at: dict[tuple[str, str], float] = {}

    async def audience(self, claimed: Claimed, settlement: Settlement) -> Audience:
        """Return who reads the reply to a turn. Only a failure has anything to hide, so nobody is
        looked up for other turns."""
        is_private = not claimed.is_shared and not claimed.address.person
        if settlement.outcome is not Outcome.FAILED or not is_private:
            return Audience.PEOPLE
        asked = partial(self._operators.is_operator, claimed.principal)
        return Audience.of(is_operator=await persist(asked, clock=self._clock))

    async def turn_is_over(
        self, claimed: Claimed, settlement: Settlement, audience: Audience
    ) -> None:
        """Tell the operators' homes of a new cause. The one that has just read it in the reply is
        left out."""
        agent, reason = settlement.agent, settlement.reason
        if settlement.outcome is Outcome.DONE:
            self._failing = {cause for cause in self._failing if cause[0] != agent}
            return
        if settlement.outcome is not Outcome.FAILED or reason not in ALARMING:
            return
        if self._is_new((agent, reason)):
            await self._tell(claimed, settlement, audience)

    def _is_new(self, cause: tuple[str, str]) -> bool:
        now_s = self._clock.monotonic_s()
        is_known = cause in self._failing
        self._failing.add(cause)
        if is_known or now_s - self._told_at.get(cause, -AGAIN_S) < AGAIN_S:
            return False
        self._told_at[cause] = now_s
        return True

    async def _tell(self, claimed: Claimed, settlement: Settlement, audience: Audience) -> None:
        named = f"Agent {settlement.agent}" if settlement.agent else "An agent"
        why = sentence(settlement.detail or settlement.reason)
        text = (
            f"⚠️ {named} fails: {why}\n\n"
            "You are told once, until it has worked again. "
            f"perdure explain {claimed.lease.turn} shows the turn."
        )
        but = claimed.conversation if audience is Audience.OPERATORS else None
        try:
            told = await self._operators.tell(text, but=but)
        except (Transient, Ambiguous) as error:
            log.warning("the operators could not be told", error=error.message)
            return
        self._feed.publish_recorded(told)
        self._wakes.publish(Topic.OUTBOX)
