"""The command line as a test calls it: `await run_command(["status"], environ={…})`."""

import asyncio
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
from io import RawIOBase
from typing import Any, Final

import msgspec

from perdure.testkit.nursery import Request

DEADLINE_S: Final = 30.0


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
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perdure.testkit.nursery"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
            )


@cache
def _nursery() -> _Nursery:
    return _Nursery()


async def run_command(
    arguments: Sequence[str], *, environ: Mapping[str, str], stdin: str = ""
) -> Result:
    """Run `perdure` in a process of its own, as `python -m perdure` does, and wait for its end."""
    return await asyncio.to_thread(_run, Request(list(arguments), dict(environ)), stdin)


def _run(request: Request, stdin: str) -> Result:
    reads, writes = os.pipe()
    hears, tells = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = [reads, out.fileno(), err.fileno(), tells]
        socket.send_fds(_nursery().requests, [msgspec.json.encode(request)], streams)
        os.close(reads)
        os.close(tells)
        with os.fdopen(writes, "wb") as given, contextlib.suppress(BrokenPipeError):
            given.write(stdin.encode())
            given.flush()
        with os.fdopen(hears, "rb", buffering=0) as told:
            code = _code(told)
        out.seek(0)
        err.seek(0)
        return Result(code, out.read().decode(), err.read().decode())


def _code(told: RawIOBase) -> int:
    """Wait for the exit code of a command, and kill one that takes too long."""
    pid = b""
    while not pid.endswith(b" "):
        pid += told.read(1) or b""
    if not select.select([told], [], [], DEADLINE_S)[0]:
        os.kill(int(pid), signal.SIGKILL)
        raise AssertionError(f"the command did not end in {DEADLINE_S:g} s")
    return int(told.read() or b"")
