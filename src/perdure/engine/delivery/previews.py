"""Shows turns while they run: the typing signal, and the text as it grows.

A preview shows only what is already durable, and ends with its attempt; losing it loses nothing.
Then it hands over to the outbox, once (`handover.py`), which puts the final words in the place of
the bubbles.

A preview uses `turn_text.py`, which computes the text, and `showing.py`, which decides when to show
it and does so. This module joins the two: it waits for items of the feed, and then shows.
"""

import asyncio
import math
from functools import partial
from typing import Final

import structlog

from perdure.domain.delivery import Streaming
from perdure.domain.errors import Conflict
from perdure.domain.ids import TurnId
from perdure.domain.journal.events import NoticePosted, Recorded, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.people.notices import still_text
from perdure.engine.delivery.bubbles import Means
from perdure.engine.delivery.handover import Handover, Handovers, ShownPreview
from perdure.engine.delivery.showing import PlaceInLine, PreviewPace, Showing
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.delivery.turn_text import TurnText
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.supervisor import Start
from perdure.engine.watching.feed import Feed, FeedItem
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

# How long previews may go on when the node ends, before they are cancelled.
LAST_S: Final = 0.5
# Typing is shown again after this share of the time for which the signal lasts.
TYPED_AGAIN: Final = 0.8
log = structlog.get_logger("previews")


class Previews:
    """Owns the previews of the turns that run on this node. `means` is what they share."""

    def __init__(self, means: Means, handovers: Handovers, feed: Feed, *, start: Start) -> None:
        self._means = means
        self._handovers = handovers
        self._feed = feed
        self._start = start
        self._shown: dict[TurnId, tuple[TurnPreview, asyncio.Task[None]]] = {}

    def begin(self, surface: Surface, claimed: Claimed) -> None:
        """Start to show this attempt. Call it before the attempt says its first word: from then on
        the outbox waits for the hand-over. The preview of an attempt before it ends."""
        turn = claimed.lease.turn
        self.end(turn)
        preview = TurnPreview(
            self._means, surface, claimed, self._feed, after=self._handovers.expected(turn)
        )
        handover = self._handovers.expect(turn)
        task = self._start(preview.run(), name=f"preview {turn}")
        self._shown[turn] = (preview, task)
        # As a callback: a task that is cancelled before its first step runs no `finally`, and
        # without the hand-over the final words would wait in vain.
        task.add_done_callback(lambda _: self._ended(preview, handover))

    def _ended(self, preview: "TurnPreview", handover: Handover) -> None:
        preview.close()
        found = self._shown.get(handover.turn)
        if found is not None and found[0] is preview:
            del self._shown[handover.turn]
        self._handovers.hand_over(handover, preview.shown)

    def end(self, turn: TurnId) -> None:
        """End the preview of a turn: this node does not work on it any more, even if the turn is
        not over."""
        found = self._shown.get(turn)
        if found is not None:
            found[0].end()

    def think(self, turn: TurnId) -> None:
        """Note that the turn's model was asked and has said nothing yet."""
        found = self._shown.get(turn)
        if found is not None:
            found[0].think()

    async def finish(self) -> None:
        """End all previews, before the platforms are closed. Cancels those that do not end soon."""
        tasks = [task for _, task in self._shown.values()]
        for preview, _ in self._shown.values():
            preview.end()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_S)
        for task in tasks:
            task.cancel()


