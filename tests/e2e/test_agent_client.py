"""Checks an external agent that uses files and terminals through the gateway, rightly and wrongly:
each of its requests is a call like any other, asked about, journalled, bounded, and kept inside."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.approving import answer, asked
from tests.e2e.test_external_agents import External, StartGateway, is_alive

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.testkit.processes.http import Client

pytestmark = pytest.mark.timeout(90)


class Desk(External):
    """Holds a gateway whose agent may use the folder `root` through it."""

    def __init__(self, client: Client, mischief: Mischief, root: Path) -> None:
        super().__init__(client, mischief)
        self.root = root

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Let the agent send a request, and return what it was answered."""
        said = await self.told(f"[[REQ {method} {json.dumps(params)}]]")
        return dict(json.loads(said.rpartition("REQ<")[2].removesuffix(">")))

    async def calls(self, name: str = "a") -> list[dict[str, Any]]:
        entries = await self.client.transcript(name, "?limit=1000")
        return [each for each in entries if each["role"] == "tool"]


@pytest.fixture
async def desk(
    gateway_factory: StartGateway, new_peer: NewPeer, tmp_path: Path
) -> AsyncIterator[Desk]:
    mischief = Mischief(calls=tmp_path / "calls")
    command = new_peer.hostile_acp().command(mischief)
    root = tmp_path / "root"
    root.mkdir()
    toml = f"""
[agents.main]
kind = "acp"
command = {json.dumps(command)}
tools = ["files", "shell"]
cwd = {json.dumps(str(root))}
sandbox = "off"
share = true
pool = {{ prewarm = false }}
[[agents.main.rules]]
tool = "files.*"
match = "**/secret*"
do = "deny"
[[agents.main.rules]]
tool = "files.write"
match = "**/free*"
do = "allow"
[[agents.main.rules]]
tool = "shell.run"
do = "allow"
[tools.files]
roots = [{json.dumps(str(root))}]
[tools.shell]
roots = [{json.dumps(str(root))}]
sandbox = "off"
[sessions]
titles = false
"""
    async with aiohttp.ClientSession() as session:
        yield Desk(Client(await gateway_factory(toml=toml), session), mischief, root)


async def test_an_agent_reads_exactly_what_is_there_and_writes_it_back(desk: Desk) -> None:
    text = "\ufeffone\r\ntwo \n\n  three" + "x" * 30_000
    (desk.root / "notes.md").write_bytes(text.encode())
    path = str(desk.root / "notes.md")
    assert (await desk.request("fs/read_text_file", path=path))["content"] == text
    part = await desk.request("fs/read_text_file", path=path, line=2, limit=2)
    assert part == {"content": "two \n\n"}
    new = {"path": str(desk.root / "deep" / "free.md"), "content": "né\n"}
    assert await desk.request("fs/write_text_file", **new) == {}
    assert (desk.root / "deep" / "free.md").read_text() == "né\n"
    # Each was a call of the turn, in the journal before it ran, with what came of it.
    read, again, write = await desk.calls()
    assert [each["name"] for each in (read, again, write)] == ["agent_files"] * 3
    assert "+né" in write["text"]
    assert again["text"].endswith("lines 2 to 3]\ntwo \n\n")


async def test_people_are_asked_before_an_agent_writes(desk: Desk) -> None:
    path = desk.root / "plan.md"
    path.write_text("old\n")
    params = json.dumps({"path": str(path), "content": "new\n"})
    for word, expected in (("deny", "old\n"), ("allow", "new\n")):
        question = await asked(desk.client, "a", f"[[REQ fs/write_text_file {params}]]")
        assert question["kind"] == "approval"
        assert "-old\n+new" in question["text"]
        assert path.read_text() == "old\n"
        await answer(desk.client, question["id"], word)
        told = await desk.answer(question["turn"])
        assert ("REQ<{}>" in told) == (word == "allow"), told
        assert path.read_text() == expected


@pytest.mark.parametrize(
    "case", ["outside", "above", "link", "linked folder", "denied", "missing", "folder", "binary"]
)
async def test_no_file_is_read_that_the_gateway_would_not_read(
    desk: Desk, tmp_path: Path, case: str
) -> None:
    (tmp_path / "outside.txt").write_text("canary")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("canary")
    (desk.root / "link").symlink_to(tmp_path / "outside.txt")
    (desk.root / "linked").symlink_to(tmp_path / "elsewhere")
    (desk.root / "secret.txt").write_text("canary")
    (desk.root / "binary").write_bytes(b"canary\xff\xfe")
    paths = {
        "outside": tmp_path / "outside.txt",
        "above": f"{desk.root}/../outside.txt",
        "link": desk.root / "link",
        "linked folder": desk.root / "linked" / "file",
        "denied": desk.root / "secret.txt",
        "missing": desk.root / "nothing",
        "folder": desk.root,
        "binary": desk.root / "binary",
    }
    failed = await desk.request("fs/read_text_file", path=str(paths[case]))
    assert set(failed) >= {"code", "message"}
    assert (failed["code"] == -32002) == (case == "missing")
    assert "canary" not in str(await desk.calls())


