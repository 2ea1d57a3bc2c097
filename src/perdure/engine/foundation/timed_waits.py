"""Waiting for something that may not happen."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from perdure.ports.system.clock import Clock

# While an instant is waited for, the wall clock is compared this often with the one that never
# jumps, and has jumped if they moved apart by more than this.
GLANCE_S: Final = 1.0
JUMP_MS: Final = 1_000


class Waitable(Protocol):
    """Something that can be waited for: an event, or a waiter of the bus."""

    async def wait(self) -> bool: ...


async def happens_within(event: Waitable, *, within_s: float | None) -> bool:
    """Whether it happened in time; without a time it is waited for as long as it takes."""
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False


class ClockWatch:
    """Notices that the wall clock was set, by comparing it with the one that never jumps. Begin to
    watch before you look for the instant that you are going to wait for: if the clock is set in
    between, that instant means nothing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart_ms = self._apart()

    def begin(self) -> None:
        self._apart_ms = self._apart()

    async def wait(self, event: Waitable, *, within_s: float) -> None:
        """Wait for an event, but no longer than that, and until the clock was set since `begin`."""
        while within_s > 0 and abs(self._apart() - self._apart_ms) <= JUMP_MS:
            if await happens_within(event, within_s=min(within_s, GLANCE_S)):
                return
            within_s -= GLANCE_S

    def _apart(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_s() * 1000


async def step_by_step(
    step: Callable[[], Awaitable[bool]], *, over: asyncio.Event, pause_s: float, every_s: float
) -> None:
    """Do a chore in small steps until it is over: the next step after `pause_s` while a step says
    that there is more to do, else after `every_s`."""
    while not over.is_set():
        has_more = await step()
        await happens_within(over, within_s=pause_s if has_more else every_s)
