"""Runs a program beside the tests: starts it on loopback, waits until it answers, and stops it for
good.

The process is not tied to an event loop. So a session's fixture may start it, tests with loops of
their own may kill it and start it again, and the fixture stops it at the end. It leads a process
group of its own, and the whole group is stopped. If the machine has `setpriv`, the system ends the
process together with the test run, even if that was killed.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec

from perdure.ports.system.clock import Clock

START_TIMEOUT_S: Final = 45.0
STOP_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.02
OUTPUT_CHARS: Final = 4000


class Site(msgspec.Struct, frozen=True):
    """Says where a peer runs: the folder for its data and its log, its environment, and the
    clock."""

    folder: Path
    environ: Mapping[str, str]
    clock: Clock

    def path(self, name: str) -> Path:
        """Return the path of a file in the peer's folder, and make sure that the folder exists."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / name


# Below the ports that systems give to outgoing connections, because such a connection could take
# the port between its choice and the start. Each process begins at another port, so that two test
# workers rarely choose the same one.
_FIRST_PORT: Final = 12_000
_PORTS: Final = 20_000
_turns = count(os.getpid() * 97)


def free_port() -> int:
    """Return a port on which nobody listens now."""
    while True:
        port = _FIRST_PORT + next(_turns) % _PORTS
        # Probed on every interface, because some peers can only listen on all of them.
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return port


class Peer:
    """Runs a program. It is ready when its `ready` URL answers with 200, or its port accepts a
    connection.

    The port of `ready` is free when the peer is made, and stays the same through all its lives.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        site: Site,
        ready: str,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._command = [*_dying_with_its_parent(), *command]
        self._site = site
        self._ready = ready
        self._environ = {**site.environ, **(environ or {})}
        self._output = site.path(f"{name}.output")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """Return the end of what all its lives have printed."""
        if not self._output.exists():
            return ""
        return self._output.read_text("utf-8", "replace")[-OUTPUT_CHARS:]

    async def start(self) -> None:
        """Start the program, and wait until it answers."""
        assert not self.is_running, f"{self.name} is already running"
        process = self._spawn()
        try:
            async with asyncio.timeout(START_TIMEOUT_S), aiohttp.ClientSession() as http:
                while not await self._answers(http):
                    assert process.poll() is None, f"{self.name} ended at once:\n{self.output}"
                    await self._site.clock.sleep(POLL_S)
        except TimeoutError:
            await self.kill()
            raise AssertionError(
                f"{self.name} did not answer in {START_TIMEOUT_S:g} s:\n{self.output}"
            ) from None

    async def stop(self) -> None:
        """Ask the program to end, and kill it if it does not end in time."""
        if self.is_running:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._until_gone()
        await self.kill()

    async def kill(self) -> None:
        """Send SIGKILL to the whole process group, so that nothing of it can clean up."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        await self._until_gone()
        self._process = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 the tests name their own programs
                self._command,
                cwd=self._site.folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._process = process
        return process

    def _signal(self, number: signal.Signals) -> None:
        # The group may outlive its leader, so it gets the signal even if the leader is gone.
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def _until_gone(self) -> None:
        while self.is_running:
            await self._site.clock.sleep(POLL_S)

    async def _answers(self, http: aiohttp.ClientSession) -> bool:
        try:
            if self._ready.startswith("tcp:"):
                _, host, port = self._ready.split(":")
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                await writer.wait_closed()
                return True
            async with http.get(self._ready) as response:
                return response.status == 200
        except (OSError, aiohttp.ClientError):
            return False


def _dying_with_its_parent() -> list[str]:
    """Return the words before a command that let the system end it with its parent, if it can."""
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "KILL", "--"] if program else []


class Server:
    """Runs a platform: one or more peers that live and die together, in the order in which they are
    needed."""

    def __init__(self, *peers: Peer, site: Site) -> None:
        self.clock = site.clock
        self._peers = peers

    @property
    def is_running(self) -> bool:
        return all(peer.is_running for peer in self._peers)

    @property
    def output(self) -> str:
        return "\n".join(f"{peer.name}:\n{peer.output}" for peer in self._peers)

    async def start(self) -> None:
        """Start the peers on the same ports as before. What a peer keeps on disk is still there."""
        for peer in self._peers:
            await peer.start()

    async def stop(self) -> None:
        for peer in reversed(self._peers):
            await peer.stop()

    async def kill(self) -> None:
        for peer in reversed(self._peers):
            await peer.kill()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
