"""Checks the tool `shell` with real programs, in a real sandbox and without one: what commands do,
what they can reach, how they end, and who may see what runs in the background."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from perdure.app.children.children import LaunchedChildren
from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.tools.traits import Outlook, Permission
from perdure.ports.system.children import ChildLimits
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.testkit.peers.fixtures import NewPeer
from perdure.tools.shell.jobs import ShellJobs
from perdure.tools.shell.settings import JOBS_OF_PERSON, ShellSettings
from perdure.tools.shell.tool import ShellTool
from perdure.tools.toolbox import Toolbox

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is a program for Linux"),
]
IN_A_WHILE_S = 20
CANARY = "canary-8812"
ADA = ToolCaller(
    principal=PrincipalId("prn_ada"),
    conversation=ConversationId("cnv_x"),
    session=SessionId("ses_x"),
    turn=TurnId("trn_x"),
)


class Model:
    """Calls the tool as a model does, for one person in one conversation."""

    def __init__(self, toolbox: Toolbox, root: Path, caller: ToolCaller = ADA) -> None:
        self.toolbox = toolbox
        self.root = root
        self.caller = caller
        self._calls = 0

    def other(self, **change: Any) -> "Model":
        return Model(self.toolbox, self.root, msgspec.structs.replace(self.caller, **change))

    def call(self, arguments: dict[str, object]) -> ToolCall:
        self._calls += 1
        text = json.dumps(arguments)
        repeat = self.toolbox.traits("shell", text).repeat
        name = f"call_{self.caller.principal}_{self._calls}"
        return ToolCall(id=CallId(name), name="shell", arguments=text, repeat=repeat)

    async def calls(self, **arguments: object) -> ToolResult:
        return await self.toolbox.call(self.call(arguments), self.caller)

    async def gets(self, **arguments: object) -> str:
        result = await self.calls(**arguments)
        assert result.ending is CallEnding.RETURNED, result.text
        return result.text

    async def fails(self, **arguments: object) -> str:
        result = await self.calls(**arguments)
        assert result.ending is CallEnding.FAILED, result.text
        return result.text

    async def runs(self, *argv: str, **more: object) -> str:
        return await self.gets(action="run", argv=argv, **more)

    async def script(self, script: str, **more: object) -> str:
        return await self.runs("sh", "-c", script, **more)

    async def outlook(self, *argv: str, **more: object) -> Outlook:
        call = self.call({"action": "run", "argv": argv, **more})
        return await self.toolbox.outlook(call, self.caller)

    async def begins(self, *argv: str, **more: object) -> str:
        """Start a job, and return its name."""
        said = await self.runs(*argv, background=True, **more)
        return said.split()[0]


Make = Callable[..., Model]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    root.mkdir()
    return root


@pytest.fixture
async def make(root: Path) -> AsyncIterator[Make]:
    children = LaunchedChildren()
    jobs = ShellJobs()

    def model(*roots: Path, **settings: Any) -> Model:
        known = ShellSettings(roots=roots or (root,), search_path=os.environ["PATH"], **settings)
        return Model(Toolbox([ShellTool(known, children, jobs)]), root)

    yield model
    await jobs.close()
    await children.close()


@pytest.fixture(params=["sandbox", "without"])
def model(request: pytest.FixtureRequest, make: Make, new_peer: NewPeer) -> Model:
    """Provide the tool with a sandbox and without one: what is not about reach is the same."""
    if request.param == "sandbox":
        new_peer.bubblewrap()
    return make(has_sandbox=request.param == "sandbox")


@pytest.fixture
def boxed(make: Make, new_peer: NewPeer) -> Model:
    new_peer.bubblewrap()
    return make()


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def running(word: str) -> list[int]:
    """Return the processes whose command line holds a word, wherever they are."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and word in (each / "cmdline").read_bytes().decode():
                found.append(int(each.name))
        except (OSError, UnicodeDecodeError):
            continue
    return [pid for pid in found if lives(pid)]


@pytest.fixture
def nap(request: pytest.FixtureRequest) -> str:
    """Provide how long something sleeps in this test and in no other one that runs now, so that it
    is found among all processes of the machine."""
    return f"600.{os.getpid()}{zlib.crc32(request.node.nodeid.encode())}"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(IN_A_WHILE_S):
        while not is_so():
            await asyncio.sleep(0.02)


