"""Tells operators about failures that only they can fix, and decides who reads the details.

If a provider refuses the key, every message of everybody fails. Each person is told in a sentence
that there is no answer. The operators' home conversations get the details once for each agent and
reason, and again only if the agent has worked in between and `AGAIN_S` has passed. This is kept in
memory: after a restart the operators are told once more.
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

# A server that fails every other time must not lead to a notice every other time.
AGAIN_S: Final = 600.0
log = structlog.get_logger("turn")


class Alarm:
    """Tells operators about failing agents, and remembers the causes and when it told them."""

    def __init__(self, operators: Operators, feed: Feed, *, clock: Clock, wakes: Wakes) -> None:
        self._operators = operators
        self._feed = feed
        self._clock = clock
        self._wakes = wakes
        self._failing: set[tuple[str, str]] = set()
        self._told_at: dict[tuple[str, str], float] = {}

    async def audience(self, claimed: Claimed, settlement: Settlement) -> Audience:
        """Return who reads the reply to a turn: an operator in private, or people. Only a failure
        has details to hide, so other turns need no look into the store."""
        is_private = not claimed.is_shared and not claimed.address.person
        if settlement.outcome is not Outcome.FAILED or not is_private:
            return Audience.PEOPLE
        asked = partial(self._operators.is_operator, claimed.principal)
        return Audience.of(is_operator=await persist(asked, clock=self._clock))

    async def turn_is_over(
        self, claimed: Claimed, settlement: Settlement, audience: Audience
    ) -> None:
        """Tell the operators' home conversations about a new cause of failure. An operator's
        conversation whose reply has just given the details is left out."""
        agent, reason = cause = settlement.agent, settlement.reason
        if settlement.outcome is Outcome.DONE:
            self._failing = {each for each in self._failing if each[0] != agent}
            return
        if settlement.outcome is not Outcome.FAILED or reason not in ALARMING:
            return
        if self._is_new(cause) and not await self._tell(claimed, settlement, audience):
            self._forget(cause)

    def _is_new(self, cause: tuple[str, str]) -> bool:
        """Note a cause of failure. Returns True if the operators are to be told about it. It counts
        as told already while they are being told, so that turns which fail together tell once."""
        now_s = self._clock.monotonic_s()
        is_known = cause in self._failing
        self._failing.add(cause)
        if is_known or now_s - self._told_at.get(cause, -AGAIN_S) < AGAIN_S:
            return False
        self._told_at[cause] = now_s
        return True

    def _forget(self, cause: tuple[str, str]) -> None:
        """Let the next failure of this cause tell the operators: they may know nothing of it."""
        self._failing.discard(cause)
        del self._told_at[cause]

    async def _tell(self, claimed: Claimed, settlement: Settlement, audience: Audience) -> bool:
        """Tell the operators about a failure. Returns False if that is not known to be stored. If
        only the answer of the store was lost, they may be told twice."""
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
            return False
        self._feed.publish_recorded(told)
        self._wakes.publish(Topic.OUTBOX)
        return True
