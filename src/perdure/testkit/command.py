"""The command line as a test calls it: `await run_command(["status"], environ={…})`, and commands
that go on while the test does."""

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

from perdure.testkit.nursery import ROOM, RunRequest

DEADLINE_S: Final = 30.0
# A process under test speaks TLS to nobody, and reading the machine's authorities would take a
# fifth of its start.
TRUSTS_NOBODY: Final = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


class Result(msgspec.Struct, frozen=True):
    code: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


class _Nursery:
    """The nursery of this process. It ends when its socket is closed."""

    def __init__(self) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "perdure.testkit.nursery", ROOM],
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
    """A command that runs: as much of `asyncio.subprocess.Process` as its owners need."""

    def __init__(self, told: int) -> None:
        """`told` is the pipe into which its id and its exit code are written."""
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
        if self._code is None:
            with contextlib.suppress(BlockingIOError):
                self._code = int(os.read(self._told, 16) or b"")
                os.close(self._told)
        return self._code

    def send_signal(self, signal: int) -> None:
        os.kill(self.pid, signal)

    async def wait(self) -> int:
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
        """Wait outside of an event loop, and kill what takes too long."""
        if not select.select([self._told], [], [], DEADLINE_S)[0]:
            os.kill(self.pid, signal.SIGKILL)
            raise AssertionError(f"the command did not end in {DEADLINE_S:g} s")
        code = self.returncode
        assert code is not None
        return code


def born(request: RunRequest, output: IO[bytes]) -> Born:
    """Begin a command that reads nothing and prints everything into one file."""
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - it is no file of ours
        return _born(request, [nothing.fileno(), output.fileno(), output.fileno()])


def _born(request: RunRequest, streams: list[int]) -> Born:
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
