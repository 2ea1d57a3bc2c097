"""One table decides what happens when the store does not take a write.

| it said     | did it happen | we                                            |
|-------------|---------------|-----------------------------------------------|
| `Transient` | no            | wait and try again, until we are let go of    |
| `Ambiguous` | maybe         | look; if it is not there, try again           |
| the rest    | no            | give up: the caller must know                 |

A turn never goes on past a write that is not durable, so waiting here loses nothing: what could not
be stored has not been shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeVar

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.ports.system.clock import Clock

T = TypeVar("T")
# The message of a cancellation that ends everything at once, as a kill would.
LET_GO: Final = "let go"
WAITS_S = (0.05, 0.2, 1.0, 2.0, 5.0)
log = structlog.get_logger("store")


async def to_its_end(work: Coroutine[object, object, T], then: Callable[[T], None]) -> None:
    """Do work that must not be left half-way, and `then` what follows from its result.

    Whoever is cancelled meanwhile waits for the work and is cancelled afterwards. Left alone, the
    work would go on without anybody who hears how it ends. A failure of the work goes first: it
    says that there is nothing left to cancel. Only a cancellation that says `LET_GO` does not wait:
    the process ends, and the next one finds out what is stored.
    """
    task = asyncio.ensure_future(work)  # noqa: TID251 - it ends below
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
            if error.args == (LET_GO,):
                task.cancel()
                raise
    then(task.result())
    if cancelled is not None:
        raise cancelled


async def persist(
    write: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    happened: Callable[[], Awaitable[T | None]] | None = None,
) -> T:
    """Write until it is durable. `happened` looks for the result of a write of unknown fate;
    without it the write must be one that may be repeated."""
    tries = 0
    while True:
        try:
            return await write()
        except (Transient, Ambiguous) as error:
            if isinstance(error, Ambiguous) and happened is not None:
                found = await happened()
                if found is not None:
                    return found
            wait_s = WAITS_S[min(tries, len(WAITS_S) - 1)]
            tries += 1
            # Not a warning: the node says once that its store is in trouble, not for each write.
            log.debug("store did not take a write", error=error.message, wait_s=wait_s)
            await clock.sleep(wait_s)
