"""Finds turns whose owner is gone, and applies the recovery policy to them."""

from collections.abc import Awaitable, Callable, Sequence

from perdure.domain.ids import TurnId
from perdure.domain.turn.recovery import Policy
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.turns import Nodes

REAP_MAX = 200


class Reaper:
    """Ends attempts whose owner is gone, and queues, asks about or leaves their turns.

    `is_holding_back` is True while suspects wait: turns of sessions that crashed before run one at
    a time. The pump calls `resume` again when a turn has ended, and at `look_again_ms`. `review`
    ends the turns of people who have lost their access."""

    def __init__(
        self, nodes: Nodes, feed: Feed, *, policy: Policy, review: Callable[[], Awaitable[None]]
    ) -> None:
        self._nodes = nodes
        self._feed = feed
        self._policy = policy
        self._review = review
        self._is_first = True
        self.is_holding_back = False
        self.look_again_ms: int | None = None

    async def step(self) -> bool:
        """End attempts without an owner, then apply the policy to interrupted turns. Returns True
        if anything was written."""
        ended = await self._nodes.reap(attempts_max=self._policy.attempts_max, limit=REAP_MAX)
        self._feed.publish_recorded(ended)
        # Before `resume`: a person who has lost access is not asked whether a turn should continue.
        if ended or self._is_first:
            await self._review()
            self._is_first = False
        return await self.resume() or bool(ended)

    async def reclaim(self, known: Sequence[TurnId]) -> None:
        """Put back turns that belong to this node without running here, after a claim whose answer
        was lost. `known` are the turns that run here."""
        ended = await self._nodes.reclaim(known=known, attempts_max=self._policy.attempts_max)
        self._feed.publish_recorded(ended)
        await self.resume()

    async def resume(self) -> bool:
        """Apply the policy to interrupted turns. Returns True if anything was written."""
        resumed = await self._nodes.resume(self._policy, limit=REAP_MAX)
        self.is_holding_back = resumed.is_holding_back
        self.look_again_ms = resumed.look_again_ms
        self._feed.publish_recorded(resumed.recorded)
        return bool(resumed.recorded)
