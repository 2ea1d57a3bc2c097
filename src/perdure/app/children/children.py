"""Implements the port of child programs with one launcher for each program.

`launcher.py` says what the launcher does. This module starts it, hands it the program over the
line, and reads how the program has ended.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from perdure.app.children.environment import child_environment
from perdure.app.children.sandboxing import sandbox_trouble, sandboxed
from perdure.domain.errors import NO_FILES, OUT_OF_FILES, OUT_OF_FILES_CODE, Rejected, Transient
from perdure.ports.system.children import Child, ChildEnd, ChildProgram
from perdure.ports.system.sandbox import Sandbox
from perdure.ports.system.time_limits import time_limit

# How much of what a program writes to standard error is kept, and how much is read at once.
ERRORS_MAX: Final = 64 * 1024
PIECE_BYTES: Final = 64 * 1024
# A launcher answers within milliseconds; a machine that is out of memory may take longer.
START_S: Final = 20.0
# What the launcher may take to end everything after it was asked: its own grace, and the kill.
KILL_S: Final = 3.0
_REPORT_MAX: Final = 8192
# Run as a program of its own, and not imported at a start: it would cost some time.
_LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
log = structlog.get_logger("children")


class _Report(msgspec.Struct, frozen=True):
    """Holds what a launcher says: that it has started the program, or why it cannot, or how the
    program has ended."""

    started: int = 0
    problem: str = ""
    code: int | None = None
    signal: int = 0
    limit: str = ""


class LaunchedChildren:
    """Implements the `Children` port."""

    def __init__(self) -> None:
        self._running: set[LaunchedChild] = set()
        self._is_closed = False

    async def start(
        self, program: ChildProgram, *, hear: Callable[[bytes], None] | None = None
    ) -> Child:
        if self._is_closed:
            raise Transient("the gateway is stopping; nothing is started any more")
        program = sandboxed(program)
        environment = child_environment(program.env)
        _check(program, environment["PATH"])
        folder = None
        if not program.cwd:
            folder = await _new_folder()
        spec = {
            **msgspec.to_builtins(program.limits),
            "argv": list(program.argv),
            "env": environment,
            "cwd": program.cwd or folder,
            "folder": folder or "",
            "is_merged": program.is_merged,
            "is_wrapper": program.is_wrapper,
        }
        child = LaunchedChild(folder, hear or _hear_nothing, self._running.discard)
        # Known from before the process exists: a stop that comes now must end it too.
        self._running.add(child)
        try:
            await child.begin(msgspec.json.encode(spec) + b"\n")
        except BaseException:
            await asyncio.shield(child.end(within_s=0))
            raise
        return child

    async def sandbox_trouble(self, sandbox: Sandbox) -> str:
        return await sandbox_trouble(self, sandbox)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(child.end() for child in tuple(self._running)))


class LaunchedChild:
    """Implements the `Child` port."""

    def __init__(
        self,
        folder: str | None,
        hear: Callable[[bytes], None],
        forget: "Callable[[LaunchedChild], None]",
    ) -> None:
        """Prepare to run a program. `folder` is its own folder, which goes with it."""
        self._folder = folder
        self._hear = hear
        self._forget = forget
        self._process: asyncio.subprocess.Process | None = None
        self._line: socket.socket | None = None
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._ended: ChildEnd | None = None
        self._over = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._reports: _Reports | None = None
        self.pid = 0

    async def begin(self, spec: bytes) -> None:
        """Start the launcher, and wait until it has started the program. Raises `Rejected` or
        `Transient`."""
        ours, theirs = socket.socketpair()
        self._line = ours
        ours.settimeout(0)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", _LAUNCHER, str(theirs.fileno()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={"PATH": os.defpath},
                limit=PIECE_BYTES,
            )  # fmt: skip
        except OSError as error:
            code = OUT_OF_FILES_CODE if error.errno in NO_FILES else None
            why = OUT_OF_FILES if code else f"no process can be started ({error.strerror})"
            raise Transient(why, code=code) from error
        finally:
            theirs.close()
        self._watching = asyncio.create_task(self._watch())
        reports = _Reports(ours)
        try:
            async with time_limit(START_S):
                await asyncio.get_running_loop().sock_sendall(ours, spec)
                report = await reports.next()
        except TimeoutError as error:
            raise Transient("the program did not start in time; the machine is too busy") from error
        if report.problem:
            raise Rejected(f"the program cannot be started: {report.problem}")
        if not report.started:
            raise Transient("the program was ended while it was started")
        self._reports = reports
        self.pid = report.started

    async def _watch(self) -> None:
        """Read what the program writes to standard error, then how it has ended."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        while piece := await process.stderr.read(PIECE_BYTES):
            self._keep(piece)
            self._hear(piece)
        await process.wait()
        self._ended = await self._report()
        assert self._line is not None
        self._line.close()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._forget(self)
        self._over.set()

    async def _report(self) -> ChildEnd:
        """Return how the program has ended, as its launcher has said with its last words."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            report = await self._reports.next() if self._reports else _Report()
            return ChildEnd(code=report.code, signal=report.signal, limit=report.limit)
        return ChildEnd()

    def _keep(self, piece: bytes) -> None:
        self._kept.append(piece)
        self._kept_bytes += len(piece)
        while self._kept_bytes - len(self._kept[0]) >= ERRORS_MAX:
            self._kept_bytes -= len(self._kept.popleft())

    async def read(self, size: int) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return await self._process.stdout.read(size)

    async def write(self, data: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, RuntimeError) as error:
            raise Transient("the program no longer reads") from error

    def close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def errors(self) -> str:
        return b"".join(self._kept)[-ERRORS_MAX:].decode(errors="replace")

    @property
    def ended(self) -> ChildEnd | None:
        return self._ended

    async def memory(self) -> int:
        if self._process is None or self._over.is_set():
            return 0
        return await asyncio.to_thread(_memory_below, self._process.pid)

    async def wait(self) -> ChildEnd:
        await self._over.wait()
        assert self._ended is not None
        return self._ended

    async def end(self, *, within_s: float = 2.0) -> ChildEnd:
        if self._process is None:
            return await self._forsake()
        self.close_input()
        if not await self._is_over_within(within_s):
            self._say(b"end")
        if not await self._is_over_within(KILL_S):
            # The launcher itself is stuck. Without the line it kills everything.
            self._say(b"")
        return await self.wait()

    async def _forsake(self) -> ChildEnd:
        """Clean up after a start that was cancelled before there was a process."""
        if self._line is not None:
            self._line.close()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._forget(self)
        return ChildEnd()

    async def _is_over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
        return self._over.is_set()

    def _say(self, word: bytes) -> None:
        """Send a word over the line; an empty one closes it."""
        assert self._line is not None
        with contextlib.suppress(OSError):
            if word:
                self._line.send(word)
            else:
                self._line.shutdown(socket.SHUT_RDWR)


class _Reports:
    """Reads what a launcher says, a line at a time."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._told = b""

    async def next(self) -> _Report:
        """Return the next report; an empty one if the launcher is gone."""
        while b"\n" not in self._told and len(self._told) < _REPORT_MAX:
            piece = await asyncio.get_running_loop().sock_recv(self._line, _REPORT_MAX)
            if not piece:
                return _Report()
            self._told += piece
        first, _, self._told = self._told.partition(b"\n")
        return msgspec.json.decode(first, type=_Report)