async def test_no_file_is_written_that_the_gateway_would_not_write(
    desk: Desk, tmp_path: Path
) -> None:
    outside = tmp_path / "free-outside"
    (desk.root / "free-link").symlink_to(outside)
    for path in (outside, desk.root / "free-link", f"{desk.root}/../free-outside"):
        failed = await desk.request("fs/write_text_file", path=str(path), content="x")
        assert "code" in failed
    assert not outside.exists()
    failed = await desk.request("fs/write_text_file", path=f"{desk.root}/free", content="$LONG")
    assert "longer than 2,000,000 bytes" in failed["message"]


async def test_a_file_that_is_too_large_is_read_in_parts(desk: Desk) -> None:
    with (desk.root / "huge").open("w") as file:
        file.writelines(f"line {number}\n" for number in range(300_000))
    failed = await desk.request("fs/read_text_file", path=str(desk.root / "huge"))
    assert "give line and limit" in failed["message"]
    found = await desk.request(
        "fs/read_text_file", path=str(desk.root / "huge"), line=250_001, limit=1
    )
    assert found == {"content": "line 250000\n"}


async def test_a_command_runs_in_a_terminal_and_is_written_down(desk: Desk) -> None:
    created = '{"command": "seq", "args": ["1", "3"], "cwd": "$C"}'
    told = await desk.told(
        f"[[REQ terminal/create {created}]]"
        '[[REQ terminal/wait_for_exit {"terminalId": "$T"}]]'
        '[[REQ terminal/output {"terminalId": "$T"}]]'
        '[[REQ terminal/release {"terminalId": "$T"}]]'
        '[[REQ terminal/output {"terminalId": "$T"}]]'
    )
    _, waited, output, released, late = [
        json.loads(each.removesuffix(">")) for each in told.split("REQ<")[1:]
    ]
    assert waited == {"exitCode": 0}
    assert output == {"output": "1\n2\n3\n", "truncated": False, "exitStatus": {"exitCode": 0}}
    assert (released, late["code"]) == ({}, -32002)
    call, terminal = await desk.calls()
    assert (call["name"], terminal["name"]) == ("agent_shell", "terminal")
    assert terminal["text"].startswith("The command ended with exit code 0")
    assert terminal["text"].endswith("1\n2\n3")


async def test_a_command_is_asked_about_with_all_that_it_is(desk: Desk) -> None:
    params = {
        "command": "touch",
        "args": ["made"],
        "env": [{"name": "LD_PRELOAD", "value": "/x.so"}],
        "cwd": str(desk.root),
    }
    question = await asked(desk.client, "a", f"[[REQ terminal/create {json.dumps(params)}]]")
    assert "LD_PRELOAD=/x.so" in question["text"]
    await answer(desk.client, question["id"], "deny")
    assert "code" in await desk.answer(question["turn"])
    assert not (desk.root / "made").exists()


async def test_output_is_bounded_and_a_killed_terminal_can_still_be_read(desk: Desk) -> None:
    created = json.dumps({"command": "seq", "args": ["1", "400000"], "outputByteLimit": 21})
    told = await desk.told(
        f"[[REQ terminal/create {created}]]"
        '[[REQ terminal/wait_for_exit {"terminalId": "$T"}]]'
        '[[REQ terminal/output {"terminalId": "$T"}]]'
    )
    output = json.loads(told.rpartition("REQ<")[2].removesuffix(">"))
    assert (output["output"], output["truncated"]) == ("399998\n399999\n400000\n", True)
    created = json.dumps({"command": "sleep", "args": ["600"]})
    told = await desk.told(
        f"[[REQ terminal/create {created}]]"
        '[[REQ terminal/output {"terminalId": "$T"}]]'
        '[[REQ terminal/kill {"terminalId": "$T"}]]'
        '[[REQ terminal/wait_for_exit {"terminalId": "$T"}]]'
        '[[REQ terminal/output {"terminalId": "$T"}]]'
    )
    before, killed, waited, after = [
        json.loads(each.removesuffix(">")) for each in told.split("REQ<")[2:]
    ]
    assert "exitStatus" not in before or before["exitStatus"] is None
    assert killed == {}
    assert waited == after["exitStatus"]
    assert waited["signal"] in ("SIGKILL", "SIGTERM")


