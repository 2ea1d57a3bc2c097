"""Runs the command line for tests: `await run_command(["status"], environ={…})`, and commands that
run on while the test does other things."""

import asyncio
import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import msgspec

from perdure.testkit.processes.nursery import ROOM, RunRequest

DEADLINE_S: Final = 30.0
# A process under test uses no TLS. Without these variables it would read the machine's certificate
# authorities, which takes a fifth of its start.
TRUSTS_NOBODY: Final = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


class Result(msgspec.Struct, frozen=True):
    """Holds how a command ended and what it printed."""

    code: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return what the command printed, read as JSON."""
        return msgspec.json.decode(self.out)


class _Nursery:
    """Starts the nursery of this process. The nursery ends when its socket is closed."""

    def __init__(self) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "perdure.testkit.processes.nursery", ROOM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, **TRUSTS_NOBODY},  # noqa: TID251 - as it would be inherited
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self.requests.close()
        self._process.wait(DEADLINE_S)


@cache
def _nursery() -> _Nursery:
    return _Nursery()


class Born:
    """Represents a command that the nursery has started. It has the parts of
    `asyncio.subprocess.Process` that its owners need."""

    def __init__(self, told: int) -> None:
        """Wait until the command's id can be read. `told` is the pipe into which first its process
        id and later its exit code are written."""
        self._told = told
        self._code: int | None = None
        self.pid = int(self._read_until(b" "))
        os.set_blocking(told, False)

    def _read_until(self, end: bytes) -> bytes:
        read = b""
        while not read.endswith(end):
            read += os.read(self._told, 1) or self._never_began()
        return read

    def _never_began(self) -> NoReturn:
        os.close(self._told)
        raise AssertionError("the nursery has not begun the command")

    @property
    def returncode(self) -> int | None:
        """Return the exit code, or None as long as the command runs."""
        if self._code is None:
            with contextlib.suppress(BlockingIOError):
                self._code = int(os.read(self._told, 16) or b"")
                os.close(self._told)
        return self._code

    def send_signal(self, signal: int) -> None:
        os.kill(self.pid, signal)

    async def wait(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        if self.returncode is None:
            loop.add_reader(self._told, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._told)
        code = self.returncode
        assert code is not None
        return code

    def wait_for_long(self) -> int:
        """Wait for the end outside of an event loop, and return the exit code. A command that takes
        too long is killed, and the test fails."""
        if not select.select([self._told], [], [], DEADLINE_S)[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"the command did not end in {DEADLINE_S:g} s")
        code = self.returncode
        assert code is not None
        return code


def born(request: RunRequest, output: IO[bytes]) -> Born:
    """Start a command that has no input and prints everything into one file."""
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - it is no file of ours
        return _born(request, [nothing.fileno(), output.fileno(), output.fileno()])


def _born(request: RunRequest, streams: list[int]) -> Born:
    """Hand a command to the nursery, with its streams and the pipe for its id and exit code."""
    hears, tells = os.pipe()
    try:
        socket.send_fds(_nursery().requests, [msgspec.json.encode(request)], [*streams, tells])
    finally:
        os.close(tells)
    return Born(hears)


async def run_command(
    arguments: Sequence[str], *, environ: Mapping[str, str], stdin: str = ""
) -> Result:
    """Run `perdure` in a process of its own, as `python -m perdure` does, and wait for its end."""
    request = RunRequest(list(arguments), dict(environ), str(Path.cwd()))
    return await asyncio.to_thread(_run, request, stdin)


def _run(request: RunRequest, stdin: str) -> Result:
    reads, writes = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        command = _born(request, [reads, out.fileno(), err.fileno()])
        os.close(reads)
        with os.fdopen(writes, "wb") as given, contextlib.suppress(BrokenPipeError):
            given.write(stdin.encode())
            given.flush()
        code = command.wait_for_long()
        out.seek(0)
        err.seek(0)
        return Result(code, out.read().decode(), err.read().decode())
