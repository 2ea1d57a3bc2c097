"""Tells a conversation once that its answer takes long, if nothing new was shown of it for a while.

The notice has an id that follows from its turn, so the store posts it once for a turn, however many
attempts and processes work on it.
"""

import math
from functools import partial

import structlog

from perdure.domain.delivery import Streaming
from perdure.domain.errors import Conflict
from perdure.domain.journal.events import NoticePosted, Recorded, TurnQueued
from perdure.domain.kinds import TurnKind
from perdure.domain.people.notices import still_text
from perdure.engine.delivery.bubbles import Means
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.delivery.turn_text import TurnText
from perdure.engine.foundation.persist import persist
from perdure.engine.watching.feed import Feed, FeedItem
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

log = structlog.get_logger("previews")


class StillAtWork:
    """Watches one attempt of a turn for signs of life that people see."""

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
