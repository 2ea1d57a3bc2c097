"""Waits for events with a time limit, and notices when the wall clock is set meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from perdure.ports.system.clock import Clock

# During a wait for an instant, the wall clock is compared this often with the monotonic clock. It
# counts as set if the two have moved apart by more than `JUMP_MS`.
GLANCE_S: Final = 1.0
JUMP_MS: Final = 1_000


class Waitable(Protocol):
    """Stands for anything that can be waited for: an event, or a waiter of the bus."""

    async def wait(self) -> bool: ...


async def happens_within(event: Waitable, *, within_s: float | None) -> bool:
    """Tell whether the event happens within the time. With None it waits without a limit."""
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False


class ClockWatch:
    """Notices that the wall clock was set, by comparing it with the monotonic clock. Call `begin`
    before you read the instant to wait for: if the clock is set in between, that instant no longer
    means what it meant, and `wait` returns at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._apart_ms = self._apart()

    def begin(self) -> None:
        self._apart_ms = self._apart()

    async def wait(self, event: Waitable, *, within_s: float) -> None:
        """Wait for the event, for `within_s`, or until the clock was set since `begin`."""
        while within_s > 0 and abs(self._apart() - self._apart_ms) <= JUMP_MS:
            if await happens_within(event, within_s=min(within_s, GLANCE_S)):
                return
            within_s -= GLANCE_S

    def _apart(self) -> float:
        return self._clock.now_ms() - self._clock.monotonic_s() * 1000


async def step_by_step(
    step: Callable[[], Awaitable[bool]], *, over: asyncio.Event, pause_s: float, every_s: float
) -> None:
    """Do periodic work in small steps until `over` is set. The next step follows after `pause_s` if
    the last one returned True (there is more to do), otherwise after `every_s`."""
    while not over.is_set():
        has_more = await step()
        await happens_within(over, within_s=pause_s if has_more else every_s)
