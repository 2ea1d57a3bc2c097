"""The parent of many commands: it has imported everything once, and forks for each of them.

`python -m perdure.testkit.nursery` serves a socket that it gets as its standard input. Each request
brings the command's three streams and a pipe for its exit code. A command is a process of its own
with its own environment and arguments; only the import of its modules, which takes nine tenths of
its time, has happened before. It ends with whoever started it.
"""

import importlib
import os
import pkgutil
import runpy
import signal
import socket
import sys

import msgspec

REQUEST_BYTES_MAX = 1_000_000
# What verbs import when they are called.
_NEEDED = ("perdure.cli", "perdure.app.client", "perdure.app.offline", "perdure.store.store")


class Request(msgspec.Struct, frozen=True):
    arguments: list[str]
    environ: dict[str, str]


def _import_everything() -> None:
    for name in _NEEDED:
        module = importlib.import_module(name)
        for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
            importlib.import_module(f"{name}.{found.name}")


def _next_command(requests: socket.socket) -> None:
    """Return in the process of a command, ready to run it; the nursery itself never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever waits for a command has his own process
    while True:
        body, streams, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 4)
        if not body:
            os._exit(0)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _become(msgspec.json.decode(body, type=Request), streams, requests)
        for stream in streams:
            os.close(stream)


def _become(request: Request, streams: list[int], requests: socket.socket) -> None:
    *standard, told = streams
    command = os.fork()
    if command:
        for stream in standard:
            os.close(stream)
        os.write(told, f"{command} ".encode())
        _, status = os.waitpid(command, 0)
        os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    os.close(told)
    requests.close()
    for number, stream in enumerate(standard):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()  # noqa: TID251 - it is the command's from here on
    os.environ.update(request.environ)  # noqa: TID251 - as above
    sys.argv = ["perdure", *request.arguments]


if __name__ == "__main__":
    _import_everything()
    with socket.socket(fileno=os.dup(0)) as found:
        _next_command(found)
    runpy.run_module("perdure", run_name="__main__")
