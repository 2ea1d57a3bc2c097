"""The ledger of one running turn: what it has written so far, and the only way to write more of it.

Every write carries the turn's lease and is repeated by the table in `persist.py`. After a write of
unknown fate the journal is read: what of it is there took effect, and is not written again. What
took effect is told to whoever watches.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnswerAwaited,
    AnyEvent,
    Recorded,
    SteerTaken,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.turn.recovery import has_untaken_steers
from perdure.domain.turn.watching import Delta
from perdure.engine.foundation.persist import persist, to_its_end
from perdure.engine.watching.feed import Feed
from perdure.ports.records.history import Conversations
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Claimed, Settled, Settlement, TextPiece, Turns

log = structlog.get_logger("turn")


class Ledger:
    """Holds one running turn's events, and writes more of them. An agent is shown it as its `Work`.

    `append`, `show`, `take_steers`, `tell`, `wait`, `settle` and `interrupt` raise `Fenced` when
    the turn is no longer ours."""

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
        self._claimed = claimed
        self.events: list[Recorded] = list(claimed.events)
        self._turns = turns
        self._conversations = conversations
        self._feed = feed
        self.clock = clock
        self._has_steers = has_untaken_steers(self.events)

    @property
    def facts(self) -> list[AnyEvent]:
        """The turn's events, without where they stand."""
        return [recorded.event for recorded in self.events]

    @property
    def session(self) -> SessionId:
        return self.lease.session

    @property
    def turn(self) -> TurnId:
        return self.lease.turn

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def conversation(self) -> ConversationId:
        return self._claimed.conversation

    @property
    def principal(self) -> PrincipalId:
        return self._claimed.principal

    @property
    def parent(self) -> TurnId | None:
        """The turn that this one stands on."""
        return self._claimed.parent

    async def chain(self, *, limit: int) -> list[list[Recorded]]:
        """Return the last turns that this one stands on, oldest first."""
        if self.parent is None:
            return []
        read = partial(self._conversations.chain, self.parent, limit=limit)
        return await persist(read, clock=self.clock)

    @property
    def queued(self) -> TurnQueued:
        """The event that the turn began with."""
        return next(r.event for r in self.events if isinstance(r.event, TurnQueued))

    async def append(
        self,
        events: Sequence[AnyEvent],
        *,
        piece: TextPiece | None = None,
        origin: RequestOrigin = NOTHING_ASKED,
    ) -> None:
        """Journal events, and with them a piece of the text that is being written, or the origin
        of the request that they answer."""
        last = events[-1]
        recorded = await persist(
            partial(self._turns.append, self.lease, events, piece=piece, origin=origin),
            clock=self.clock,
            happened=self._finding(lambda event: event == last),
        )
        self._took_effect(recorded)

    def show(self, delta: Delta) -> None:
        """Tell those who watch about text that is durable."""
        self._feed.publish(self.lease.session, (delta,))

    def steered(self) -> None:
        """Note that a message for this turn was accepted; the next `take_steers` finds it."""
        self._has_steers = True

    async def take_steers(self) -> None:
        """Put the messages that came for this turn into it, if any did."""
        if not self._has_steers:
            return
        self._has_steers = False
        taken = await persist(
            partial(self._turns.take_steers, self.lease),
            clock=self.clock,
            happened=self._finding(lambda event: isinstance(event, SteerTaken)),
        )
        self._took_effect(taken)

    async def tell(self, text: str) -> None:
        """Tell the people something that the model never sees. It is told once or not at all: one
        of unknown fate is not told again, and the turn goes on."""
        try:
            self._feed.publish_recorded(await self._turns.tell(self.lease, text))
        except (Transient, Ambiguous) as error:
            log.warning("people could not be told", turn=self.lease.turn, error=error.message)

    async def wait(self, question: AnswerAwaited) -> None:
        """End this attempt with a question: the turn has no owner until it is answered."""
        recorded = await persist(
            partial(self._turns.wait, self.lease, question),
            clock=self.clock,
            happened=self._finding(lambda event: event == question),
        )
        self._took_effect(recorded)

    async def settle(self, settlement: Settlement, then: Callable[[Settled], None]) -> None:
        """End the turn. Whoever is cancelled meanwhile waits until it is known how that went."""
        settling = persist(
            partial(self._turns.settle, self.lease, settlement),
            clock=self.clock,
            happened=self._find_settled,
        )

        def take_effect(settled: Settled) -> None:
            self._took_effect(settled.recorded)
            then(settled)

        await to_its_end(settling, take_effect)

    async def interrupt(
        self, reason: Interruption, asked: NodeRequest, *, attempts_max: int
    ) -> None:
        """End this attempt; the turn goes on later."""
        interrupt = partial(
            self._turns.interrupt, self.lease, reason, attempts_max=attempts_max, asked=asked
        )
        self._took_effect(await persist(interrupt, clock=self.clock))

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
            partial(self._conversations.chain, self.lease.turn, limit=1), clock=self.clock
        )
        return [recorded for recorded in stored if recorded.seq > known]
