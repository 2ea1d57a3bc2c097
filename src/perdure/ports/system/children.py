"""Defines the port through which other programs are started.

Tool servers and the tool `shell` start programs here and nowhere else, so that each of them gets
an environment without secrets, limits, and an end: when the gateway is gone, however it went, all
that it has started is gone too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

from perdure.ports.system.sandbox import Sandbox

_MEGABYTE: Final = 1_000_000


class ChildLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a program and all programs that it starts may use together. 0 is no limit.
    `cpu_s` and `files` count for each process alone."""

    memory_bytes: int = 2_000 * _MEGABYTE
    processes: int = 256
    files: int = 4_096
    cpu_s: int = 0


class ChildProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Says what to start. `argv` is never read by a shell. `env` is added to a short list of
    variables of the gateway's own environment (its search path, language and time zone); nothing
    else is passed on. An empty `cwd` is an empty folder of the program's own. `is_merged`: what it
    writes to standard error is read with the rest, in order. `is_wrapper`: the program only runs
    another one inside of itself, so the others are asked to end in its place. With `sandbox` the
    program sees only what that shows."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = MappingProxyType({})
    cwd: str = ""
    limits: ChildLimits = ChildLimits()
    is_merged: bool = False
    is_wrapper: bool = False
    sandbox: Sandbox | None = None


class ChildEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Says how a program has ended: with an exit code, by a signal, or because it broke the limit
    that `limit` names."""

    code: int | None = None
    signal: int = 0
    limit: str = ""

    @property
    def words(self) -> str:
        """Return how it ended, in words that follow "it"."""
        if self.limit:
            return f"was ended because it used too {_MUCH[self.limit]}"
        if self.signal:
            return f"was ended by signal {self.signal}"
        return f"ended with exit code {self.code}" if self.code else "ended"


_MUCH: Final = {"memory": "much memory", "processes": "many processes"}


class Child(Protocol):
    """Talks to one program that was started.

    Guarantees: what it writes to standard error is always read, and only its end is kept. When the
    program itself ends, everything that it has started is ended too.
    Requires: one reader and one writer at a time.
    Raises: `Transient` when the program no longer reads.
    After a crash: it is gone with the gateway.
    """

    @property
    def pid(self) -> int:
        """Return the program's process id, to show people."""

    async def read(self, size: int) -> bytes:
        """Return what the program writes, as soon as there is something; empty at its end."""

    async def write(self, data: bytes) -> None:
        """Give the program something to read, and wait while it reads nothing."""

    def close_input(self) -> None:
        """End what the program reads."""

    @property
    def errors(self) -> str:
        """Return the end of what the program has written to standard error."""

    @property
    def ended(self) -> ChildEnd | None:
        """Return how the program has ended, or None while it runs."""

    async def memory(self) -> int:
        """Return the bytes that the program and all that it has started hold now, or 0 where the
        system does not tell."""

    async def wait(self) -> ChildEnd:
        """Wait until the program has ended, and all that it has started."""

    async def end(self, *, within_s: float = 2.0) -> ChildEnd:
        """End the program. It is asked first, by the end of its input and by a signal; what has not
        ended by itself within the time is killed."""


class Children(Protocol):
    """Starts programs.

    Guarantees: no program outlives the gateway, not even one that left its process group.
    Requires: Linux or macOS. Only Linux finds programs that left their group.
    Raises: `Rejected` if a program cannot be started as it is described, `Transient` if the machine
    has no room for another process.
    After a crash: every program that was started is killed.
    """

    async def start(
        self, program: ChildProgram, *, hear: Callable[[bytes], None] | None = None
    ) -> Child:
        """Start a program. `hear` is given what it writes to standard error, as it comes."""

    async def sandbox_trouble(self, sandbox: Sandbox) -> str:
        """Return why no program can be started in this sandbox, or an empty string. One is started
        in earnest to see."""

    async def close(self) -> None:
        """End all programs that still run."""
