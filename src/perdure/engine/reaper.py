"""The reaper: finds turns whose owner is gone and puts them back to work."""

from collections.abc import Sequence

from perdure.domain.ids import TurnId
from perdure.engine.feed import Feed
from perdure.ports.turns import Nodes

REAP_MAX = 200


class Reaper:
    def __init__(self, nodes: Nodes, feed: Feed, *, attempts_max: int) -> None:
        self._nodes = nodes
        self._feed = feed
        self._attempts_max = attempts_max

    async def step(self) -> bool:
        """End attempts without an owner, then queue interrupted turns again."""
        ended = await self._nodes.reap(attempts_max=self._attempts_max, limit=REAP_MAX)
        self._feed.publish_recorded(ended)
        return await self._resume() or bool(ended)

    async def reclaim(self, known: Sequence[TurnId]) -> None:
        """After a claim whose answer was lost: put back what we hold without knowing it."""
        ended = await self._nodes.reclaim(known=known, attempts_max=self._attempts_max)
        self._feed.publish_recorded(ended)
        await self._resume()

    async def _resume(self) -> bool:
        resumed = await self._nodes.resume(limit=REAP_MAX)
        self._feed.publish_recorded(resumed)
        return bool(resumed)
