"""Checks the command where its streams are closed, not read, or in an encoding that lacks most
letters."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.processes.command import TRUSTS_NOBODY

pytestmark = pytest.mark.timeout(60)
DEADLINE_S = 30.0
PERDURE = [sys.executable, "-m", "perdure"]
STREAMS = ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"]


@contextmanager
def closed_pipe() -> Iterator[int]:
    """Open the writing end of a pipe that nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        yield writes
    finally:
        os.close(writes)


def environment(home: Path, **environ: str) -> dict[str, str]:
    foreign = ("PERDURE_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {
        **kept,
        **TRUSTS_NOBODY,
        "PERDURE_HOME": str(home),
        "PERDURE_DISCOVER": "0",
        **environ,
    }


def run(
    words: list[str], home: Path, *, stdout: Any = subprocess.PIPE, **environ: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words,
        env=environment(home, **environ),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=False,
    )


@asynccontextmanager
async def node(home: Path, words: list[str], **streams: Any) -> AsyncIterator[Callable[[], Any]]:
    """Run a node with these streams. The end of the block stops it, with code 0."""
    process = await asyncio.create_subprocess_exec(*words, env=environment(home), **streams)

    async def answers() -> bool:
        url = json.loads((home / "server.json").read_bytes())["url"]
        async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz") as response:
            return response.status == 200

    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (home / "server.json").exists():
                assert process.returncode is None, "it has ended"
                await SystemClock().sleep(0.02)
            yield answers
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("closed", STREAMS)
async def test_a_node_needs_none_of_its_streams(tmp_path: Path, closed: str) -> None:
    # The numbers of the closed streams must not be given to the database or to a socket.
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *PERDURE, "serve", "--port", "0"]
    async with node(tmp_path / "home", words) as answers:
        assert await answers()


@pytest.mark.parametrize("closed", STREAMS)
def test_a_verb_needs_none_of_its_streams(tmp_path: Path, closed: str) -> None:
    done = run(["sh", "-c", f'exec "$@" {closed}', "sh", *PERDURE, "status"], tmp_path)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


async def test_a_node_goes_on_when_nobody_reads_what_it_prints(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with closed_pipe() as nobody:
        words = [*PERDURE, "serve", "--port", "0"]
        async with node(home, words, stdout=nobody, stderr=nobody) as answers:
            async with asyncio.timeout(DEADLINE_S):
                while "the output was closed" not in log(home):
                    await SystemClock().sleep(0.02)
            assert await answers()


def log(home: Path) -> str:
    path = home / "logs" / "perdure.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ("--help", 0),
        ("sessions --help", 0),
        ("status --json", 1),
        ("sessions list", 1),
        ("status", 3),
        ("nonsense", 2),
    ],
)
def test_a_verb_whose_output_nobody_reads_ends_quietly(
    tmp_path: Path, verb: str, code: int
) -> None:
    with closed_pipe() as nobody:
        done = run([*PERDURE, *verb.split()], tmp_path, stdout=nobody)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == code


def test_a_file_that_takes_no_more_is_named(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run([*PERDURE, "status", "--json"], tmp_path, stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"perdure: the output cannot be written (No space left on device)\n"


def test_letters_that_the_output_lacks_are_escaped(tmp_path: Path) -> None:
    home = tmp_path / "größe"
    text = run([*PERDURE, "status"], home, PYTHONIOENCODING="ascii")
    machine = run([*PERDURE, "status", "--json"], home, PYTHONIOENCODING="ascii")

    assert text.stderr.startswith(b"perdure: no node is running in ")
    assert b"gr\\xf6\\xdfe" in text.stderr
    assert json.loads(machine.stdout)["home"] == str(home)


@pytest.mark.parametrize("words", [["status"], ["chat", "b\udcffd"], ["--home", "/tmp/b\udcffd"]])
def test_a_name_that_is_not_unicode_is_refused_in_a_line(tmp_path: Path, words: list[str]) -> None:
    home = tmp_path / "b\udcffd" if words == ["status"] else tmp_path
    done = run([*PERDURE, *words], home)
    assert done.returncode == 2
    assert b"not valid Unicode" in done.stderr
    assert b"Traceback" not in done.stderr
