"""Shows the growing text of one attempt, by the best way its platform has.

Three things decide: the pace of the place (`PreviewPace`), the line of the conversation, in which
nothing may appear before everything that was said earlier (`PlaceInLine`), and the bubbles that are
there already (`Showing`, with `bubbles.py`). The latest text wins, and at most one call is made at
a time. Nothing here is truth: what could not be shown comes with the final words.
"""

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

QUIET_S: Final = 20.0
DRAFT_S: Final = 20.0
# How long a bubble waits in its line before it looks again, if nobody tells it to; another node may
# have delivered what stood before it.
LINE_S: Final = 2.0
REFUSED_S: Final = 3.0
SLOWNESS_MAX: Final = 16
log = structlog.get_logger("previews")


class PreviewPace:
    """When the text of one attempt may be shown next."""

    def __init__(self, surface: Surface, address: Address, *, clock: Clock) -> None:
        self._surface = surface
        self._address = address
        self._clock = clock
        self._not_before = 0.0
        self._slowness = 1.0

    @property
    def left_s(self) -> float:
        return self._not_before - self._clock.monotonic_s()

    def pause(self, seconds: float) -> float:
        """Show nothing for so long, which is returned."""
        self._not_before = self._clock.monotonic_s() + seconds
        return seconds

    def pause_until_moved(self) -> float:
        """Show nothing before the line has moved. Returns after how long to look again."""
        self._not_before = float("inf")
        return QUIET_S

    def hurry(self) -> None:
        """Forget the pause."""
        self._not_before = 0.0

    def wait_s(self) -> float:
        """Return how long the place wants no preview; 0 if one may be shown, and is counted."""
        pace = self._surface.capabilities(self._address).pace
        return self._surface.pacer.wait_s(self._address.place, pace, Rank.PREVIEW)

    def pause_after_preview(self) -> float:
        pace = self._surface.capabilities(self._address).pace
        return self.pause(pace.preview_s * self._slowness)

    async def slow_down(self, error: Transient) -> float:
        """The server's wait holds for all that goes there; our own pace gets slower as well."""
        await self._surface.heed(error, self._address.place)
        self._slowness = min(self._slowness * 2, SLOWNESS_MAX)
        return self.pause(max(error.retry_after_s or 0, 1.0))


class PlaceInLine:
    """Whether everything that was said before in the conversation has been delivered. `moved` is
    called when something was written about a part of it, once for each look."""

    def __init__(
        self, means: Means, lease: TurnLease, address: Address, moved: Callable[[], None]
    ) -> None:
        self._means = means
        self._lease = lease
        self._address = address
        self._moved = moved
        self.has_moved = False

    async def is_first(self) -> bool:
        """Look. If something is on its way, whoever delivers it lets us know."""
        self.has_moved = False
        self.leave()
        self._means.bus.listen(Topic.LINES, self._hear, key=self._address)
        may_show = partial(self._means.outbox.may_show, self._lease)
        is_first = await persist(may_show, clock=self._means.clock)
        if is_first:
            self.leave()
        return is_first

    def leave(self) -> None:
        self._means.bus.leave(Topic.LINES, self._hear, key=self._address)

    def _hear(self, _: WakeKey) -> None:
        self.leave()
        self.has_moved = True
        self._moved()


class Showing:
    """Shows what it is given. `bubbles` are the messages in which the text grows."""

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
        self._is_over = False

    def stop(self) -> None:
        """Show nothing any more, whatever comes: the final words come by the outbox."""
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
        except Unrenderable as error:
            # What follows may make it whole again; the final words go out in any form.
            log.debug("a preview was not taken", turn=self._turn, error=error.message)
            return self._pace.pause(REFUSED_S)
        except (Ambiguous, Permanent, Rejected, Conflict) as error:
            log.info("a preview was not shown", turn=self._turn, error=error.message)
            return self._pace.pause_until_moved()

    async def _preview(self, text: str, streaming: Streaming) -> float:
        """Bring one bubble up to date: the first that shows something else."""
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
        """What stands whatever follows goes out like any other part."""
        parts = await self._surface.plan_ahead(text, self._address)
        if len(parts) > self._ahead:
            go_ahead = partial(self._means.outbox.go_ahead, self._lease, parts)
            await persist(go_ahead, clock=self._means.clock)
            self._ahead = len(parts)
            self._means.bus.publish(Topic.OUTBOX)
        self._pace.pause(self._surface.capabilities(self._address).pace.preview_s)
        return QUIET_S  # more text wakes us before that

    def _fades(self, bubble: GrowingBubble, streaming: Streaming) -> bool:
        """A draft is gone after half a minute: one that does not change is shown again."""
        age_s = self._means.clock.monotonic_s() - bubble.shown_at
        return streaming is Streaming.DRAFT and age_s >= DRAFT_S

    async def _pieces(self, text: str, streaming: Streaming) -> tuple[str, ...]:
        """What each bubble is to show. A native stream takes the text as it is, for it only grows;
        a draft is one, so it shows the end."""
        is_native = streaming is Streaming.NATIVE
        pieces = await self._surface.plan_bubbles(text, self._address, is_healed=not is_native)
        return pieces[-1:] if streaming is Streaming.DRAFT else pieces