# What commands do.


async def test_a_command_runs_and_its_end_and_output_are_told(model: Model, root: Path) -> None:
    (root / "a.txt").write_text("hello\n")
    said = await model.runs("cat", "a.txt", "missing.txt")
    assert said.startswith("The command ended with exit code 1 after ")
    assert said.split("\n\n", 1)[1].startswith("hello\ncat: missing.txt: No such file")
    assert (await model.runs("true")).endswith(" s. It wrote nothing.")


async def test_what_it_writes_to_both_streams_is_told_in_order(model: Model) -> None:
    said = await model.script("for n in 1 2 3; do echo out$n; echo err$n >&2; done")
    assert said.endswith("\n\nout1\nerr1\nout2\nerr2\nout3\nerr3")


async def test_a_command_reads_its_input(model: Model) -> None:
    assert (await model.runs("tr", "a-z", "A-Z", input="wörld")).endswith("\n\nWöRLD")
    large = "x" * 900_000
    assert (await model.runs("wc", "-c", input=large)).endswith("\n\n900000")
    assert "exit code 0" in await model.runs("true", input=large)


async def test_a_command_works_in_the_folder_that_it_names(model: Model, root: Path) -> None:
    (root / "deep" / "er").mkdir(parents=True)
    assert (await model.runs("pwd")).endswith(f"\n{root}")
    assert (await model.runs("pwd", cwd="deep/er")).endswith(f"\n{root}/deep/er")
    assert (await model.runs("pwd", cwd=str(root / "deep"))).endswith(f"\n{root}/deep")
    (root / "deep" / "to").symlink_to(root)
    assert (await model.runs("pwd", cwd="deep/to")).endswith(f"\n{root}")


async def test_people_see_how_far_it_is(model: Model) -> None:
    heard: list[str] = []
    other = model.other(report=heard.append)
    await other.script("echo first; sleep 0.3; printf 'second\\n\\n'; sleep 0.3")
    assert heard[0] == "first"
    assert heard[-1] == "second"


async def test_bytes_and_orders_to_a_terminal_are_told_as_plain_text(model: Model) -> None:
    said = await model.runs(
        "printf", r"\033[31mred\033[0m\033]0;title\007 \377\376 10%%\r50%%\r100%%\r\n\000a\bb\a\t."
    )
    assert said.endswith(
        "\n\nred \ufffd\ufffd 10%\n".replace("red \ufffd\ufffd 10%\n", "100%\nab\t.")
    )


async def test_no_shell_reads_the_words(model: Model, root: Path) -> None:
    hostile = ["; touch a", "$(touch b)", "`touch c`", "| touch d", "&& touch e", "> f", "$HOME"]
    hostile += ["*", "~", "'", '"', "\\", "\n touch g", "-n", "{a,b}", "!!", "#"]
    said = await model.runs("printf", "<%s>", *hostile)
    assert said.endswith("\n\n" + "".join(f"<{each}>" for each in hostile))
    assert list(root.iterdir()) == []


async def test_the_words_for_the_model_are_a_valid_schema(model: Model) -> None:
    (schema,) = json.loads(model.toolbox.schemas())
    jsonschema.Draft202012Validator.check_schema(schema["function"]["parameters"])
    assert "no shell reads it" in schema["function"]["description"]


