"""Implements the port of hooks: finds them after the start, and runs them.

A hook is an executable file in `hooks/EVENT/` of the home, or a function that an installed package
names under the entry point group `perdure.hooks`. Programs are started like all others: without
secrets, bounded, and ended with the gateway.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from perdure.domain.errors import PerdureError
from perdure.domain.hooks.occasions import HookCall, Occasion
from perdure.domain.text import most_like
from perdure.engine.foundation.supervisor import attempt
from perdure.ports.records.occasions import HookFailures
from perdure.ports.system.children import Child, ChildEnd, ChildLimits, ChildProgram, Children
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit

FOLDER: Final = "hooks"
GROUP: Final = "perdure.hooks"
# How long a hook may take.
TIME_LIMIT_S: Final = 30.0
LIMITS: Final = ChildLimits(memory_bytes=500_000_000, processes=64)
PIECE_BYTES: Final = 64 * 1024
# How much a hook may print.
PRINTED_MAX: Final = 10_000_000
_SAID_MAX: Final = 300
HookFunction = Callable[[HookCall], Awaitable[None]]
log = structlog.get_logger("hooks")


class HomeHooks:
    """Implements `Hooks`."""

    def __init__(
        self,
        home: Path,
        *,
        children: Children,
        clock: Clock,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._home = home
        self._children = children
        self._clock = clock
        self._time_limit_s = time_limit_s
        self._programs: Mapping[Occasion, Sequence[Path]] = {}
        self._functions: Mapping[Occasion, Sequence[tuple[str, HookFunction]]] = {}
        self.failures = HookFailures()

    async def find(self) -> frozenset[Occasion]:
        if not (self._home / FOLDER).is_dir():
            return frozenset()
        # In a thread: packages are looked for in many folders, and importing one takes its time.
        self._programs = await asyncio.to_thread(programs_in, self._home)
        self.use(await functions_of(await asyncio.to_thread(_offered)))
        return frozenset(self._programs) | frozenset(self._functions)

    def use(self, functions: Mapping[Occasion, Sequence[tuple[str, HookFunction]]]) -> None:
        """Call these functions, by their names, beside the programs of the home."""
        self._functions = functions

    async def call(self, call: HookCall) -> None:
        # Each has a task of its own, so that no hook waits for another one, or for its failure.
        async with asyncio.TaskGroup() as group:
            for program in self._programs.get(call.event, ()):
                group.create_task(self._bounded(program.name, call, self._run(program, call)))
            for name, function in self._functions.get(call.event, ()):
                group.create_task(self._bounded(name, call, _called(function, call)))

    def dropped(self, call: HookCall) -> None:
        if not self.failures.dropped:
            log.warning("hooks are too slow, so they are not told everything", occasion=call.event)
        self.failures = msgspec.structs.replace(self.failures, dropped=self.failures.dropped + 1)

    async def _bounded(self, hook: str, call: HookCall, work: Awaitable[str]) -> None:
        try:
            async with time_limit(self._time_limit_s):
                problem = await work
        except TimeoutError:
            problem = f"it took longer than {self._time_limit_s:g} s and was ended"
        if not problem:
            return
        self.failures = msgspec.structs.replace(
            self.failures,
            count=self.failures.count + 1,
            hook=hook,
            event=call.event,
            problem=problem,
            at=self._clock.now_ms(),
        )
        log.warning("a hook has failed", hook=hook, occasion=call.event, problem=problem)

    async def _run(self, program: Path, call: HookCall) -> str:
        """Run a program. Returns what went wrong, or an empty string."""
        argv = (str(program),)
        try:
            child = await self._children.start(ChildProgram(argv=argv, limits=LIMITS))
        except PerdureError as error:
            return error.message
        # What it prints is read and dropped: a full pipe would stop it.
        dropping = asyncio.create_task(_drop_output(child))
        try:
            await _give(child, call)
            ended = await child.wait()
        finally:
            # Also if the time is up: nothing that the hook has started stays.
            await asyncio.shield(_end(child, dropping))
        if dropping.result() > PRINTED_MAX:
            return f"it printed more than {PRINTED_MAX:,} bytes and was ended"
        return _problem(ended, child.errors)


def _problem(ended: ChildEnd, errors: str) -> str:
    """Return how a program has failed, or an empty string."""
    if not (ended.code or ended.signal or ended.limit):
        return ""
    said = " ".join(errors[-_SAID_MAX:].split())
    return f"it {ended.words}: {said}" if said else f"it {ended.words}"


async def _drop_output(child: Child) -> int:
    """Read what a program prints, and end one that prints too much. Returns how many bytes it
    printed."""
    printed, is_ended = 0, False
    while piece := await child.read(PIECE_BYTES):
        printed += len(piece)
        if printed > PRINTED_MAX and not is_ended:
            is_ended = True
            await child.end(within_s=0)
    return printed


async def _give(child: Child, call: HookCall) -> None:
    """Write the call to a program. One that reads nothing is no failure."""
    with suppress(PerdureError):
        await child.write(msgspec.json.encode(call) + b"\n")
    child.close_input()


async def _end(child: Child, dropping: "asyncio.Task[int]") -> None:
    await child.end(within_s=0)
    await dropping


async def _called(function: HookFunction, call: HookCall) -> str:
    """Call a function of an installed package. Returns what went wrong, or an empty string."""
    problems: list[str] = []

    async def note(error: Exception) -> None:
        problems.append(f"{type(error).__name__}: {error}")

    await attempt(function(call), note)
    return "; ".join(problems)


def programs_in(home: Path) -> dict[Occasion, list[Path]]:
    """Return the programs in the home's `hooks` folder, by occasion and in the order of their
    names. Logs what is there and can never run."""
    root = home / FOLDER
    found: dict[Occasion, list[Path]] = {}
    for folder in _entries(root):
        if folder.name not in list(Occasion):
            meant = most_like(folder.name, [str(each) for each in Occasion])
            log.warning("there is no such occasion for hooks", folder=folder.name, meant=meant)
            continue
        for file in _entries(folder):
            if problem := _unusable(file):
                log.warning("a hook can never run", hook=str(file), problem=problem)
            else:
                found.setdefault(Occasion(folder.name), []).append(file)
    return found


def _entries(folder: Path) -> list[Path]:
    """Return what stands in a folder, without hidden files; nothing if there is no such folder."""
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unusable(file: Path) -> str:
    """Return why a file cannot be run, or an empty string."""
    try:
        mode = file.stat().st_mode
    except OSError as error:
        return f"it cannot be looked at ({error.strerror})"
    if not stat.S_ISREG(mode):
        return "it is no file"
    if not os.access(file, os.X_OK):
        return f"it is not executable; run: chmod +x {file}"
    if mode & stat.S_IWOTH:
        return f"everybody on this machine may change it; run: chmod o-w {file}"
    return ""


class OfferedFunction(Protocol):
    """Describes an entry point: its name, where the function is, and how to load it."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str: ...

    def load(self) -> HookFunction: ...


def _offered() -> Sequence[OfferedFunction]:
    """Return the functions that installed packages offer, not yet loaded."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - few gateways have hooks

    return tuple(entry_points(group=GROUP))


async def functions_of(
    points: Iterable[OfferedFunction],
) -> dict[Occasion, list[tuple[str, HookFunction]]]:
    """Load the functions that packages offer. The name of an entry point is that of an occasion; a
    full stop and more may follow. Logs what cannot be loaded."""
    found: dict[Occasion, list[tuple[str, HookFunction]]] = {}

    async def load(point: OfferedFunction) -> None:
        function = await asyncio.to_thread(point.load)
        event = Occasion(point.name.partition(".")[0])
        found.setdefault(event, []).append((point.value, function))

    async def complain(error: Exception) -> None:
        log.warning("a hook of a package cannot be used", error=f"{type(error).__name__}: {error}")

    for point in points:
        await attempt(load(point), complain)
    return found
