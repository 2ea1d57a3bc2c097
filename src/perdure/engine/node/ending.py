"""Bounds the time in which a node ends, whatever the store or a platform does.

A node ends in steps: park the turns, send what is due, leave. Each step gets what is left of the
time. A step that does not end by then is cancelled, and its work is left as a kill would leave it:
the next start recovers it. A second signal shortens the time.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient

# How long the steps after the last turn may take together. Each stores or sends only a little.
CLOSING_S: Final = 2.0
# The same after a second signal, which must end the whole process within a second.
HURRIED_S: Final = 0.6
# Reserved for the last step, which tells the store that the node has left.
KEPT_S: Final = 0.25
log = structlog.get_logger("stop")


class NodeEnding:
    """Bounds the steps of a node's end. All times are those of the event loop."""

    def __init__(self) -> None:
        self._at_s = math.inf
        self._limits: set[asyncio.Timeout] = set()

    def begin(self, *, within_s: float) -> None:
        """Set the instant by which every step must be over."""
        self._at_s = asyncio.get_running_loop().time() + within_s

    def hurry(self) -> None:
        """Shorten the time to a moment, also for steps that are under way."""
        at_s = asyncio.get_running_loop().time() + HURRIED_S
        self._at_s = min(self._at_s, at_s)
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(min(limit.when() or math.inf, at_s - KEPT_S))

    @asynccontextmanager
    async def step(self, what: str, *, at_most_s: float = math.inf) -> AsyncIterator[None]:
        """Bound the block by the time that is left, less what the last step needs. A block that
        runs out of time, or whose write the store does not take, ends without an error. The log
        then says that `what` is left as after a kill."""
        async with self._within(what, at_most_s=at_most_s, kept_s=KEPT_S):
            yield

    @asynccontextmanager
    async def last_step(self, what: str) -> AsyncIterator[None]:
        """Bound the block by all of the time that is left."""
        async with self._within(what, at_most_s=math.inf, kept_s=0):
            yield

    @asynccontextmanager
    async def _within(self, what: str, *, at_most_s: float, kept_s: float) -> AsyncIterator[None]:
        now_s = asyncio.get_running_loop().time()
        at_s = min(now_s + at_most_s, self._at_s - kept_s)
        limit = asyncio.timeout_at(at_s if at_s < math.inf else None)
        try:
            async with limit:
                self._limits.add(limit)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            log.warning("the stop does not wait any longer; left as after a kill", what=what)
        except (Transient, Ambiguous) as error:
            log.warning(
                "the store did not take a step of the stop; left as after a kill",
                what=what,
                error=error.message,
            )
        finally:
            self._limits.discard(limit)
