"""Shows the growing text of one attempt, in the best way that its platform has.

Three things decide what is shown: the pace of the place (`PreviewPace`), the line of the
conversation, in which nothing may appear before what was said earlier (`PlaceInLine`), and the
bubbles that exist already (`Showing`, with `bubbles.py`). Always the latest text is shown, by one
call at a time. A preview may fail without loss: the text comes with the final words.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from perdure.domain.address import Address
from perdure.domain.delivery import Streaming
from perdure.domain.errors import Ambiguous, Conflict, Permanent, Rejected, Transient
from perdure.engine.delivery.bubbles import Bubbles, GrowingBubble, Means
from perdure.engine.delivery.pace import Rank
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.foundation.persist import persist
from perdure.ports.platform.adapter import Unrenderable, Unsupported
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Claimed, TurnLease
from perdure.ports.turns.wakes import Topic, WakeKey

# How long to wait if there is nothing to show; new text ends this wait.
QUIET_S: Final = 20.0
# A draft that does not change is shown again after this time.
DRAFT_S: Final = 20.0
# How long a bubble waits in its line before it looks again without being woken. Another node, which
# cannot wake this one, may have delivered what stood before it.
LINE_S: Final = 2.0
# How long to show nothing after the platform has refused how a text was written, or did not answer.
FAILED_S: Final = 3.0
# How many times longer the pauses between two previews may become.
SLOWNESS_MAX: Final = 16
log = structlog.get_logger("previews")


class PreviewPace:
    """Decides when the text of one attempt may be shown next."""

    def __init__(self, surface: Surface, address: Address, *, clock: Clock) -> None:
        self._surface = surface
        self._address = address
        self._clock = clock
        self._not_before = 0.0
        self._slowness = 1.0

    @property
    def left_s(self) -> float:
        """Return how long the pause still lasts; 0 or less if it is over."""
        return self._not_before - self._clock.monotonic_s()

    def pause(self, seconds: float) -> float:
        """Show nothing for so many seconds. Returns them."""
        self._not_before = self._clock.monotonic_s() + seconds
        return seconds

    def hurry(self) -> None:
        """End the pause at once."""
        self._not_before = 0.0

    def wait_s(self) -> float:
        """Return how long the place takes no preview; 0 if one may be shown now, and it is counted
        then."""
        pace = self._surface.capabilities(self._address).pace
        return self._surface.pacer.wait_s(self._address.place, pace, Rank.PREVIEW)

    def pause_after_preview(self) -> float:
        """Show nothing for the least time between two previews. Returns that time."""
        pace = self._surface.capabilities(self._address).pace
        return self.pause(pace.preview_s * self._slowness)

    async def slow_down(self, error: Transient) -> float:
        """Keep the wait that the server has named, and show previews half as often from now on.
        Returns after how long to look again."""
        await self._surface.heed(error, self._address.place)
        self._slowness = min(self._slowness * 2, SLOWNESS_MAX)
        return self.pause(max(error.retry_after_s or 0, 1.0))


class PlaceInLine:
    """Finds out whether everything that was said earlier in the conversation has been delivered. If
    not, `moved` is called once when a part of that line has changed. `has_moved`: it was called
    since the last look."""

    def __init__(
        self, means: Means, lease: TurnLease, address: Address, moved: Callable[[], None]
    ) -> None:
        self._means = means
        self._lease = lease
        self._address = address
        self._moved = moved
        self.has_moved = False

    async def is_first(self) -> bool:
        """Tell whether nothing in the line is on its way. If something is, `moved` is called after
        the next change."""
        self.has_moved = False
        self.stop_listening()
        # Listens before it reads: a change during the read must not be missed.
        self._means.bus.listen(Topic.LINES, self._hear, key=self._address)
        may_show = partial(self._means.outbox.may_show, self._lease)
        is_first = await persist(may_show, clock=self._means.clock)
        if is_first:
            self.stop_listening()
        return is_first

    def stop_listening(self) -> None:
        """Stop listening for changes."""
        self._means.bus.stop_listening(Topic.LINES, self._hear, key=self._address)

    def _hear(self, _: WakeKey) -> None:
        self.stop_listening()
        self.has_moved = True
        self._moved()


class Showing:
    """Shows the text it is given. `bubbles` are the messages in which the text grows."""

    def __init__(
        self,
        means: Means,
        surface: Surface,
        claimed: Claimed,
        *,
        pace: PreviewPace,
        line: PlaceInLine,
    ) -> None:
        self.bubbles = Bubbles(means, surface, claimed)
        self._means = means
        self._surface = surface
        self._turn = claimed.lease.turn
        self._lease = claimed.lease
        self._address = claimed.address
        self._pace = pace
        self._line = line
        self._ahead = 0  # parts
        self._went_ahead_s = -math.inf
        self._is_over = False

    @property
    def shown_s(self) -> float:
        """Return when something new was shown last."""
        return max(self.bubbles.changed_s, self._went_ahead_s)

    def stop(self) -> None:
        """Show nothing any more; the final words come by the outbox."""
        self._is_over = True

    async def show(self, text: str, streaming: Streaming) -> float:
        """Show what is new, if the pace allows. Returns how long to wait before looking again."""
        is_over = self._is_over or self.bubbles.is_broken
        if streaming is Streaming.NONE or is_over or not text:
            return QUIET_S
        if self._pace.left_s > 0:
            return self._pace.left_s
        try:
            if streaming is Streaming.APPEND:
                return await self._go_ahead(text)
            return await self._preview(text, streaming)
        except Unsupported as error:
            log.info("this server cannot stream so", adapter=self._surface.name, why=error.message)
            self._surface.lower(streaming)
            self.bubbles.known.clear()
            return 0.01
        except Transient as error:
            return await self._pace.slow_down(error)
        except (Unrenderable, Ambiguous) as error:
            # More text may repair the markdown, a preview of unknown fate may be repeated with the
            # latest text, and the final words are sent in any form.
            log.debug("a preview was not taken", turn=self._turn, error=error.message)
            return self._pace.pause(FAILED_S)
        except (Permanent, Rejected, Conflict) as error:
            log.info("a preview was not shown", turn=self._turn, error=error.message)
            self.stop()
            return QUIET_S

    async def _preview(self, text: str, streaming: Streaming) -> float:
        """Update the first bubble that does not show its piece of the text. Returns how long to
        wait before looking again."""
        for index, piece in enumerate(await self._pieces(text, streaming)):
            known = self.bubbles.known
            bubble = known[index] if index < len(known) else None
            if bubble is not None and bubble.shown == piece and not self._fades(bubble, streaming):
                continue
            if bubble is None and not await self._line.is_first():
                return self._pace.pause(0.0 if self._line.has_moved else LINE_S)
            if wait_s := self._pace.wait_s():
                return self._pace.pause(wait_s)
            if bubble is None:
                await self.bubbles.open(index, piece, streaming)
            else:
                await self.bubbles.go_on(bubble, index, piece, streaming)
            return self._pace.pause_after_preview()
        return DRAFT_S if streaming is Streaming.DRAFT else QUIET_S

    async def _go_ahead(self, text: str) -> float:
        """Add the parts that no later text can change to the outbox, which sends them like any
        other part."""
        parts = await self._surface.plan_ahead(text, self._address)
        if len(parts) > self._ahead:
            go_ahead = partial(self._means.outbox.go_ahead, self._lease, parts)
            await persist(go_ahead, clock=self._means.clock)
            self._ahead = len(parts)
            self._went_ahead_s = self._means.clock.monotonic_s()
            self._means.bus.publish(Topic.OUTBOX)
        self._pace.pause(self._surface.capabilities(self._address).pace.preview_s)
        return QUIET_S  # more text wakes us before that

    def _fades(self, bubble: GrowingBubble, streaming: Streaming) -> bool:
        """Tell whether an unchanged draft must be shown again, before the platform removes it."""
        age_s = self._means.clock.monotonic_s() - bubble.shown_at
        return streaming is Streaming.DRAFT and age_s >= DRAFT_S

    async def _pieces(self, text: str, streaming: Streaming) -> tuple[str, ...]:
        """Return what each bubble shows. A native stream takes the text unhealed, since its text
        can only grow. There is one draft at most, so it shows the last piece."""
        is_native = streaming is Streaming.NATIVE
        pieces = await self._surface.plan_bubbles(text, self._address, is_healed=not is_native)
        return pieces[-1:] if streaming is Streaming.DRAFT else pieces
