"""Holds what one running turn has written so far, and is the only way to write more of it.

Every write carries the turn's lease and is repeated by the table in `foundation/persist.py`. If the
answer to a write was lost, the journal is read: events that are found there took effect and are not
written again. Events that took effect are published to the watchers.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import (
    AnyEvent,
    Recorded,
    SteerTaken,
    TurnQueued,
    TurnSettled,
)
from perdure.domain.journal.question_events import AnswerAwaited, WorkDelegated
from perdure.domain.journal.session_events import RoomSought
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.turn.recovery import has_untaken_steers
from perdure.domain.turn.spent import Spent
from perdure.domain.turn.watching import Delta
from perdure.engine.foundation.persist import persist, to_its_end
from perdure.engine.models.prompts import CHAIN_MAX
from perdure.engine.turns.flusher import Flusher
from perdure.engine.watching.feed import Feed
from perdure.ports.agents.delegations import WorkOrder
from perdure.ports.people.places import TurnPosting
from perdure.ports.records.history import Conversations
from perdure.ports.system.clock import Clock
from perdure.ports.turns.room import ContextRoom, RoomMade
from perdure.ports.turns.turns import Claimed, Settled, Settlement, TextPiece, Turns

log = structlog.get_logger("turn")


class Ledger:
    """Holds one running turn's events, and writes more of them. Agents get it as the `Work` port.

    `append`, `flush`, `take_steers`, `tell`, `make_room`, `wait`, `post`, `settle` and `interrupt`
    raise `Fenced` when the turn no longer belongs to this process."""

    def __init__(  # noqa: PLR0913 - the ports by which a turn is written
        self,
        claimed: Claimed,
        *,
        turns: Turns,
        room: ContextRoom,
        conversations: Conversations,
        flusher: Flusher,
        feed: Feed,
        clock: Clock,
    ) -> None:
        self.lease = claimed.lease
        self._claimed = claimed
        self.events: list[Recorded] = list(claimed.events)
        self._turns = turns
        self._room = room
        self._conversations = conversations
        self._flusher = flusher
        self._feed = feed
        self.clock = clock
        self._has_steers = has_untaken_steers(self.events)

    @property
    def facts(self) -> list[AnyEvent]:
        """Return the turn's events, without their places in the journal."""
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
        """Return the turn that this one follows in the chain; None if it is the first."""
        return self._claimed.parent

    async def chain(self, *, limit: int) -> list[list[Recorded]]:
        """Return the last `limit` turns before this one in its chain, oldest first."""
        if self.parent is None:
            return []
        read = partial(self._conversations.chain, self.parent, limit=limit)
        return await persist(read, clock=self.clock)

    async def window(self) -> list[list[Recorded]]:
        """Return the turns before this one as the model is told them."""
        if self.parent is None:
            return []
        read = partial(self._conversations.window, self.parent, limit=CHAIN_MAX)
        return await persist(read, clock=self.clock)

    @property
    def queued(self) -> TurnQueued:
        """Return the event that the turn began with."""
        return next(r.event for r in self.events if isinstance(r.event, TurnQueued))

    async def append(
        self,
        events: Sequence[AnyEvent],
        *,
        piece: TextPiece | None = None,
        origin: RequestOrigin = NOTHING_ASKED,
    ) -> None:
        """Append events to the journal. A piece of growing text, or the origin of the request that
        the events answer, is stored in the same transaction."""
        # All events are written in one transaction, so the last one stands for all of them.
        last = events[-1]
        recorded = await persist(
            partial(self._turns.append, self.lease, events, piece=piece, origin=origin),
            clock=self.clock,
            happened=self._finding(lambda event: event == last),
        )
        self._took_effect(recorded)

    async def flush(
        self, piece: TextPiece, *, known: int = 0, events: Sequence[AnyEvent] = ()
    ) -> None:
        """Store a piece of growing text, then publish it to the watchers, without its first `known`
        code points, which they have. `events` are appended in the same transaction. The order
        matters: after a crash, nobody may have seen words that the store does not have."""
        if events:
            await self.append(events, piece=piece)
        else:
            await self._flusher.flush(piece)
        shown = Delta(
            turn=self.lease.turn,
            message=piece.message,
            offset=piece.start + known,
            text=piece.text[known:],
        )
        self._feed.publish(self.lease.session, (shown,))

    async def make_room(self, made: RoomMade) -> None:
        """Record what was found to make the turn's request shorter, and apply its summary."""
        recorded = await persist(
            partial(self._room.make, self.lease, made),
            clock=self.clock,
            happened=self._finding(lambda event: isinstance(event, RoomSought)),
        )
        self._took_effect(recorded)

    def steered(self) -> None:
        """Note that a message for this turn was accepted; the next `take_steers` finds it."""
        self._has_steers = True

    async def take_steers(self) -> None:
        """Put the messages that came for this turn into it, if there are any."""
        if not self._has_steers:
            return
        # Cleared before the write: a message that is accepted during it sets the flag again.
        self._has_steers = False
        taken = await persist(
            partial(self._turns.take_steers, self.lease),
            clock=self.clock,
            happened=self._finding(lambda event: isinstance(event, SteerTaken)),
        )
        self._took_effect(taken)

    async def tell(self, text: str) -> None:
        """Send the people a message that the model never sees. It is sent at most once: after an
        error it is not repeated, because it may have been stored, and the turn goes on."""
        try:
            self._feed.publish_recorded(await self._turns.tell(self.lease, text))
        except (Transient, Ambiguous) as error:
            log.warning("people could not be told", turn=self.lease.turn, error=error.message)

    async def wait(
        self,
        questions: Sequence[AnswerAwaited],
        work: Sequence[WorkOrder] = (),
        *,
        spent: Spent,
        live_max: int = 0,
    ) -> None:
        """End this attempt with questions to people and work for other agents. The turn has no
        owner until it has all that it waits for. Raises `Rejected` if more than `live_max` errands
        would be under way for its person."""

        def is_it(event: AnyEvent) -> bool:
            # They are written together, so one of them stands for all.
            if questions:
                return isinstance(event, AnswerAwaited) and event.question == questions[0].question
            return isinstance(event, WorkDelegated) and event.call == work[0].call

        wait = partial(self._turns.wait, self.lease, questions, work, spent=spent)
        recorded = await persist(
            partial(wait, live_max=live_max),
            clock=self.clock,
            happened=self._finding(is_it),
        )
        self._took_effect(recorded)

    async def post(self, posting: TurnPosting, *, why: str, queue_max: int) -> None:
        """Queue what a call sends into another conversation, and end the call. Raises what
        `Turns.post` raises if nothing was sent."""
        post = partial(self._turns.post, self.lease, posting, why=why, queue_max=queue_max)
        posted = await persist(post, clock=self.clock)
        self._took_effect(posted.recorded)
        accepted = posted.accepted
        self._feed.publish_recorded(accepted.recorded)
        self._feed.moved(accepted.conversation, accepted.session)

    async def settle(self, settlement: Settlement, then: Callable[[Settled], None]) -> None:
        """Settle the turn, and call `then` with the result. A caller that is cancelled meanwhile
        waits until the settlement is stored or refused."""
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
        self, reason: Interruption, asked: NodeRequest, *, attempts_max: int, spent: Spent
    ) -> None:
        """End this attempt. The turn may be attempted again later. It is safe to repeat this write:
        the epoch moves with it, so a second one is refused as `Fenced`."""
        interrupt = partial(
            self._turns.interrupt,
            self.lease,
            reason,
            attempts_max=attempts_max,
            asked=asked,
            spent=spent,
        )
        self._took_effect(await persist(interrupt, clock=self.clock))

    def _took_effect(self, recorded: Sequence[Recorded]) -> None:
        self.events += recorded
        # By the events' own sessions: a settled errand also writes to the session that it serves.
        self._feed.publish_recorded(recorded)

    def _finding(
        self, is_it: Callable[[AnyEvent], bool]
    ) -> Callable[[], Awaitable[list[Recorded] | None]]:
        """Return a function that looks for a write whose answer was lost. It returns the turn's new
        events if one of them satisfies `is_it`, and None if the write did not take effect."""

        async def find() -> list[Recorded] | None:
            new = await self._stored_since()
            return new if any(is_it(recorded.event) for recorded in new) else None

        return find

    async def _find_settled(self) -> Settled | None:
        """Return the settlement if it took effect although its answer was lost, else None."""
        new = await self._stored_since()
        is_settled = any(isinstance(recorded.event, TurnSettled) for recorded in new)
        # Whether a turn waits behind this one was in the lost answer; a look for it costs little.
        return Settled(recorded=new, has_more=True) if is_settled else None

    async def _stored_since(self) -> list[Recorded]:
        """Return the stored events of this turn that are newer than the ones held here."""
        known = self.events[-1].seq
        (stored,) = await persist(
            partial(self._conversations.chain, self.lease.turn, limit=1), clock=self.clock
        )
        return [recorded for recorded in stored if recorded.seq > known]
