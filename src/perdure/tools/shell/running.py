"""Runs commands: starts them, reads what they write, and ends them in time.

Before the first command a sandbox is started in earnest, because bubblewrap may be installed and
still be forbidden to make one. Where none starts, no command runs.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from perdure.domain.errors import Rejected, Transient
from perdure.ports.system.children import Child, ChildEnd, ChildProgram, Children
from perdure.ports.system.sandbox import Mount, Sandbox
from perdure.ports.system.time_limits import time_limit
from perdure.tools.shell.commands import ShellCommand, ShellFolders
from perdure.tools.shell.git_guards import git_guards
from perdure.tools.shell.output import KeptOutput
from perdure.tools.shell.settings import ShellSettings

PIECE_BYTES: Final = 65_536
# How long what a program has written last may take to arrive after its end.
REMAINS_S: Final = 1.0
# What a command in a sandbox knows. Its `/tmp` is its own.
_ENVIRONMENT: Final = {
    "HOME": "/tmp",  # noqa: S108 - inside of the sandbox
    "TMPDIR": "/tmp",  # noqa: S108
    "TERM": "dumb",
}
log = structlog.get_logger("tools")


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Says how a command has ended, after how long, and whether that was because its time was
    over."""

    end: ChildEnd
    seconds: float
    is_too_slow: bool = False

    @property
    def words(self) -> str:
        """Return how it ended, in words that follow "it"."""
        if self.is_too_slow:
            return f"was ended because it ran longer than the {self.seconds:g} s that it had"
        code = self.end.code
        how = f"ended with exit code {code}" if code is not None else self.end.words
        return f"{how} after {self.seconds:.1f} s"


class CommandRuns:
    """Starts commands as the settings say."""

    def __init__(self, settings: ShellSettings, folders: ShellFolders, children: Children) -> None:
        self._settings = settings
        self._folders = folders
        self._children = children
        self._running = 0
        self._guards: list[Mount] = []
        self._starting = asyncio.Lock()
        self._is_proven = not settings.has_sandbox
        self.last_trouble = ""

    async def trouble(self) -> str:
        """Return why no command can run here and what to do, or an empty string. A sandbox is
        started in earnest until one has started."""
        if self._is_proven:
            return ""
        cause = await self._children.sandbox_trouble(self._sandbox(self._folders.roots[0]))
        if not cause:
            self._is_proven = True
            self.last_trouble = ""
            return ""
        log.warning("no sandbox starts for the tool shell", cause=cause)
        self.last_trouble = (
            f"commands cannot run here, because no sandbox starts: {cause}; install bubblewrap and "
            'allow it to make user namespaces, or set [tools.shell] sandbox = "off" to run them '
            "without"
        )
        return self.last_trouble

    async def start(self, command: ShellCommand) -> Child:
        """Start a command. `follow` must be called with what is returned. Raises `Rejected` or
        `Transient` if nothing was started."""
        if trouble := await self.trouble():
            raise Rejected(trouble)
        async with self._starting:
            if self._settings.has_sandbox and not self._running:
                self._guards = await asyncio.to_thread(git_guards, self._folders.roots)
            child = await self._children.start(self._program(command))
            self._running += 1
        return child

    async def follow(
        self,
        child: Child,
        command: ShellCommand,
        output: KeptOutput,
        *,
        report: Callable[[bytes], None] = lambda _: None,
    ) -> RunEnd:
        """Read what a command writes until it has ended. A cancelled call ends the command."""
        try:
            return await followed(child, command, output, report=report)
        finally:
            self._running -= 1

    def _program(self, command: ShellCommand) -> ChildProgram:
        """Return what is started for a command."""
        settings, path = self._settings, self._folders.search_path
        if not settings.has_sandbox:
            return ChildProgram(
                argv=command.argv,
                env={"PATH": path, "TERM": "dumb"},
                cwd=command.folder,
                limits=settings.limits,
                is_merged=True,
            )
        return ChildProgram(
            argv=command.argv,
            env={**_ENVIRONMENT, "PATH": path},
            limits=settings.limits,
            is_merged=True,
            sandbox=self._sandbox(command.folder),
        )

    def _sandbox(self, folder: str) -> Sandbox:
        roots = [
            Mount(path=root, is_writable=True, must_exist=True) for root in self._folders.roots
        ]
        return Sandbox(
            folder=folder,
            mounts=(*roots, *self._guards),
            has_network=self._settings.has_network,
            search_path=self._settings.search_path,
        )


async def followed(
    child: Child,
    command: ShellCommand,
    output: KeptOutput,
    *,
    report: Callable[[bytes], None] = lambda _: None,
) -> RunEnd:
    """Give a program its input, and read what it writes until it has ended or its time is over."""
    began_s = asyncio.get_running_loop().time()
    is_too_slow = False
    async with asyncio.TaskGroup() as group:
        feeding = group.create_task(_fed(child, command.given))
        reading = group.create_task(_read(child, output, report))
        try:
            try:
                async with time_limit(command.timeout_s):
                    end = await child.wait()
            except TimeoutError:
                is_too_slow = True
                end = await child.end(within_s=0)
            # Where a process can get away from the launcher, it may hold the pipe open.
            await asyncio.wait({reading}, timeout=REMAINS_S)
        finally:
            feeding.cancel()
            reading.cancel()
            if child.ended is None:
                # This call was cancelled. The next command may need what this one holds.
                await asyncio.shield(child.end(within_s=0))
    seconds = command.timeout_s if is_too_slow else asyncio.get_running_loop().time() - began_s
    return RunEnd(end=end, seconds=seconds, is_too_slow=is_too_slow)


async def _read(child: Child, output: KeptOutput, report: Callable[[bytes], None]) -> None:
    while piece := await child.read(PIECE_BYTES):
        output.add(piece)
        report(piece)


async def _fed(child: Child, given: bytes) -> None:
    """Give a program what it reads. It may end without having read all of it."""
    with contextlib.suppress(Transient):
        if given:
            await child.write(given)
    child.close_input()
