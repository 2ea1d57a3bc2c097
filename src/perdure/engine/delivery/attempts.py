"""Records how the attempts to send parts went, and wakes the previews that wait in the same line.

Once a platform was called, its answer must be recorded, however long that takes, so a write is
repeated until it is durable. If another node has settled the fate of a part meanwhile, that stands.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import structlog

from perdure.domain.delivery import PartState
from perdure.domain.errors import Conflict
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.question_events import WaitEnded
from perdure.engine.foundation.persist import persist
from perdure.engine.watching.feed import Feed
from perdure.ports.delivery.outbox import Outbox, Part
from perdure.ports.system.clock import Clock
from perdure.ports.turns.wakes import Topic, Wakes

log = structlog.get_logger("outbox")


class AttemptRecords:
    """Writes the results of attempts to the outbox. Each write names its attempt, so a process that
    stood still for long cannot overwrite what another has recorded since."""

    def __init__(self, outbox: Outbox, feed: Feed, *, clock: Clock, wakes: Wakes) -> None:
        self._outbox = outbox
        self._wakes = wakes
        self._feed = feed
        self._clock = clock

    async def record(
        self,
        part: Part,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
        moved_to: str = "",
    ) -> None:
        """Record the result of an attempt: the part moves to `state`, and with `moved_to` its place
        to another id. Publishes to the feed what
        was journalled for it."""
        record = partial(
            self._outbox.record,
            part.id,
            state,
            receipt=receipt,
            error=error,
            due_in_s=due_in_s,
            attempt=part.attempts,
            moved_to=moved_to,
        )
        await self._write(part, partial(self._and_tell, record))
        self._wakes.publish(Topic.HOOKS)
        log.debug("part recorded", part=part.id, adapter=part.address.adapter, state=state)

    async def expire(self, *, older_than_s: int) -> None:
        """Give up parts that have waited for longer than this. Publishes to the feed what was
        journalled for it."""
        expired = await self._outbox.expire(older_than_s=older_than_s)
        self._tell(expired.recorded)
        self._wakes.publish(Topic.HOOKS)

    async def defer(self, part: Part, *, due_in_s: float) -> None:
        """Give back a part that was not tried. It can be taken again after `due_in_s`."""
        defer = partial(self._outbox.defer, part.id, due_in_s=due_in_s, attempt=part.attempts)
        await self._write(part, defer)

    async def doubt(self, part: Part, *, error: str, due_in_s: float) -> None:
        """Leave a part in doubt. The platform is asked about it again after `due_in_s`."""
        doubt = partial(
            self._outbox.doubt, part.id, error=error, due_in_s=due_in_s, attempt=part.attempts
        )
        await self._write(part, doubt)

    async def divide(self, part: Part, texts: Sequence[str]) -> None:
        """Replace a part that is too long for its platform by one part for each text."""
        divide = partial(self._outbox.divide, part.id, texts, attempt=part.attempts)
        await self._write(part, divide)

    async def post_instead(self, part: Part, *, error: str) -> None:
        """Turn an edit into a post, because the message that it was to change is gone."""
        post = partial(self._outbox.post_instead, part.id, error=error, attempt=part.attempts)
        await self._write(part, post)

    async def _and_tell(self, write: Callable[[], Awaitable[list[Recorded]]]) -> None:
        self._tell(await write())

    def _tell(self, recorded: Sequence[Recorded]) -> None:
        """Publish what was journalled. A turn that waited for an answer goes on if its question
        could not be delivered."""
        self._feed.publish_recorded(recorded)
        if any(isinstance(each.event, WaitEnded) for each in recorded):
            self._wakes.publish(Topic.TURNS)

    async def _write(self, part: Part, write: Callable[[], Awaitable[None]]) -> None:
        try:
            await persist(write, clock=self._clock)
        except Conflict as conflict:
            # This process stood still for so long that another node has settled the part's fate.
            log.warning("another node has this part", part=part.id, error=conflict.message)
        self._wakes.publish(Topic.LINES, part.address)
