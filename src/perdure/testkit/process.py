"""The real gateway as a child process: started, killed, stopped and started again by a test.

It keeps its home and its port through every life, so what a client knew before a kill is true
afterwards. Nothing is waited for by guessing: a start returns once `/readyz` says so. It is forked
from the nursery, which has imported everything, unless what precedes the first line of the program
is what a test is about.
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
from perdure.testkit.command import TRUSTS_NOBODY, Born, born
from perdure.testkit.nursery import RunRequest

START_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.02
PLATFORMS: Final = ("discord", "matrix", "slack", "telegram", "webhook")
# What the interpreter or the loader read before anything of ours runs.
READ_AT_EXEC: Final = ("PYTHON", "LD_", "MALLOC_", "LANG", "LC_", "TZ")


class _ServerFile(msgspec.Struct):
    pid: int
    port: int
    url: str


class _Running(Protocol):
    """What both ways to begin a life give."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int) -> None: ...

    async def wait(self) -> int: ...


class GatewayProcess:
    """`perdure serve` on a home of its own."""

    def __init__(
        self,
        home: Path,
        *,
        environ: Mapping[str, str],
        clock: Clock,
        open_files: tuple[int, int] | None = None,
        is_executed: bool = False,
    ) -> None:
        """`open_files` are its soft and its hard limit of file descriptors, if not our own. One
        that `is_executed` is started as people do it, from a file."""
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
        """What all its lives have printed so far."""
        return self._output.read_text("utf-8", "replace") if self._output.exists() else ""

    async def start(self, *options: str) -> None:
        """Begin a life and wait until it is ready."""
        assert not self.is_running, "the gateway is already running"
        await asyncio.to_thread((self.home / "server.json").unlink, missing_ok=True)
        words = ["serve", "--home", str(self.home), "--port", str(self.port), *options]
        environ = {**self._environ, **TRUSTS_NOBODY}
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
        """Name what this gateway would import for its chat platforms."""
        file = self.home / "perdure.toml"
        text = file.read_text("utf-8", "replace") if file.exists() else ""
        return [f"perdure.adapters.{each}.adapter" for each in PLATFORMS if each in text]

    def _limit(self) -> None:
        assert self._open_files is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, self._open_files)

    async def kill(self) -> None:
        """SIGKILL to the whole process group: no goodbye."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def terminate(self) -> int:
        """SIGTERM, then the exit code."""
        self.send_signal(signal.SIGTERM)
        return await self.wait()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the gateway is not running"
        self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for its own end; one that does not come is a failure and is shown."""
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
        """Between two looks at the gateway."""
        await self._clock.sleep(seconds)

    async def restart(self) -> None:
        """Kill it and start it again on the same home and port."""
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
    """Tell whether a forked process, which has our environment at its exec, would be another."""
    ours = os.environ  # noqa: TID251 - it is what the nursery inherits
    names = {name for name in {*environ, *ours} if name.startswith(READ_AT_EXEC)}
    return any(environ.get(name) != ours.get(name) for name in names)
