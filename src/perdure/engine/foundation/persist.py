"""Decides what happens when the store does not take a write. This table is the whole decision:

| error       | did it happen | what we do                                    |
|-------------|---------------|-----------------------------------------------|
| `Transient` | no            | wait and try again, until cancelled           |
| `Ambiguous` | maybe         | read; if the write is not stored, try again   |
| the rest    | no            | give up: raise it to the caller               |

A turn never continues past a write that is not durable, so waiting here loses nothing: text that
could not be stored has not been shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeVar

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.ports.system.clock import Clock

T = TypeVar("T")
# The message of a cancellation that waits for nothing, so that work ends as after a kill.
LET_GO: Final = "let go"
# The pauses before each new try; the last one repeats.
WAITS_S = (0.05, 0.2, 1.0, 2.0, 5.0)
log = structlog.get_logger("store")


async def to_its_end(work: Coroutine[object, object, T], then: Callable[[T], None]) -> None:
    """Finish `work` even if the caller is cancelled, then call `then` with its result.

    A caller that is cancelled meanwhile waits for the work and is cancelled afterwards. Otherwise
    the work would continue and nobody would learn how it ended. If the work fails, its error is
    raised instead of the cancellation. Only a cancellation with the message `LET_GO` does not wait:
    the process ends, and the next one reads from the store whether the work took effect.
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
    """Repeat a write until it is durable, and return its result. `happened` reads the store after
    an `Ambiguous` write and returns its result if it took effect; without `happened` the write must
    be safe to repeat. Raises every error that is neither `Transient` nor `Ambiguous`."""
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
            # Not a warning: the node reports once that its store is in trouble, not per write.
            log.debug("store did not take a write", error=error.message, wait_s=wait_s)
            await clock.sleep(wait_s)
