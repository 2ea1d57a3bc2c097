"""Checks the port of child programs with real programs: their environment, their limits, and that
nothing they start outlives them or the gateway."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.domain.errors import Rejected, Transient
from perdure.ports.system.children import Child, ChildLimits, ChildProgram

IN_A_WHILE_S = 20


@pytest.fixture
async def children() -> AsyncIterator[LaunchedChildren]:
    children = LaunchedChildren()
    yield children
    await children.close()


def python(code: str, *args: str, **more: object) -> ChildProgram:
    return ChildProgram(argv=(sys.executable, "-c", code, *args), **more)  # type: ignore[arg-type]


async def all_of(child: Child) -> bytes:
    said = b""
    while piece := await child.read(65536):
        said += piece
    return said


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def is_gone(pid: int) -> None:
    async with asyncio.timeout(IN_A_WHILE_S):
        while lives(pid):
            await asyncio.sleep(0.02)


async def test_a_program_reads_writes_and_ends(children: LaunchedChildren) -> None:
    child = await children.start(
        python("import sys; print(sys.stdin.read().upper()); print('x', file=sys.stderr); exit(3)")
    )
    await child.write(b"hello")
    child.close_input()
    assert await all_of(child) == b"HELLO\n"
    ended = await child.wait()
    assert (ended.code, ended.words) == (3, "ended with exit code 3")
    assert child.errors == "x\n"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (ChildProgram(argv=("no-such-program",)), "no program 'no-such-program'"),
        (ChildProgram(argv=("/no/such/program",)), "No such file"),
        (ChildProgram(argv=("true",), cwd="/no/such/folder"), "does not exist"),
        (ChildProgram(argv=()), "must name a program"),
        (ChildProgram(argv=("true", "a\0b")), "zero bytes"),
    ],
    ids=["unknown", "missing", "folder", "empty", "zero byte"],
)
async def test_what_cannot_be_started_is_refused(
    children: LaunchedChildren, program: ChildProgram, why: str
) -> None:
    with pytest.raises(Rejected, match=why):
        await children.start(program)


async def test_a_program_gets_the_short_list_and_what_is_configured(
    children: LaunchedChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-of-the-gateway")
    monkeypatch.setenv("PERDURE_TOKEN", "canary-of-the-gateway")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    show = "import os; print(sorted(os.environ.items()))"
    child = await children.start(python(show, env={"OWN": "configured"}))
    other = await children.start(python(show))
    said, others = await all_of(child), await all_of(other)
    assert b"canary" not in said
    assert b"('OWN', 'configured')" in said
    assert b"LC_TIME" in said
    assert b"OWN" not in others, "what one program is given never reaches another one"
    assert "OWN" not in os.environ


async def test_a_program_inherits_no_open_file(children: LaunchedChildren, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        child = await children.start(python("import os; print(os.listdir('/proc/self/fd'))"))
        assert await all_of(child) in (b"['0', '1', '2', '3']\n", b"['0', '1', '2']\n")


LEAVES = """
import os, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(writing, b"x")
        time.sleep(600)
    os._exit(0)