# What is refused, before anybody is asked.


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"argv": []}, "needs argv"),
        ({"argv": [" "]}, "needs argv"),
        ({"argv": ["ls", "a\0b"]}, "zero byte"),
        ({"argv": ["ls", "x" * 10_000_000]}, "put long text into a file"),
        ({"argv": ["x"] * 5_000}, "put long text into a file"),
        ({"argv": ["ls", "x" * 50_000]}, "a word of the command is longer"),
        ({"argv": "ls -l"}, "Expected `array`"),
        ({"argv": ["cat"], "input": "x" * 2_000_000}, "length <= 1000000"),
        ({"argv": ["ls"], "cwd": "/"}, "outside of the folders"),
        ({"argv": ["ls"], "cwd": "../other"}, "must not hold .."),
        ({"argv": ["ls"], "cwd": "nowhere"}, "cannot be used"),
        ({"argv": ["ls"], "cwd": "file"}, "is not a folder"),
        ({"argv": ["ls"], "cwd": "out"}, "leads out of the folders"),
        ({"argv": ["ls"], "cwd": "loop"}, "cannot be used"),
        ({"argv": ["ls"], "cwd": "a\0b"}, "no name may have here"),
        ({"argv": ["ls"], "timeout_s": 100_000}, "<= 86400"),
        ({"argv": ["ls"], "timeout_s": 601}, "take background"),
        ({"argv": ["ls"], "timeout_s": 0}, "> 0"),
        ({"argv": ["ls"], "env": {"LD_PRELOAD": "x"}}, "unknown field `env`"),
        ({"action": "log"}, "needs job"),
        ({"action": "end"}, "needs job"),
        ({"action": "sudo"}, "Invalid enum value"),
    ],
    ids=str,
)
def test_what_can_never_work_is_refused_in_words(
    make: Make, root: Path, arguments: dict[str, object], why: str
) -> None:
    (root / "file").touch()
    (root / "out").symlink_to("/")
    (root / "loop").symlink_to(root / "loop")
    text = json.dumps({"action": "run", **arguments})
    assert why in make().toolbox.traits("shell", text).problem


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("no-such-program",), "find no program 'no-such-program'"),
        (("./missing",), "find no program './missing'"),
        (("./plain.txt",), "find no program"),
        (("git status",), "give each word by itself"),
        (("FOO=1", "ls"), "find no program 'FOO=1'"),
        (("ls;id",), "find no program 'ls;id'"),
        (("cd", ".."), "find no program 'cd'"),
    ],
)
async def test_a_program_that_is_missing_is_told_and_nobody_is_asked(
    model: Model, root: Path, argv: tuple[str, ...], why: str
) -> None:
    (root / "plain.txt").touch()
    assert why in await model.fails(action="run", argv=argv)
    assert why in (await model.outlook(*argv)).problem


def test_a_call_says_what_it_is_about(make: Make, root: Path) -> None:
    (root / "deep").mkdir()
    model = make()

    def traits(**arguments: object) -> Any:
        return model.toolbox.traits("shell", json.dumps(arguments))

    run = traits(action="run", argv=["git", "push"], cwd="deep")
    assert (run.names, run.repeat, run.permission) == (
        ("shell", "shell.run"),
        Repeat.ONCE,
        Permission.ACT,
    )
    assert (run.argv, run.folder, run.ends_with_turn) == (("git", "push"), f"{root}/deep", True)
    for action, repeat in (("log", Repeat.PURE), ("end", Repeat.REPEATABLE)):
        found = traits(action=action, job="job-1")
        assert (found.act, found.repeat, found.permission) == (
            f"shell.{action}",
            repeat,
            Permission.OWN,
        )
    assert traits(action="list").repeat is Repeat.PURE


# What people approve.


async def test_people_see_which_program_would_run_and_where(boxed: Model, root: Path) -> None:
    seen = await boxed.outlook("ls", "-l")
    assert seen.preview.endswith(f"ls in {root}, in a sandbox without network.")
    assert seen.preview.startswith("Runs /")


async def test_a_script_that_has_changed_is_not_what_was_approved(model: Model, root: Path) -> None:
    script, data = root / "run.sh", root / "data.txt"
    script.write_text("#!/bin/sh\necho good\n")
    script.chmod(0o755)
    data.write_text("one")
    for argv in (["./run.sh"], ["sh", "run.sh"], ["cat", str(data)], ["x", f"--file={data}"]):
        before = await model.outlook(*(["cp", *argv[1:]] if argv[0] == "x" else argv))
        again = await model.outlook(*(["cp", *argv[1:]] if argv[0] == "x" else argv))
        assert before.operands == again.operands
        script.write_text(script.read_text() + "echo bad\n")
        data.write_text(data.read_text() + "two")
        after = await model.outlook(*(["cp", *argv[1:]] if argv[0] == "x" else argv))
        assert after.operands != before.operands