def _check(program: ChildProgram, path: str) -> None:
    """Refuse a program that does not exist. Raises `Rejected`."""
    name = program.argv[0] if program.argv else ""
    if not name or any("\0" in word for word in (*program.argv, *program.env.values())):
        raise Rejected("the command must name a program, and hold no zero bytes")
    if "/" not in name and shutil.which(name, path=path) is None:
        raise Rejected(
            f"there is no program {name!r} on the search path; install it, or write its whole path"
        )
    if program.cwd and not Path(program.cwd).is_dir():
        raise Rejected(f"the folder {program.cwd} does not exist; create it, or name another one")


def _memory_below(pid: int) -> int:
    """Return the bytes that the descendants of a process hold."""
    from perdure.app.children import launcher  # noqa: PLC0415 - only who asks needs it

    if not launcher.has_proc():
        return 0
    return sum(map(launcher.resident, launcher.descendants(pid)))


async def _new_folder() -> str:
    """Make a folder for a program. Whoever is cancelled meanwhile leaves none."""
    making = asyncio.create_task(asyncio.to_thread(tempfile.mkdtemp, prefix="perdure-child-"))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.to_thread(shutil.rmtree, await making, ignore_errors=True)
        raise


def _hear_nothing(_: bytes) -> None:
    """Listen to nothing that a program writes to standard error."""