os.wait()
os.read(reading, 1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux finds who left the group")
async def test_who_left_the_group_ends_with_the_program(children: LaunchedChildren) -> None:
    child = await children.start(python(LEAVES))
    async with asyncio.timeout(IN_A_WHILE_S):
        pid = int(await all_of(child))  # whoever holds the pipe is killed, so it closes
        assert (await child.wait()).code == 0
    await is_gone(pid)


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
time.sleep(600)
"""


async def test_a_program_that_ignores_its_end_is_killed(children: LaunchedChildren) -> None:
    child = await children.start(python(STUBBORN))
    pid = int(await child.read(100))
    async with asyncio.timeout(IN_A_WHILE_S):
        ended = await child.end(within_s=0.1)
    assert ended.signal == signal.SIGKILL
    assert not lives(pid)


async def test_a_program_is_asked_to_end_before_it_is_killed(children: LaunchedChildren) -> None:
    child = await children.start(
        python("import sys; print('up', flush=True); sys.stdin.read(); print('bye'); exit(5)")
    )
    await child.read(100)
    ended = await child.end()
    assert (ended.code, await all_of(child)) == (5, b"bye\n")


async def test_a_program_that_uses_too_much_memory_is_ended(children: LaunchedChildren) -> None:
    child = await children.start(
        python(
            "import time; held = bytearray(b'x') * 200_000_000; time.sleep(600)",
            limits=ChildLimits(memory_bytes=100_000_000),
        )
    )
    async with asyncio.timeout(IN_A_WHILE_S):
        ended = await child.wait()
    assert ended.words == "was ended because it used too much memory"


async def test_a_program_that_forks_without_end_is_ended(children: LaunchedChildren) -> None:
    child = await children.start(
        python(
            "import os, time\nwhile True: os.fork() or time.sleep(600)",
            limits=ChildLimits(processes=20),
        )
    )
    async with asyncio.timeout(IN_A_WHILE_S):
        ended = await child.wait()
    assert ended.words == "was ended because it used too many processes"


async def test_files_and_time_are_limited(children: LaunchedChildren) -> None:
    many = "import os\nfor _ in range(100): os.dup(0)"
    child = await children.start(python(many, limits=ChildLimits(files=32)))
    assert (await child.wait()).code == 1
    assert "Too many open files" in child.errors
    busy = await children.start(python("while True: pass", limits=ChildLimits(cpu_s=1)))
    async with asyncio.timeout(IN_A_WHILE_S):
        assert (await busy.wait()).signal in (signal.SIGXCPU, signal.SIGKILL)


async def test_a_flood_of_errors_is_read_and_its_end_is_kept(children: LaunchedChildren) -> None:
    heard = []
    child = await children.start(
        python("import sys\nfor n in range(200_000): print('line', n, file=sys.stderr)"),
        hear=lambda piece: heard.append(len(piece)),
    )
    async with asyncio.timeout(IN_A_WHILE_S):
        assert (await child.wait()).code == 0
    assert sum(heard) > 2_000_000
    assert len(child.errors) <= 64 * 1024
    assert child.errors.endswith("line 199999\n")


async def test_a_program_that_reads_nothing_is_told_of_its_end(children: LaunchedChildren) -> None:
    child = await children.start(ChildProgram(argv=("true",)))
    await child.wait()

    async def writes() -> None:
        for _ in range(3):
            await child.write(b"x" * 1_000_000)

    with pytest.raises(Transient, match="no longer reads"):
        await writes()


async def test_its_own_folder_goes_with_it(children: LaunchedChildren) -> None:
    child = await children.start(
        python("import os; open('left', 'w').close(); print(os.getcwd(), end='')")
    )
    folder = Path((await all_of(child)).decode())
    assert "perdure-child-" in folder.name
    await child.wait()
    assert not folder.exists()


async def test_the_end_of_the_gateway_ends_all_and_starts_none() -> None:
    children = LaunchedChildren()
    running = [await children.start(python(STUBBORN)) for _ in range(3)]
    pids = [int(await child.read(100)) for child in running]
    async with asyncio.timeout(IN_A_WHILE_S):
        await children.close()
    assert not any(map(lives, pids))
    with pytest.raises(Transient, match="stopping"):
        await children.start(ChildProgram(argv=("true",)))


GATEWAY = """
import asyncio, sys
from perdure.app.children.children import LaunchedChildren
from perdure.ports.system.children import ChildProgram
async def main():
    child = await LaunchedChildren().start(ChildProgram(argv=(sys.executable, "-c", sys.argv[1])))
    print(int(await child.read(100)), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("code", [STUBBORN, LEAVES + "time.sleep(600)"], ids=["stubborn", "left"])
async def test_a_killed_gateway_leaves_nothing_behind(code: str) -> None:
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, code, stdout=asyncio.subprocess.PIPE
    )
    assert gateway.stdout is not None
    async with asyncio.timeout(IN_A_WHILE_S):
        pid = int(await gateway.stdout.readline())
    assert lives(pid)
    folder = Path(f"/proc/{pid}/cwd").readlink()
    assert "perdure-child-" in folder.name
    gateway.kill()
    await gateway.wait()
    await is_gone(pid)
    async with asyncio.timeout(IN_A_WHILE_S):
        while folder.exists():
            await asyncio.sleep(0.02)


async def test_a_start_that_is_cancelled_leaves_nothing_behind(
    children: LaunchedChildren, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for steps in range(12):
        starting = asyncio.ensure_future(children.start(python("input()")))
        async with asyncio.timeout(IN_A_WHILE_S):
            while not list(tmp_path.iterdir()):
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            while children._running or list(tmp_path.iterdir()):
                await asyncio.sleep(0.01)