def sleepers(seconds: int) -> list[int]:
    """Return the processes that sleep so long."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                words = (each / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", str(seconds).encode()]:
                found.append(int(each.name))
    return found


async def test_a_terminal_that_is_never_released_ends_with_the_answer(desk: Desk) -> None:
    seconds = 600_000 + os.getpid()
    created = json.dumps({"command": "sleep", "args": [str(seconds)]})
    await desk.told(f"[[REQ terminal/create {created}]][[SAY done]]")
    assert [pid for pid in sleepers(seconds) if is_alive(pid)] == []
    _, terminal = await desk.calls()
    assert terminal["text"].startswith("The command was ended")
    # Its terminal is gone with the answer, and another session never had it.
    for name in ("a", "b"):
        said = await desk.told('[[REQ terminal/output {"terminalId": "$T"}]]', name)
        assert "no such terminal" in said


@pytest.mark.parametrize("how", ["stop", "kill of the gateway", "kill of the agent"])
async def test_no_terminal_outlives_its_turn(desk: Desk, tmp_path: Path, how: str) -> None:
    seconds = 700_000 + os.getpid()
    created = json.dumps({"command": "sleep", "args": [str(seconds)]})
    words = f"[[REQ terminal/create {created}]][[HOLD {tmp_path / 'go'}]][[SAY on]]"
    accepted = await desk.client.say("a", words)
    await desk.until(lambda: desk.ran("hold") and sleepers(seconds))
    match how:
        case "stop":
            await desk.client.say("a", "/stop")
            settled = await desk.client.settled(accepted["turn"])
            assert settled["outcome"] == "stopped"
        case "kill of the gateway":
            await desk.client.gateway.kill()
        case _:
            os.kill(desk.ran("start")[0].pid, 9)
    await desk.until(lambda: len(desk.ran("hold")) > 1 or not sleepers(seconds))
    if how != "kill of the agent":
        assert sleepers(seconds) == []
        return
    # The next process is told what was done; it is asked nothing that it would do again.
    await desk.client.settled(accepted["turn"])
    assert sleepers(seconds) == []


async def test_a_flood_of_requests_is_bounded_and_ends_no_turn(desk: Desk) -> None:
    (desk.root / "a").write_text("a")
    path = json.dumps({"path": str(desk.root / "a")})
    told = await desk.told(f"[[FLOOD 200 fs/read_text_file {path}]][[SAY still here]]")
    assert told.endswith("still here")
    done, failed = map(int, told.partition("FLOOD<")[2].partition(">")[0].split(","))
    assert 64 <= done <= 80  # some wait no more when the last ones come
    assert done + failed == 200
    seconds = 800_000 + os.getpid()
    created = json.dumps({"command": "sleep", "args": [str(seconds)]})
    told = await desk.told(f"[[FLOOD 20 terminal/create {created}]]", "c")
    done, failed = map(int, told.partition("FLOOD<")[2].partition(">")[0].split(","))
    assert (done, failed) == (8, 12)
    assert sleepers(seconds) == []


async def test_requests_of_no_session_that_answers_are_refused(desk: Desk) -> None:
    (desk.root / "a").write_text("canary")
    await desk.told("[[SAY hello]]", "other")
    others = desk.ran("session/new")[0].arguments["session"]
    for session in ("unknown", others):
        failed = await desk.request(
            "fs/read_text_file", sessionId=session, path=str(desk.root / "a")
        )
        assert "no answer is under way" in failed["message"]
        assert await desk.calls() == []
        failed = await desk.request("terminal/output", sessionId=session, terminalId="x")
        assert "no answer is under way" in failed["message"]


async def test_only_what_is_allowed_is_offered(
    gateway_factory: StartGateway, new_peer: NewPeer, tmp_path: Path
) -> None:
    """Ask agents with different configurations what they were told."""
    command = new_peer.hostile_acp().command(Mischief(calls=tmp_path / "calls"))
    root = tmp_path / "root"
    root.mkdir()
    known = {
        "all": f'cwd = "{root}"\ntools = ["files", "shell"]',
        "no folder": 'tools = ["files", "shell"]',
        "no tools": f'cwd = "{root}"\ntools = ["memory"]',
        "readonly": f'roots = ["{root}"]\ntools = ["files"]\n'
        'rules = [{ tool = "files.write", do = "deny" }]',
    }
    toml = "".join(
        f'[agents.{name.replace(" ", "-")}]\nkind = "acp"\nsandbox = "off"\n{given}\n'
        f"command = {json.dumps(command)}\npool = {{ prewarm = false }}\n"
        for name, given in known.items()
    )
    toml += f'[tools.files]\nroots = ["{root}"]\n[tools.shell]\nroots = ["{root}"]\n'
    expected = {
        "all": (True, True, True),
        "no folder": (False, False, False),
        "no tools": (False, False, False),
        "readonly": (True, False, False),
    }
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=toml), session)
        desk = Desk(client, Mischief(calls=tmp_path / "calls"), root)
        for name, offered in expected.items():
            await client.say(name.replace(" ", "-"), f"/agent {name.replace(' ', '-')}")
            said = await desk.told("[[WHOAMI]]", name.replace(" ", "-"))
            told = json.loads(said.removeprefix("WHOAMI<").removesuffix(">"))
            # What is not said is not offered.
            can: dict[str, Any] = told["client"].get("clientCapabilities", {})
            known_of = {**can.get("fs", {}), "terminal": can.get("terminal")}
            kinds = ("readTextFile", "writeTextFile", "terminal")
            assert tuple(known_of.get(kind) is True for kind in kinds) == offered
            failed = await desk.told(
                f'[[REQ fs/read_text_file {{"path": "{root}/x"}}]]', name.replace(" ", "-")
            )
            assert ("Perdure offers no files" in failed) is not offered[0]


async def test_the_requests_of_two_people_stay_apart(desk: Desk) -> None:
    """Let two conversations of one process write and run at the same time."""

    async def work(name: str) -> str:
        path = json.dumps({"path": str(desk.root / f"free-{name}"), "content": f"of {name}"})
        echo = json.dumps({"command": "echo", "args": [f"canary-{name}"]})
        return await desk.told(
            f"[[REQ fs/write_text_file {path}]][[REQ terminal/create {echo}]]"
            '[[REQ terminal/wait_for_exit {"terminalId": "$T"}]]'
            '[[REQ terminal/output {"terminalId": "$T"}]]',
            name,
        )

    names = ["a", "b", "c"]
    told = await asyncio.gather(*map(work, names))
    for name, said in zip(names, told, strict=True):
        others = [each for each in names if each != name]
        assert f"canary-{name}" in said
        seen = f"{said} {await desk.calls(name)}"
        assert not any(f"canary-{each}" in seen or f"of {each}" in seen for each in others)


async def test_commands_run_in_the_sandbox_and_in_the_folder_of_the_conversation(
    gateway_factory: StartGateway, new_peer: NewPeer, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    root = tmp_path / "root"
    root.mkdir()
    toml = f"""