async def test_a_program_that_commands_can_write_takes_no_other_ones_name(
    make: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = root / "bin" / "ls"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    for path in (f"{planted.parent}", "bin", "."):
        monkeypatch.setenv("PATH", f"{path}:{os.defpath}")
        for has_sandbox in (False, True):
            model = make(has_sandbox=has_sandbox)
            assert "planted" not in (await model.outlook("ls")).preview
            assert "planted" not in (await model.calls(action="run", argv=["ls"])).text


# What they can reach.


async def test_a_command_sees_nothing_outside_of_its_folders(
    boxed: Model, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    (root / "link").symlink_to(secret)
    said = await boxed.script(
        f"cat {secret} link /etc/shadow; ls {tmp_path} /root /home /var /run; cat /proc/*/environ"
    )
    assert CANARY not in said
    assert said.count("No such file or directory") >= 6
    assert f"\n{root.name}\n" in said


# Nothing is written into them: should a sandbox ever be leaky, the machine stays as it is.
SYSTEM_FILES = [
    "/usr/bin/factor",
    "/etc/passwd",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sysrq-trigger",
    "/proc/self/uid_map",
    "/proc/self/oom_score_adj",
]


@pytest.mark.parametrize("path", SYSTEM_FILES)
async def test_no_file_of_the_system_can_be_opened_to_write(boxed: Model, path: str) -> None:
    said = await boxed.script(f": >> {path} && echo OPENED")
    assert "OPENED" not in said
    assert "Read-only" in said or "denied" in said or "nonexistent" in said, said


async def test_a_command_changes_nothing_outside_of_its_folders(
    boxed: Model, root: Path, tmp_path: Path
) -> None:
    places = ["/new", "/dev/new", "/usr/new", "/etc/new"]
    said = await boxed.script("\n".join(f"mkdir {each} && echo MADE" for each in places))
    assert "MADE" not in said
    # What stands for the folder above the root is the command's own, and goes with it.
    await boxed.script(f"echo x > kept.txt; echo y > /tmp/gone; echo z > {tmp_path}/gone")
    assert (root / "kept.txt").read_text() == "x\n"
    assert [each.name for each in tmp_path.iterdir()] == [root.name]
    assert "No such file" in await boxed.script(f"cat /tmp/gone {tmp_path}/gone")
    assert "exit code 0" in await boxed.runs("python3", "-c", SHARED_MEMORY)


SHARED_MEMORY = """
from multiprocessing import Lock, shared_memory
Lock()
shared_memory.SharedMemory(create=True, size=10).unlink()
"""


async def test_a_command_sees_no_process_of_the_machine(boxed: Model) -> None:
    said = await boxed.script("ls /proc | grep -c '^[0-9]'; kill -9 -1; echo alive")
    assert int(said.split("\n\n")[1].split()[0]) < 10


async def test_a_command_has_no_rights_of_the_administrator(boxed: Model) -> None:
    assert "CapEff:\t0000000000000000" in await boxed.runs("cat", "/proc/self/status")
    assert "exit code 0" not in await boxed.runs("mount", "-t", "tmpfs", "none", str(boxed.root))


@pytest.fixture
def listening() -> Iterator[int]:
    """Provide a port of this machine where somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    other, _ = server.accept()
                except OSError:
                    return
                other.sendall(b"reached\n")
                other.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


CONNECT = "exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3"


async def test_a_command_reaches_the_network_only_where_configured(
    make: Make, new_peer: NewPeer, listening: int
) -> None:
    new_peer.bubblewrap()
    script = ("bash", "-c", CONNECT.format(port=listening))
    assert "Connection refused" in await make().runs(*script)
    assert (await make(has_network=True).runs(*script)).endswith("\n\nreached")
    assert (await make(has_sandbox=False).runs(*script)).endswith("\n\nreached")


async def test_no_secret_of_the_gateway_is_in_the_environment(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "PERDURE_TOKEN", "PERDURE_HOME", "AWS_SECRET", "LD_PRELOAD"):
        monkeypatch.setenv(name, f"/{CANARY}")
    said = await model.runs("env")
    assert CANARY not in said
    assert "PATH=" in said


def git(root: Path, *words: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True)


@pytest.mark.parametrize("hooks", ["usual", "missing"])
async def test_what_git_runs_later_cannot_be_changed(boxed: Model, root: Path, hooks: str) -> None:
    git(root, "init", "-q")
    place = root / ".git" / "hooks"
    if hooks == "missing":
        shutil.rmtree(place)
    before = (root / ".git" / "config").read_text()
    said = await boxed.script(
        "echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil;"
        "echo evil >> .git/config; mv .git .git2; rm -rf .git/config;"
        "echo hi > a.txt; git add a.txt;"
        "git -c user.name=a -c user.email=a@b.c commit -q -m one; git log --oneline"
    )
    assert said.endswith(" one"), "the rest of a repository can be changed"
    assert not (place / "pre-commit").exists()
    assert (root / ".git" / "config").read_text() == before
    assert not (root / ".git2").exists()


@pytest.mark.parametrize("where", ["root", "elsewhere"])
async def test_a_repository_whose_hooks_are_a_link_is_read_only(
    boxed: Model, root: Path, tmp_path: Path, where: str
) -> None:
    git(root, "init", "-q")
    place, target = root / ".git" / "hooks", (root if where == "root" else tmp_path) / "shared"
    shutil.rmtree(place)
    target.mkdir()
    place.symlink_to(target)
    await boxed.script(
        "echo evil > .git/hooks/pre-commit; rm .git/hooks; mkdir .git/hooks;"
        "echo evil > .git/hooks/pre-commit"
    )
    assert place.is_symlink()
    assert list(target.iterdir()) == []


async def test_a_repository_that_cannot_be_prepared_is_read_only(boxed: Model, root: Path) -> None:
    git(root, "init", "-q")
    place = root / ".git" / "hooks"
    shutil.rmtree(place)
    place.write_text("a file instead of a folder")
    assert "Read-only" in await boxed.script("rm .git/hooks; echo evil > .git/new")


@pytest.mark.parametrize(
    "attempts",
    [
        # Git reads its configuration from wherever `commondir` says.
        ["cp -r .git it; {evil}; mv it .git/; rm -f .git/commondir; echo it > .git/commondir"],
        # A folder without `HEAD` is no repository, and becomes one again.
        ["mv .git/HEAD it", "cd .git; mkdir it; {evil}; cat it/config >> config; cp ../it HEAD"],
    ],
)
async def test_a_repository_is_not_made_to_run_what_a_command_has_written(
    boxed: Model, root: Path, tmp_path: Path, attempts: list[str]
) -> None:
    git(root, "init", "-q")
    proof = tmp_path / "proof"
    evil = f"git config -f it/config core.fsmonitor 'touch {proof}; false'"
    for attempt in attempts:
        await boxed.script(attempt.format(evil=evil))
    with contextlib.suppress(subprocess.CalledProcessError):
        git(root, "status")
    assert not proof.exists()


async def test_a_repository_works_as_before_after_a_command(boxed: Model, root: Path) -> None:
    git(root, "init", "-q")
    assert "exit code 0" in await boxed.runs("git", "status")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    git(root, "worktree", "add", "-q", "beside")
    git(root / "beside", "commit", "-q", "--allow-empty", "-m", "two")
    assert "exit code 0" in await boxed.runs("git", "log", "beside", "--")


async def test_a_repository_that_a_command_has_made_is_kept_like_others(
    boxed: Model, root: Path
) -> None:
    assert "exit code 0" in await boxed.runs("git", "init", "-q")
    await boxed.script("echo evil > .git/hooks/pre-commit")
    assert not (root / ".git" / "hooks" / "pre-commit").exists()


async def test_nothing_is_looked_up_to_be_mounted_while_a_command_runs(
    boxed: Model, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(CANARY)
    await boxed.begins("sleep", "600")
    # As if the running command had done it: a link where a file is expected.
    git(root, "init", "-q")
    (root / ".git" / "config").unlink()
    (root / ".git" / "config").symlink_to(tmp_path / "secret")
    assert CANARY not in await boxed.runs("cat", ".git/config")


async def test_where_no_sandbox_starts_nothing_runs_and_the_cause_is_told(
    make: Make, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    model = make()
    for why in ("there is no program bwrap", "setting up uid map: Permission denied"):
        said = await model.fails(action="run", argv=["touch", "made"])
        assert why in said
        assert 'set [tools.shell] sandbox = "off"' in said
        assert (await model.outlook("touch", "made")).problem == said
        assert [each.trouble for each in model.toolbox.offers()] == [said], "/tools says so"
        # It is installed, says its version, and is forbidden to work.
        fake = programs / "bwrap"
        fake.write_text(
            "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1"
        )
        fake.chmod(0o755)
    assert list(root.iterdir()) == []
    assert "exit code 0" in await make(has_sandbox=False).runs("touch", "made")


# How they end.


async def test_a_command_that_takes_too_long_is_ended_and_its_output_told(
    model: Model, nap: str
) -> None:
    async with asyncio.timeout(IN_A_WHILE_S):
        said = await model.script(f"echo before; sleep {nap}", timeout_s=0.5)
    assert "it ran longer than the 0.5 s that it had" in said
    assert "before" in said
    await until(lambda: not running(nap))


async def test_a_command_that_ignores_its_end_is_killed(model: Model, nap: str) -> None:
    stubborn = f"trap '' TERM INT HUP; echo up; while :; do sleep {nap}; done"
    async with asyncio.timeout(IN_A_WHILE_S):
        assert "up" in await model.script(stubborn, timeout_s=0.5)
    await until(lambda: not running(nap))


async def test_a_command_is_asked_to_end_before_it_is_killed(model: Model, root: Path) -> None:
    polite = "trap 'rm lock; exit 0' TERM; touch lock; while :; do sleep 0.05; done"
    await model.script(polite, timeout_s=0.5)
    assert not (root / "lock").exists()


async def test_what_left_the_command_holds_up_nothing_and_ends_with_it(
    model: Model, nap: str
) -> None:
    leaves = f"setsid sleep {nap} & nohup sleep {nap} & echo done"
    async with asyncio.timeout(IN_A_WHILE_S):
        assert "done" in await model.script(leaves)
    await until(lambda: not running(nap))


async def test_a_flood_is_cut_in_the_middle(model: Model) -> None:
    flood = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last"
    said = await model.script(flood)
    assert len(said) < 1_100_000
    assert said.split("\n\n")[1].startswith("first\nxxx")
    assert said.endswith("xxx\nlast")
    assert "[… 99,000,012 bytes are left out here …]" in said


async def test_a_command_that_forks_without_end_is_ended(make: Make, new_peer: NewPeer) -> None:
    new_peer.bubblewrap()
    bomb = "import os, time\nwhile True: os.fork() or time.sleep(600)"
    for has_sandbox in (True, False):
        model = make(has_sandbox=has_sandbox, limits=ChildLimits(processes=20))
        async with asyncio.timeout(IN_A_WHILE_S):
            said = await model.runs("python3", "-c", bomb)
        assert "was ended because it used too many processes" in said


async def test_a_command_that_takes_too_much_memory_is_ended(make: Make, new_peer: NewPeer) -> None:
    new_peer.bubblewrap()
    greedy = "import time; held = bytearray(b'x') * 200_000_000; time.sleep(600)"
    model = make(limits=ChildLimits(memory_bytes=100_000_000))
    async with asyncio.timeout(IN_A_WHILE_S):
        assert "used too much memory" in await model.runs("python3", "-c", greedy)


async def test_a_call_that_is_cancelled_ends_its_command(model: Model, nap: str) -> None:
    call = asyncio.create_task(model.calls(action="run", argv=["sleep", nap]))
    await until(lambda: bool(running(nap)))
    call.cancel()
    async with asyncio.timeout(IN_A_WHILE_S):
        await asyncio.wait({call})
    assert not running(nap)


# Jobs.


async def test_a_job_runs_on_and_its_log_is_read_in_parts(model: Model, root: Path) -> None:
    said = await model.runs(
        "sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.05; done; echo two", background=True
    )
    job = said.split()[0]
    assert f"{job} has run for " in said
    assert " s. Its log from 0 on; next offset: 4\n\none\n" in said
    assert " s; 4 bytes of log: sh -c echo one;" in await model.gets(action="list")
    waiting = asyncio.create_task(model.gets(action="log", job=job, offset=4, wait_s=20))
    (root / "go").touch()
    assert (await waiting).endswith("Its log from 4 on; next offset: 8\n\ntwo\n")
    await model.gets(action="log", job=job, offset=8, wait_s=20)
    said = await model.gets(action="log", job=job, offset=8)
    assert said.startswith(f"{job} ended with exit code 0 after ")
    assert said.endswith("There is nothing in its log from 8 on; next offset: 8")
    assert "one\ntwo" in await model.gets(action="log", job=job)


async def test_a_job_that_fails_at_once_says_so(model: Model) -> None:
    said = await model.runs("ls", "missing", background=True)
    assert "ended with exit code 2" in said
    assert "No such file" in said


async def test_a_job_is_ended_with_all_that_it_has_started(model: Model, nap: str) -> None:
    job = await model.begins("sh", "-c", f"setsid sleep {nap} & sleep {nap}")
    await until(lambda: bool(running(nap)))
    said = await model.gets(action="end", job=job)
    assert said == f"{job} was ended."
    assert not running(nap)
    assert (await model.gets(action="end", job=job)).startswith("It had ended before")
    assert f"{job} was ended" in await model.gets(action="list")


async def test_nobody_else_sees_reads_or_ends_a_job(model: Model, nap: str) -> None:
    job = await model.begins("sh", "-c", f"echo {CANARY}; sleep {nap}")
    others = [
        model.other(principal=PrincipalId("prn_bob")),
        model.other(conversation=ConversationId("cnv_y")),
    ]
    for other in others:
        assert "There are no jobs in this conversation" in await other.gets(action="list")
        for action in ("log", "end"):
            said = await other.fails(action=action, job=job)
            assert said.startswith(f"there is no job '{job}' in this conversation")
            assert CANARY not in said
    assert f"{job} has run for " in await model.gets(action="list")
    assert CANARY in await model.gets(action="log", job=job)


async def test_a_log_keeps_its_end(model: Model) -> None:
    job = await model.begins("sh", "-c", "seq 1 1000000; echo last")
    await model.gets(action="log", job=job, offset=2**40, wait_s=30)
    said = await model.gets(action="log", job=job)
    assert said.endswith("\n1000000\nlast\n")
    said = await model.gets(action="log", job=job, offset=0)
    assert "bytes are gone" in said
    assert len(said) < 20_000


async def test_a_person_has_so_many_jobs_and_ended_ones_make_room(make: Make, nap: str) -> None:
    model = make(has_sandbox=False)
    other = model.other(principal=PrincipalId("prn_bob"))
    jobs = [await model.begins("sleep", nap) for _ in range(JOBS_OF_PERSON)]
    said = await model.fails(action="run", argv=["sleep", nap], background=True)
    assert "you have 8 jobs that still run; end one first" in said
    assert (await other.begins("true")).startswith("job-")
    assert "exit code 0" in await model.runs("true"), "the others still run"
    await model.gets(action="end", job=jobs[3])
    late = await model.begins("sleep", nap)
    listed = await model.gets(action="list")
    assert late in listed
    assert jobs[3] not in listed
    assert "there is no job" in await model.fails(action="log", job=jobs[3])


async def test_jobs_that_were_there_before_a_restart_are_told_to_be_gone(make: Make) -> None:
    model = make()
    said = await model.gets(action="list")
    assert "jobs end with the gateway" in said
    for action in ("log", "end"):
        assert "jobs end with the gateway" in await model.fails(action=action, job="job-1234")


async def test_the_end_of_the_gateway_ends_all_jobs(
    root: Path, new_peer: NewPeer, nap: str
) -> None:
    new_peer.bubblewrap()
    children, jobs = LaunchedChildren(), ShellJobs()
    settings = ShellSettings(roots=(root,), search_path=os.environ["PATH"])
    model = Model(Toolbox([ShellTool(settings, children, jobs)]), root)
    for _ in range(3):
        await model.begins("sh", "-c", f"trap '' TERM; setsid sleep {nap}; sleep {nap}")
    await until(lambda: len(running(nap)) >= 3)
    async with asyncio.timeout(IN_A_WHILE_S):
        await jobs.close()
        await children.close()
    assert not running(nap)
