"""Accepts everything that comes in, and wakes the parts of this node that have work after the
commit."""

from collections.abc import Callable, Sequence

from perdure.domain.ids import CallId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Accepted, Update, UpdateEffect
from perdure.domain.journal.events import NoticePosted, Recorded
from perdure.domain.journal.records import EffectView
from perdure.domain.people.menu import Menu
from perdure.engine.turns.pump import TurnPump
from perdure.engine.watching.feed import Feed
from perdure.ports.people.places import OutgoingMessage, Places, SentMessage
from perdure.ports.turns.inbox import Inbox
from perdure.ports.turns.questions import Effects, QuestionReply, Questions, QuestionTaken
from perdure.ports.turns.wakes import Topic, Wakes


class NodeDoor:
    """Implements `Door`: stores what comes in, then publishes it and wakes the pumps. If the
    process dies before the wake-up, nothing is lost: the rows are stored, and the next start looks
    at them."""

    def __init__(  # noqa: PLR0913 - what an acceptance needs
        self,
        inbox: Inbox,
        places: Places,
        questions: Questions,
        effects: Effects,
        feed: Feed,
        pump: TurnPump,
        *,
        queue_max: int,
        menu: Callable[[], Menu] = Menu,
        restart: Callable[[SessionId], None],
        wakes: Wakes,
    ) -> None:
        self._inbox = inbox
        self._places = places
        self._questions = questions
        self._effects = effects
        self._feed = feed
        self._pump = pump
        self._queue_max = queue_max
        self._menu = menu
        self._restart = restart
        self._wakes = wakes

    async def accept(self, update: Update) -> Accepted:
        """Store an update, and begin its turn at once if it can run now."""
        with self._pump.hold_slot(update.principal) as has_slot:
            if has_slot:
                received = await self._inbox.accept_and_start(
                    update, queue_max=self._queue_max, menu=self._menu()
                )
                accepted, claimed = received.accepted, received.claimed
            else:
                accepted = await self._inbox.accept(
                    update, queue_max=self._queue_max, menu=self._menu()
                )
                claimed = None
            self._tell(accepted, is_claimed=claimed is not None)
            if claimed is not None:
                self._pump.begin(claimed)
        return accepted

    def _tell(self, accepted: Accepted, *, is_claimed: bool) -> None:
        """Publish what an acceptance has stored, and wake the pumps that have work by it."""
        if accepted.is_duplicate:
            # The answer to the first try may have been lost, and then nobody was woken.
            self._wakes.publish(Topic.TURNS)
            self._wakes.publish(Topic.OUTBOX)
            self._wakes.publish(Topic.FETCHES)
            self._feed.moved(accepted.conversation, accepted.session)
            return
        for turn in accepted.ended:
            self._wakes.publish(Topic.ENDED, turn)
        self._feed.publish_recorded(accepted.recorded)
        if not is_claimed:
            self._wakes.publish(Topic.TURNS)
        if any(getattr(r.event, "attachments", ()) for r in accepted.recorded):
            self._wakes.publish(Topic.FETCHES)
        has_notice = any(isinstance(r.event, NoticePosted) for r in accepted.recorded)
        is_plain = accepted.effect is UpdateEffect.QUEUED and not accepted.queue_position
        if accepted.command:
            self._wakes.publish(Topic.JOBS)  # it may have ordered a job
        if has_notice or accepted.command or accepted.ended or not is_plain:
            # The outbox has text to send, or bubbles to edit or delete.
            self._wakes.publish(Topic.OUTBOX)
        for conversation, session in ((accepted.conversation, accepted.session), *accepted.moved):
            self._feed.moved(conversation, session)
        if accepted.effect is UpdateEffect.STEERED and accepted.turn is not None:
            self._wakes.publish(Topic.STEERED, accepted.turn)
        if accepted.effect is UpdateEffect.RESTARTING:
            self._restart(accepted.session)

    async def send(self, sending: OutgoingMessage) -> SentMessage:
        """Store a message that a person sends into a place."""
        sent = await self._places.send(sending, queue_max=self._queue_max)
        self._tell(sent.accepted, is_claimed=False)
        return sent

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None:
        """Settle a turn as stopped. Its runner finds out by a refused write."""
        recorded = await self._inbox.stop(turn, by=by)
        self._wakes.publish(Topic.ENDED, turn)
        self._happened(recorded)
        self._wakes.publish(Topic.OUTBOX)  # the text that was shown gets a mark

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> None:
        """Change the text of a message that still waits."""
        self._happened(await self._inbox.amend(turn, text, by=by))

    async def answer(self, reply: QuestionReply) -> QuestionTaken:
        """Take the answer to a question of an agent. With the last one its turn goes on."""
        taken = await self._questions.answer(reply)
        self._happened(taken.recorded)
        self._wakes.publish(Topic.OUTBOX)  # the question loses its buttons
        return taken

    async def mark_effect(
        self, call: CallId, *, has_happened: bool, by: PrincipalId, principal: PrincipalId | None
    ) -> EffectView:
        """Record whether a call has happened. If its turn still runs, it hears of that."""
        marked = await self._effects.mark(
            call, has_happened=has_happened, by=by, principal=principal
        )
        self._wakes.publish(Topic.STEERED, marked.turn)
        return marked

    def _happened(self, recorded: Sequence[Recorded]) -> None:
        self._feed.publish_recorded(recorded)
        self._wakes.publish(Topic.TURNS)
