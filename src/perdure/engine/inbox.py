"""The one door in: accept, and what the process does right after the commit."""

from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.updates import Accepted, Update
from perdure.engine.feed import Feed
from perdure.engine.turns import TurnPump
from perdure.ports.inbox import Inbox


class Door:
    """Wakes whoever has work once something is durable. Dying before the wake-up loses nothing:
    the rows are there, and the next start looks."""

    def __init__(self, inbox: Inbox, feed: Feed, pump: TurnPump, *, queue_max: int) -> None:
        self._inbox = inbox
        self._feed = feed
        self._pump = pump
        self._queue_max = queue_max

    async def accept(self, update: Update) -> Accepted:
        accepted = await self._inbox.accept(update, queue_max=self._queue_max)
        if not accepted.is_duplicate:
            self._feed.publish_recorded(accepted.recorded)
            self._feed.moved(accepted.conversation, accepted.session)
            self._pump.wake()
        return accepted

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None:
        recorded = await self._inbox.stop(turn, by=by)
        self._pump.abandon(turn)
        self._feed.publish_recorded(recorded)
        self._pump.wake()