[agents.main]
kind = "acp"
command = {json.dumps(new_peer.hostile_acp().command(mischief))}
tools = ["files", "shell"]
roots = [{json.dumps(str(root))}]
sandbox = "off"
pool = {{ prewarm = false }}
rules = [{{ tool = "shell.run", do = "allow" }}, {{ tool = "files.write", do = "allow" }}]
[tools.files]
roots = [{json.dumps(str(root))}]
[tools.shell]
roots = [{json.dumps(str(root))}]
"""
    async with aiohttp.ClientSession() as session:
        gateway = await gateway_factory(toml=toml)
        desk = Desk(Client(gateway, session), mischief, root)

        async def run(command: str, *args: str) -> dict[str, Any]:
            """Return what a command has written and how it ended."""
            created = json.dumps({"command": command, "args": args, "cwd": "$C"})
            told = await desk.told(
                f"[[REQ terminal/create {created}]]"
                '[[REQ terminal/wait_for_exit {"terminalId": "$T"}]]'
                '[[REQ terminal/output {"terminalId": "$T"}]]'
            )
            return dict(json.loads(told.rpartition("REQ<")[2].removesuffix(">")))

        assert await desk.request("fs/write_text_file", path="$C/mine", content="words") == {}
        found = await run("cat", "mine")
        assert (found["output"], found["exitStatus"]) == ("words", {"exitCode": 0})
        token = gateway.home / "token"
        found = await run("cat", str(token))
        assert found["exitStatus"] == {"exitCode": 1}
        assert token.read_text().strip() not in found["output"]
        failed = await desk.request("fs/read_text_file", path=str(token))
        assert "outside of the folders" in failed["message"]
