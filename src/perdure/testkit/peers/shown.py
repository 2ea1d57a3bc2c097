"""Describes what people on a platform see, in one form for all platforms, and waits for it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from perdure.ports.system.clock import Clock

WAIT_S: Final = 20.0
POLL_S: Final = 0.02

T = TypeVar("T")


class ShownMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one message as people see it now: after its edits, and not deleted.

    `id` is the platform's own id for it, and `thread` that of the message at which its thread
    begins. `raw` is the platform's own object, for what only that platform has: blocks, entities,
    markup.
    """

    id: str
    author: str
    text: str
    thread: str = ""
    is_edited: bool = False
    raw: dict[str, Any] = {}


async def wait_until(
    look: Callable[[], Awaitable[T]], accept: Callable[[T], bool], *, clock: Clock
) -> T:
    """Look again and again until what is seen is accepted, and return it. If that takes too long,
    the test fails with what was seen last."""
    seen = await look()
    try:
        async with asyncio.timeout(WAIT_S):
            while not accept(seen):
                await clock.sleep(POLL_S)
                seen = await look()
    except TimeoutError:
        raise AssertionError(
            f"what the test waits for did not come in {WAIT_S:g} s; seen last: {seen}"
        ) from None
    return seen
