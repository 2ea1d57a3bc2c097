"""Runs the measured programs, each in its own process, and reads what the kernel counts of them."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import psutil

FOREIGN_ENVIRONMENT = ("PERDURE_", "OPENAI_", "ANTHROPIC_", "OLLAMA_", "GEMINI_")
START_TIMEOUT_S = 30.0
USERS_FILES = 1_024
COMMAND = str(Path(sys.executable).with_name("perdure"))


class Program:
    """Represents a server on loopback. `token` is empty if the server needs none."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self.url = ""
        self.token = ""
        self._kernel = psutil.Process(process.pid)

    def cpu_s(self) -> float:
        """Return the CPU time of all its threads: in nanoseconds where the kernel offers that."""
        try:
            # Linux encodes the CPU clock of another process in this way.
            return time.clock_gettime((~self.pid << 3) | 2)
        except OSError:
            used = self._kernel.cpu_times()
            return used.user + used.system

    def written_bytes(self) -> int:
        """Return the bytes that it has sent to a disk. The kernel counts whole blocks."""
        return self._kernel.io_counters().write_bytes

    def resident_mb(self) -> float:
        return self._kernel.memory_info().rss / 1e6


@contextlib.asynccontextmanager
async def running(name: str, *arguments: str) -> AsyncIterator[Program]:
    """Start one of the bench's own servers. It is ready once it has printed its address."""
    async with _child(sys.executable, "-m", f"bench.{name}", *arguments) as process:
        program = Program(name, process)
        program.url = (await _line(process)).strip()
        yield program


@contextlib.asynccontextmanager
async def perdure(home: Path, *, model_url: str = "", settings: str = "") -> AsyncIterator[Program]:
    """Start the real gateway. Without a model's address it answers with its demo agent. `settings`
    is its configuration file, if it needs one of its own."""
    _furnish(home, model_url, settings)
    async with _child(COMMAND, "serve", "--home", str(home), "--port", "0") as process:
        program = Program("perdure", process)
        await _line(process)
        program.url, program.token = _address(home)
        yield program


def _furnish(home: Path, model_url: str, settings: str) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    if settings:
        (home / "perdure.toml").write_text(settings)
    if model_url:
        agent = f'kind = "chat"\nbase_url = "{model_url}/v1"\nmodel = "scripted"\n'
        # Compaction is switched off: it would make long conversations short.
        agent += "context_tokens = 1_000_000_000\n"
        (home / "perdure.toml").write_text(f"[agents.main]\n{agent}")


def _address(home: Path) -> tuple[str, str]:
    server = msgspec.json.decode((home / "server.json").read_bytes())
    return server["url"], (home / "token").read_text().strip()


def environment() -> dict[str, str]:
    """Return the environment without the variables that the machine's owner may have set for their
    own gateway."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN_ENVIRONMENT)
    }
    return {**kept, "PERDURE_DISCOVER": "0"}


def _as_a_user() -> None:
    """Limit the gateway's open files to what a user has, although the load itself needs more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(USERS_FILES, hard), hard))


@contextlib.asynccontextmanager
async def _child(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_as_a_user if command[0] == COMMAND else None,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_TIMEOUT_S):
        line = await process.stdout.readline()
    assert line, "a program ended before it was ready; its words are above"
    return line.decode()


def elapsed_s(command: Sequence[str]) -> float:
    """Return how many seconds a command takes from its start to its end."""
    begun = time.perf_counter()
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun
