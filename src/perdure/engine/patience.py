"""Waiting for something that may not happen."""

import asyncio
from collections.abc import Awaitable, Callable


async def happens(event: asyncio.Event, *, within_s: float | None) -> bool:
    """Whether it happened in time; without a time it is waited for as long as it takes."""
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False


async def step_by_step(
    step: Callable[[], Awaitable[bool]], *, over: asyncio.Event, pause_s: float, every_s: float
) -> None:
    """Do a chore in small steps until it is over: the next step after `pause_s` while a step says
    that there is more to do, else after `every_s`."""
    while not over.is_set():
        has_more = await step()
        await happens(over, within_s=pause_s if has_more else every_s)
