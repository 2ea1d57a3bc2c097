"""Shows turns while they are at work: that something is being typed, and the text as it grows.

Nothing here is truth. A preview renders what is already durable and ends with its attempt. Then it
hands over to the outbox, once (`handover.py`), which puts the final words in the bubbles' place.

A preview has three parts: what the text is now (`turn_text.py`), when it may be shown and showing
it (`showing.py`). What is here joins them: it waits for what the feed tells, and shows.
"""

import asyncio
import math
from typing import Final

from perdure.domain.ids import TurnId
from perdure.engine.delivery.bubbles import Means
from perdure.engine.delivery.handover import Handover, Handovers, ShownPreview
from perdure.engine.delivery.showing import PlaceInLine, PreviewPace, Showing
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.delivery.turn_text import TurnText
from perdure.engine.foundation.supervisor import Start
from perdure.engine.watching.feed import Feed
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Claimed

LAST_S: Final = 0.5
# Typing is shown again when this share of the time has passed after which it fades.
TYPED_AGAIN: Final = 0.8


class Previews:
    """Owns the previews of the turns that are at work here. `means` is what they share."""

    def __init__(self, means: Means, handovers: Handovers, feed: Feed, *, start: Start) -> None:
        self._means = means
        self._handovers = handovers
        self._feed = feed
        self._start = start
        self._shown: dict[TurnId, tuple[TurnPreview, asyncio.Task[None]]] = {}

    def begin(self, surface: Surface, claimed: Claimed) -> None:
        """Show this attempt from now on, until it ends."""
        turn = claimed.lease.turn
        preview = TurnPreview(
            self._means, surface, claimed, self._feed, after=self._handovers.expected(turn)
        )
        handover = self._handovers.expect(turn)
        task = self._start(preview.run(), name=f"preview {turn}")
        self._shown[turn] = (preview, task)
        # From outside: cancelled before its first step, a task runs no `finally` of its own.
        task.add_done_callback(lambda _: self._ended(preview, handover))

    def _ended(self, preview: "TurnPreview", handover: Handover) -> None:
        preview.close()
        found = self._shown.get(handover.turn)
        if found is not None and found[0] is preview:
            del self._shown[handover.turn]
        self._handovers.hand_over(handover, preview.shown)

    def end(self, turn: TurnId) -> None:
        """Nobody works on the turn here any more, whether or not it is over."""
        found = self._shown.get(turn)
        if found is not None:
            found[0].end()

    def think(self, turn: TurnId) -> None:
        """The model of this turn is at work and says nothing yet."""
        found = self._shown.get(turn)
        if found is not None:
            found[0].think()

    async def finish(self) -> None:
        """Let go of everything that is shown, before the platforms are closed."""
        tasks = [task for _, task in self._shown.values()]
        for preview, _ in self._shown.values():
            preview.end()
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_S)
        for task in tasks:
            task.cancel()


class TurnPreview:
    """One attempt of one turn, as its people see it grow."""

    def __init__(
        self,
        means: Means,
        surface: Surface,
        claimed: Claimed,
        feed: Feed,
        *,
        after: Handover | None,
    ) -> None:
        """`after` is of the attempt before, which may have a call under way."""
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
        self._has_ended = False
        # Before the runner's first word.
        self._subscription = feed.subscribe(claimed.lease.session)

    @property
    def shown(self) -> ShownPreview:
        return ShownPreview(self._showing.bubbles.streams)

    async def run(self) -> None:
        if self._after is not None:
            await asyncio.wait({self._after.is_over})
        while not self._text.is_over:
            streaming = self._surface.streaming(self._address)
            wait_s = await self._showing.show(self._text.now(streaming), streaming)
            fades_s = await self._typing.show()
            for item in await self._subscription.next(min(wait_s, fades_s)):
                self._text.see(item)
            if self._subscription.is_behind:
                # We have missed words.
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
        """Hear of nothing any more."""
        self._feed.unsubscribe(self._subscription)
        self._line.leave()

    def _line_moved(self) -> None:
        """What waits behind a part that was written about may come now."""
        self._pace.hurry()
        self._subscription.nudge()


class _Typing:
    """Shows that something is being typed, for as long as an attempt runs."""

    def __init__(self, surface: Surface, claimed: Claimed, *, clock: Clock) -> None:
        self._surface = surface
        self._address = claimed.address
        self._clock = clock
        self._typed_at = -math.inf

    async def show(self) -> float:
        """Show it if it is about to fade. Returns after how long to look again."""
        every_s = self._surface.capabilities(self._address).typing_s * TYPED_AGAIN
        if not every_s:
            return math.inf
        now_s = self._clock.monotonic_s()
        if now_s - self._typed_at >= every_s and await self._surface.show_typing(self._address):
            self._typed_at = now_s
        return every_s
