"""Serves as the parent of many commands: it has imported everything once, and forks for each of
them.

`python -m perdure.testkit.processes.nursery` serves a socket that it gets as its standard input.
Each request brings the command's three streams and a pipe. Into the pipe the command writes its
process id, and later the process that waits for the command writes its exit code. A command is a
process of its own, with its own environment, folder, arguments and visible command line. Only the
import of its modules, which takes nine tenths of its time, has happened before. The nursery ends
when the process that started it closes the socket.
"""

import ctypes
import gc
import importlib
import os
import pkgutil
import runpy
import signal
import socket
import sys
from pathlib import Path

import msgspec

REQUEST_BYTES_MAX = 1_000_000
# The nursery is started with this argument, so that commands have room to write their own command
# line over the nursery's.
ROOM = "-" * 2000
# Packages whose modules the verbs import only when they are called.
_NEEDED = (
    "perdure.agents",
    "perdure.app",
    "perdure.cli",
    "perdure.engine",
    "perdure.store",
    "perdure.tools",
    "perdure.web",
    "uvloop",
)


class RunRequest(msgspec.Struct, frozen=True):
    """Says what to run. A command that `is_leader` has a session of its own. The nursery itself
    imports `modules`, for this command and all later ones."""

    arguments: list[str]
    environ: dict[str, str]
    folder: str = "."
    is_leader: bool = False
    modules: list[str] = []


def _import_everything() -> None:
    """Import all modules that a command may need."""
    importlib.import_module("perdure.app.light_start").import_structlog()
    for name in _NEEDED:
        module = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            importlib.import_module(found.name)


def _next_command(requests: socket.socket) -> None:
    """Return in the process of a command, ready to run it; the nursery itself never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # another process waits for each command
    gc.freeze()  # memory that no collection touches stays shared between parent and children
    while True:
        body, streams, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
        if not body:
            os._exit(0)
        request = msgspec.json.decode(body, type=RunRequest)
        for name in request.modules:
            importlib.import_module(name)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _become(request, streams, requests)
        for stream in streams:
            os.close(stream)


def _become(request: RunRequest, streams: list[int], requests: socket.socket) -> None:
    """Fork again, and return in the command's process. The process in between waits for the
    command, and writes its exit code."""
    *standard, told = streams
    command = os.fork()
    requests.close()
    if command:
        for stream in standard:
            os.close(stream)
        _, status = os.waitpid(command, 0)
        os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    if request.is_leader:
        os.setsid()
    # Only now, after `setsid`: the reader of the id may signal the whole group at once.
    os.write(told, f"{os.getpid()} ".encode())
    os.close(told)
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()  # noqa: TID251 - it is the command's from here on
    os.environ.update(request.environ)  # noqa: TID251 - as above
    sys.argv = ["perdure", *request.arguments]
    sys.orig_argv = [sys.executable, "-m", "perdure", *request.arguments]
    _show_command_line(sys.orig_argv)


def _show_command_line(words: list[str]) -> None:
    """Write a command line over the nursery's own in memory, where the kernel reads it for
    `/proc`."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return
    start, end = (int(each) for each in stat.read_text().rpartition(")")[2].split()[45:47])
    line = b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)
    ctypes.memmove(start, line[: end - start - 1].ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    _import_everything()
    with socket.socket(fileno=os.dup(0)) as found:
        _next_command(found)
    runpy.run_module("perdure", run_name="__main__")
