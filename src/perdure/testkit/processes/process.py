"""Runs the real gateway as a child process, which a test starts, kills, stops and starts again.

The gateway keeps its home and its port through all its lives, so what a client knew before a kill
is still true afterwards. A start returns when `/readyz` says that the gateway is ready. The process
is forked from the nursery, which has imported everything, unless the test is about what happens
before the program's first line.
"""

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, Protocol

import aiohttp
import msgspec

from perdure.ports.system.clock import Clock
from perdure.testkit.processes.command import TRUSTS_NOBODY, Born, born
from perdure.testkit.processes.nursery import RunRequest

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
PLATFORMS: Final = ("discord", "matrix", "slack", "telegram", "webhook")
# The beginnings of variables that the interpreter or the loader reads before our code runs.
READ_AT_EXEC: Final = ("PYTHON", "LD_", "MALLOC_", "LANG", "LC_", "TZ")


class _ServerFile(msgspec.Struct):
    """Holds what a running gateway writes about itself."""

    pid: int
    port: int
    url: str


class _Running(Protocol):
    """Describes a process, however it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int) -> None: ...

    async def wait(self) -> int: ...


class GatewayProcess:
    """Runs `perdure serve` with a home of its own."""

    def __init__(
        self,
        home: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        open_files: tuple[int, int] | None = None,
        is_executed: bool = False,
    ) -> None:
        """Prepare the process without starting it. `open_files` are its soft and hard limits of
        file descriptors, if they differ from ours. If `is_executed`, it is not forked from the
        nursery, but started from a file, as people start it."""
        self.home = home
        self._open_files = open_files
        self.url = ""
        self.port = 0
        self._environ = dict(environ)
        self._clock = clock
        self._is_executed = is_executed or open_files is not None or _is_felt_at_exec(environ)
        self._process: _Running | None = None
        self._output = home.with_name(home.name + ".output")

    @property
    def token(self) -> str:
        """Return the token that the gateway has written into its home."""
        return (self.home / "token").read_text().strip()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the gateway is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def output(self) -> str:
        """Return what all its lives have printed so far."""
        return self._output.read_text("utf-8", "replace") if self._output.exists() else ""

    async def start(self, *options: str) -> None:
        """Start the gateway, and wait until it is ready."""
        assert not self.is_running, "the gateway is already running"
        await asyncio.to_thread((self.home / "server.json").unlink, missing_ok=True)
        words = ["serve", "--home", str(self.home), "--port", str(self.port), *options]
        environ = {**TRUSTS_NOBODY, **self._environ}
        with self._output.open("ab") as output:
            begin = self._execute if self._is_executed else self._fork
            self._process = await begin(words, environ, output)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._until_ready()
        except TimeoutError:
            await self.kill()
            raise AssertionError(
                f"the gateway was not ready in {START_TIMEOUT_S:g} s:\n{self.output}"
            ) from None

    async def _execute(
        self, words: list[str], environ: dict[str, str], output: IO[bytes]
    ) -> _Running:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "perdure",
            *words,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=self._limit if self._open_files else None,
        )

    async def _fork(self, words: list[str], environ: dict[str, str], output: IO[bytes]) -> Born:
        request = RunRequest(
            words, environ, str(Path.cwd()), is_leader=True, modules=self._modules()
        )
        return await asyncio.to_thread(born, request, output)

    def _modules(self) -> list[str]:
        """Return the modules that this gateway would import for its chat platforms."""
        file = self.home / "perdure.toml"
        text = file.read_text("utf-8", "replace") if file.exists() else ""
        return [f"perdure.adapters.{each}.adapter" for each in PLATFORMS if each in text]

    def _limit(self) -> None:
        assert self._open_files is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, self._open_files)

    async def kill(self) -> None:
        """Send SIGKILL to the whole process group, so that nothing of it can clean up."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def terminate(self) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self.send_signal(signal.SIGTERM)
        return await self.wait()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the gateway is not running"
        self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait until the gateway ends by itself, and return the exit code. If it does not end in
        time, the test fails with what it has printed."""
        assert self._process is not None, "the gateway is not running"
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                return await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise AssertionError(
                f"the gateway did not end in {STOP_TIMEOUT_S:g} s:\n{self.output}"
            ) from None

    async def pause(self, seconds: float) -> None:
        """Wait between two looks at the gateway."""
        await self._clock.sleep(seconds)

    async def restart(self) -> None:
        """Kill the gateway and start it again with the same home and port."""
        await self.kill()
        await self.start()

    async def _until_ready(self) -> None:
        async with aiohttp.ClientSession() as http:
            while not await self._is_ready(http):
                if not self.is_running:
                    code = self._process.returncode if self._process else None
                    raise AssertionError(f"the gateway ended with {code}:\n{self.output}")
                await self._clock.sleep(POLL_S)

    async def _is_ready(self, http: aiohttp.ClientSession) -> bool:
        """Tell whether the gateway is ready, and learn its address if it is."""
        try:
            server = msgspec.json.decode((self.home / "server.json").read_bytes(), type=_ServerFile)
            async with http.get(f"{server.url}/readyz") as response:
                if response.status != 200:
                    return False
        except (FileNotFoundError, aiohttp.ClientError):
            return False
        self.url, self.port = server.url, server.port
        return True


def _is_felt_at_exec(environ: Mapping[str, str]) -> bool:
    """Tell whether this environment would change the interpreter itself. A process forked from the
    nursery was executed with our environment, so it cannot stand for such a gateway."""
    ours = os.environ  # noqa: TID251 - it is what the nursery inherits
    names = {name for name in {*environ, *ours} if name.startswith(READ_AT_EXEC)}
    return any(environ.get(name) != ours.get(name) for name in names)
