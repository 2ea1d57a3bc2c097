"""Owns every task of the process, and its end.

Nothing else starts tasks and nothing else catches what nobody foresaw: a unit of work that fails in
an unforeseen way is logged, answered with what its owner asked for, and never takes its neighbours
along. Shutdown has three phases: stop taking, finish or park, close.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, Self

import structlog

from perdure.ports.clock import Clock

# How long a pump rests that has stumbled.
REST_S: Final = 1.0
log = structlog.get_logger("supervisor")


class Start(Protocol):
    """Starts a task that the supervisor owns."""

    def __call__(
        self, work: Coroutine[object, object, None], *, name: str
    ) -> "asyncio.Task[None]": ...


class Supervisor:
    """Use as a context manager: leaving it waits for every task it owns."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._group.__aexit__(*error)  # type: ignore[arg-type]

    def start(self, work: Coroutine[object, object, None], *, name: str) -> "asyncio.Task[None]":
        guarded = self._guarded(work, name)
        try:
            task = self._group.create_task(guarded, name=name)
        except RuntimeError:  # everything is coming to its end, and nothing begins any more
            guarded.close()
            work.close()
            raise
        # Cancelled before its first step, a task never comes to what it was to await.
        task.add_done_callback(lambda _: work.close())
        return task

    async def _guarded(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except Exception:
            log.exception("task failed", task=name)


async def kept(
    run: Callable[[], Awaitable[None]],
    *,
    name: str,
    clock: Clock,
    stumbled: Callable[[], None],
) -> None:
    """Run a pump until it ends by itself. What nobody foresaw costs it a moment: without it the
    node would go on accepting, and nothing would ever come of it."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("a pump has stumbled and goes on", pump=name)
            stumbled()
            await clock.sleep(REST_S)
        else:
            return


async def attempt(
    work: Awaitable[None],
    on_failure: Callable[[Exception], Awaitable[None]],
    *,
    foreseen: tuple[type[Exception], ...] = (),
) -> None:
    """Do a unit of work; what nobody foresaw becomes its owner's business, not a dead pump. What is
    `foreseen` is the caller's."""
    try:
        await work
    except foreseen:
        raise
    except Exception as error:
        log.exception("unforeseen failure")
        await on_failure(error)
