"""The ledger of one running turn: what it has written so far, and the only way to write more of it.

Every write carries the turn's lease and is repeated by the table in `persist.py`. After a write of
unknown fate the journal is read: what of it is there took effect, and is not written again. What
took effect is told to whoever watches.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from perdure.domain.events import AnyEvent, Recorded, SteerTaken, TurnQueued, TurnSettled
from perdure.domain.outcomes import Asked, Interruption
from perdure.domain.recovery import has_untaken_steers
from perdure.engine.feed import Feed
from perdure.engine.persist import persist, to_its_end
from perdure.ports.clock import Clock
from perdure.ports.history import Conversations
from perdure.ports.turns import Claimed, Piece, Settled, Settlement, Turns


class Ledger:
    """Raises `Fenced` from every write when the turn is no longer ours."""

    def __init__(
        self,
        claimed: Claimed,
        *,
        turns: Turns,
        conversations: Conversations,
        feed: Feed,
        clock: Clock,
    ) -> None:
        self.lease = claimed.lease
        self.events: list[Recorded] = list(claimed.events)
        self._turns = turns
        self._conversations = conversations
        self._feed = feed
        self._clock = clock

    @property
    def queued(self) -> TurnQueued:
        """The event that the turn began with."""
        return next(r.event for r in self.events if isinstance(r.event, TurnQueued))

    async def append(self, events: Sequence[AnyEvent], *, piece: Piece | None = None) -> None:
        """Journal events, and with them a piece of the text that is being written."""
        last = events[-1]
        recorded = await persist(
            partial(self._turns.append, self.lease, events, piece=piece),
            clock=self._clock,
            happened=self._finding(lambda event: event == last),
        )
        self._took_effect(recorded)

    async def take_steers(self) -> None:
        """Put messages that came for this turn into it."""
        taken = await persist(
            partial(self._turns.take_steers, self.lease),
            clock=self._clock,
            happened=self._finding(lambda event: isinstance(event, SteerTaken)),
        )
        self._took_effect(taken)

    @property
    def has_untaken_steers(self) -> bool:
        return has_untaken_steers(self.events)

    async def settle(self, settlement: Settlement, then: Callable[[Settled], None]) -> None:
        """End the turn. Whoever is cancelled meanwhile waits until it is known how that went."""
        settling = persist(
            partial(self._turns.settle, self.lease, settlement),
            clock=self._clock,
            happened=self._find_settled,
        )

        def take_effect(settled: Settled) -> None:
            self._took_effect(settled.recorded)
            then(settled)

        await to_its_end(settling, take_effect)

    async def interrupt(self, reason: Interruption, asked: Asked, *, attempts_max: int) -> None:
        """End this attempt; the turn goes on later."""
        interrupt = partial(
            self._turns.interrupt, self.lease, reason, attempts_max=attempts_max, asked=asked
        )
        self._took_effect(await persist(interrupt, clock=self._clock))

    def _took_effect(self, recorded: Sequence[Recorded]) -> None:
        self.events += recorded
        self._feed.publish_recorded(recorded)  # also news for the session an errand serves

    def _finding(
        self, is_it: Callable[[AnyEvent], bool]
    ) -> Callable[[], Awaitable[list[Recorded] | None]]:
        """Return a search for a write of unknown fate: what of it is in the journal."""

        async def find() -> list[Recorded] | None:
            new = await self._stored_since()
            return new if any(is_it(recorded.event) for recorded in new) else None

        return find

    async def _find_settled(self) -> Settled | None:
        new = await self._stored_since()
        is_settled = any(isinstance(recorded.event, TurnSettled) for recorded in new)
        return Settled(recorded=new, has_more=True) if is_settled else None

    async def _stored_since(self) -> list[Recorded]:
        """Return this turn's events that we do not know of."""
        known = self.events[-1].seq
        (stored,) = await persist(
            partial(self._conversations.chain, self.lease.turn, limit=1), clock=self._clock
        )
        return [recorded for recorded in stored if recorded.seq > known]
