"""The one door in: accept, and what the process does right after the commit."""

from collections.abc import Callable, Sequence

from perdure.domain.events import Recorded
from perdure.domain.ids import PrincipalId, SessionId, TurnId
from perdure.domain.updates import Accepted, Effect, Update
from perdure.engine.feed import Feed
from perdure.engine.turns import TurnPump
from perdure.ports.inbox import Inbox


class Door:
    """Wakes whoever has work once something is durable. Dying before the wake-up loses nothing:
    the rows are there, and the next start looks."""

    def __init__(
        self,
        inbox: Inbox,
        feed: Feed,
        pump: TurnPump,
        *,
        queue_max: int,
        restart: Callable[[SessionId], None],
    ) -> None:
        self._inbox = inbox
        self._feed = feed
        self._pump = pump
        self._queue_max = queue_max
        self._restart = restart

    async def accept(self, update: Update) -> Accepted:
        accepted = await self._inbox.accept(update, queue_max=self._queue_max)
        if accepted.is_duplicate:
            return accepted
        for turn in accepted.ended:
            self._pump.abandon(turn)
        self._happened(accepted.recorded)
        self._feed.moved(accepted.conversation, accepted.session)
        if accepted.effect is Effect.STEERED and accepted.turn is not None:
            self._pump.steer(accepted.turn)
        if accepted.effect is Effect.RESTARTING:
            self._restart(accepted.session)
        return accepted

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None:
        recorded = await self._inbox.stop(turn, by=by)
        self._pump.abandon(turn)
        self._happened(recorded)

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> None:
        self._happened(await self._inbox.amend(turn, text, by=by))

    def _happened(self, recorded: Sequence[Recorded]) -> None:
        self._feed.publish_recorded(recorded)
        self._pump.wake()
