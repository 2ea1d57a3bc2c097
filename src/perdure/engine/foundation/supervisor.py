"""Owns every task of the process, and its end.

Nothing else starts tasks and nothing else catches what nobody foresaw: a unit of work that fails in
an unforeseen way is logged, answered with what its owner asked for, and never takes its neighbours
along. Shutdown has three phases: stop taking, finish or park, close.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, Self

import structlog

from perdure.engine.foundation.persist import LET_GO
from perdure.ports.system.clock import Clock

# How long a pump rests that has stumbled.
REST_S: Final = 1.0
# It works again when it has not stumbled for so long.
STEADY_S: Final = 3 * REST_S
# How often, and with which pauses, a task is cancelled that does not end with it: a runner writes
# down once that it was interrupted, and a task group that is failing may swallow a cancellation.
LET_GO_TIMES: Final = 5
LET_GO_PAUSE_S: Final = 0.05
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
        self._tasks: set[asyncio.Task[None]] = set()

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
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finished(self) -> None:
        """Wait until every task has ended by itself."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def let_go(self) -> None:
        """Cancel every task that is left. What it was writing or sending is left as after a kill,
        and the next start finds out what became of it."""
        for _ in range(LET_GO_TIMES):
            if not self._tasks:
                return
            for task in tuple(self._tasks):
                task.cancel(LET_GO)
            await asyncio.wait(self._tasks, timeout=LET_GO_PAUSE_S)
        log.warning("tasks do not end", tasks=sorted(task.get_name() for task in self._tasks))

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
    node would go on accepting, and nothing would ever come of it. The log has one line when its
    trouble begins, one if that changes, and one when the pump has run for a while again."""
    trouble = _Trouble(name)
    while True:
        recovering = asyncio.get_running_loop().call_later(STEADY_S, trouble.end)
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the pump goes on
            trouble.meet(error)
            stumbled()
            await clock.sleep(REST_S)
        else:
            return
        finally:
            recovering.cancel()


class _Trouble:
    """Says once that a pump is in trouble, and once that it works again."""

    def __init__(self, pump: str) -> None:
        self._pump = pump
        self._cause = ""

    def meet(self, error: Exception) -> None:
        if repr(error) != self._cause:
            log.error("a pump has stumbled and goes on", pump=self._pump, exc_info=error)
        self._cause = repr(error)

    def end(self) -> None:
        if self._cause:
            log.info("a pump works again", pump=self._pump)
        self._cause = ""


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