class TurnPreview:
    """Shows one attempt of one turn while its text grows."""

    def __init__(
        self,
        means: Means,
        surface: Surface,
        claimed: Claimed,
        feed: Feed,
        *,
        after: Handover | None,
    ) -> None:
        """Begin to listen to the turn's session. `after` is the hand-over of the attempt before,
        whose last call may still be under way."""
        address = claimed.address
        self._feed = feed
        self._after = after
        self._text = TurnText(claimed, surface.display)
        self._surface = surface
        self._address = address
        self._typing = _Typing(surface, claimed, clock=means.clock)
        self._pace = PreviewPace(surface, address, clock=means.clock)
        self._line = PlaceInLine(means, claimed.lease, address, self._line_moved)
        self._showing = Showing(means, surface, claimed, pace=self._pace, line=self._line)
        self._still = _StillAtWork(means, surface, claimed, self._text, feed)
        self._has_ended = False
        # Subscribed here and not in `run`, so that the runner's first word is not missed.
        self._subscription = feed.subscribe(claimed.lease.session)

    @property
    def shown(self) -> ShownPreview:
        """Return what is handed over to the outbox."""
        return ShownPreview(self._showing.bubbles.streams)

    async def run(self) -> None:
        """Show the text until the attempt is over. Each round shows once and waits for news."""
        if self._after is not None:
            await asyncio.wait({self._after.is_over})
        while not self._text.is_over:
            streaming = self._surface.streaming(self._address)
            wait_s = await self._showing.show(self._text.now(streaming), streaming)
            fades_s = await self._typing.show()
            silent_s = await self._still.say(shown_s=self._showing.shown_s)
            for item in await self._subscription.next(min(wait_s, fades_s, silent_s)):
                self._text.see(item)
                self._still.see(item)
            if self._subscription.is_behind:
                # Words were missed, so the text is incomplete; the final words come by the outbox.
                self._subscription.is_behind = False
                self._showing.stop()
            self._text.is_over |= self._has_ended

    def think(self) -> None:
        self._text.think()
        self._subscription.nudge()

    def end(self) -> None:
        self._has_ended = True
        self._subscription.nudge()

    def close(self) -> None:
        """Stop listening to the feed and to the line."""
        self._feed.unsubscribe(self._subscription)
        self._line.stop_listening()

    def _line_moved(self) -> None:
        """Look again at once: a part of the line has changed, so a bubble may be first now."""
        self._pace.hurry()
        self._subscription.nudge()


class _Typing:
    """Keeps the typing signal alive while an attempt runs."""

    def __init__(self, surface: Surface, claimed: Claimed, *, clock: Clock) -> None:
        self._surface = surface
        self._address = claimed.address
        self._clock = clock
        self._typed_at = -math.inf

    async def show(self) -> float:
        """Show the signal if it is about to fade. Returns after how long to call again."""
        every_s = self._surface.capabilities(self._address).typing_s * TYPED_AGAIN
        if not every_s:
            return math.inf
        now_s = self._clock.monotonic_s()
        if now_s - self._typed_at >= every_s and await self._surface.show_typing(self._address):
            self._typed_at = now_s
        return every_s


class _StillAtWork:
    """Tells people once that their answer takes long, if nothing new was shown of it for a while.
    The notice has an id that follows from its turn, so the store posts it once for a turn, however
    many attempts and processes work on it."""

    def __init__(
        self, means: Means, surface: Surface, claimed: Claimed, text: TurnText, feed: Feed
    ) -> None:
        self._means = means
        self._feed = feed
        self._lease = claimed.lease
        self._text = text
        self._after_s = means.still_at_work_s
        self._seen_s = means.clock.monotonic_s()
        self._is_over = not (self._after_s and _is_awaited(surface, claimed))

    def see(self, item: FeedItem) -> None:
        """Note what people are told about the turn by other ways."""
        event = item.event if isinstance(item, Recorded) else None
        if isinstance(event, NoticePosted) and event.about == self._lease.turn:
            self._seen_s = self._means.clock.monotonic_s()

    async def say(self, *, shown_s: float) -> float:
        """Tell people that the turn goes on, if nothing was shown for long; something was shown at
        `shown_s`. Returns after how long to look again."""
        if self._is_over:
            return math.inf
        left_s = max(self._seen_s, shown_s) + self._after_s - self._means.clock.monotonic_s()
        if left_s > 0:
            return left_s
        self._is_over = True
        text = still_text(*self._text.working(self._means.clock.now_ms()))
        tell = partial(self._means.turns.tell_still, self._lease, text)
        try:
            told = await persist(tell, clock=self._means.clock)
        except Conflict as error:
            log.debug("the turn is over", turn=self._lease.turn, error=error.message)
            return math.inf
        self._feed.publish_recorded(told)
        if told:
            self._means.bus.publish(Topic.OUTBOX)
        return math.inf


def _is_awaited(surface: Surface, claimed: Claimed) -> bool:
    """Tell whether a person looks at this place and waits. An agent that reads along may have
    nothing to say, and a place without any sign of typing is a program's."""
    queued = claimed.events[0].event
    if not isinstance(queued, TurnQueued) or queued.kind != TurnKind.MESSAGE:
        return False
    can = surface.capabilities(claimed.address)
    has_people = can.typing_s > 0 or can.streaming is not Streaming.NONE
    return has_people and not queued.may_be_silent
