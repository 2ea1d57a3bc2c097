"""Owns every task of the process, and ends them.

Only this module starts tasks that outlive the function which starts them, and only this module
catches unexpected exceptions. A unit of work that fails unexpectedly is logged, its owner's failure
callback is called, and other work goes on.
Shutdown has three phases: stop taking work, finish or park what runs, close.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, Self

import structlog

from perdure.engine.foundation.persist import LET_GO
from perdure.ports.system.clock import Clock

# How long a pump pauses after an unexpected failure.
REST_S: Final = 1.0
# A pump counts as working again when it has not failed for this long.
STEADY_S: Final = 3 * REST_S
# How often, and with which pauses, a task is cancelled until it ends. One time is not always
# enough: a runner that is cancelled first stores that it was interrupted, and a task group that is
# failing may swallow a cancellation.
LET_GO_TIMES: Final = 5
LET_GO_PAUSE_S: Final = 0.05
log = structlog.get_logger("supervisor")


class Start(Protocol):
    """Starts a task that the supervisor owns."""

    def __call__(
        self, work: Coroutine[object, object, None], *, name: str
    ) -> "asyncio.Task[None]": ...


class Supervisor:
    """Starts tasks and owns them. Use it as a context manager: leaving it waits for every task."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._group.__aexit__(*error)  # type: ignore[arg-type]

    def start(self, work: Coroutine[object, object, None], *, name: str) -> "asyncio.Task[None]":
        """Run `work` as a task. An exception of it is logged and ends only this task. Raises
        `RuntimeError` when the process is ending."""
        guarded = self._guarded(work, name)
        try:
            task = self._group.create_task(guarded, name=name)
        except RuntimeError:  # the task group is ending and takes no more tasks
            guarded.close()
            work.close()
            raise
        # A task that is cancelled before its first step never awaits `work`. Closing the coroutine
        # avoids the warning that it was never awaited.
        task.add_done_callback(lambda _: work.close())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finished(self) -> None:
        """Wait until every task has ended by itself."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def let_go(self) -> None:
        """Cancel every task that is left, without waiting for its writes. Whatever a task was
        writing or sending is left as after a kill, and the next start recovers it."""
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


async def run_again(
    run: Callable[[], Awaitable[None]],
    *,
    name: str,
    clock: Clock,
    stumbled: Callable[[], None],
) -> None:
    """Run a pump until it ends by itself, and start it again after an unexpected exception. A node
    whose pump is dead would go on accepting messages that nobody answers. `stumbled` is called at
    each failure. The log gets one line when the trouble begins, one when its cause changes, and one
    when the pump has run for `STEADY_S` again."""
    trouble = _Trouble(name)
    while True:
        recovering = asyncio.get_running_loop().call_later(STEADY_S, trouble.end)
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - whatever the error is, the pump must go on
            trouble.meet(error)
            stumbled()
            await clock.sleep(REST_S)
        else:
            return
        finally:
            recovering.cancel()


class _Trouble:
    """Logs once that a pump is in trouble, and once that it works again."""

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
    """Do a unit of work, and call `on_failure` with an unexpected exception instead of raising it,
    so that no pump dies of it. Exceptions of the types in `foreseen` are raised to the caller."""
    try:
        await work
    except foreseen:
        raise
    except Exception as error:
        log.exception("unforeseen failure")
        await on_failure(error)
