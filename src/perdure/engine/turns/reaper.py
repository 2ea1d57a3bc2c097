"""The reaper: finds turns whose owner is gone and applies the recovery policy to them."""

from collections.abc import Awaitable, Callable, Sequence

from perdure.domain.ids import TurnId
from perdure.domain.turn.recovery import Policy
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.turns import Nodes

REAP_MAX = 200


class Reaper:
    """`is_holding_back`: turns of sessions that crashed before wait for each other; the pump comes
    back when one of them is done, and at `look_again_ms`. `review` ends what may not go on because
    its person's access has ended; nobody is asked what is to become of that."""

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
        """End attempts without an owner, then continue, ask or leave what is interrupted."""
        ended = await self._nodes.reap(attempts_max=self._policy.attempts_max, limit=REAP_MAX)
        self._feed.publish_recorded(ended)
        if ended or self._is_first:
            await self._review()
            self._is_first = False
        return await self.resume() or bool(ended)

    async def reclaim(self, known: Sequence[TurnId]) -> None:
        """After a claim whose answer was lost: put back what we hold without knowing it."""
        ended = await self._nodes.reclaim(known=known, attempts_max=self._policy.attempts_max)
        self._feed.publish_recorded(ended)
        await self.resume()

    async def resume(self) -> bool:
        resumed = await self._nodes.resume(self._policy, limit=REAP_MAX)
        self.is_holding_back = resumed.is_holding_back
        self.look_again_ms = resumed.look_again_ms
        self._feed.publish_recorded(resumed.recorded)
        return bool(resumed.recorded)
