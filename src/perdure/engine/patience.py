"""Waiting for something that may not happen."""

import asyncio


async def happens(event: asyncio.Event, *, within_s: float | None) -> bool:
    """Whether it happened in time; without a time it is waited for as long as it takes."""
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False
