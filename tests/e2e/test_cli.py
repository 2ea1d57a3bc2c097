"""Checks the command line as people use it: the real command, with a node and without one."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure.app.operate.client import node_client
from perdure.app.operate.node_process import silent_node
from perdure.app.wiring.system import SystemClock
from perdure.cli.verbs.records import hits
from perdure.testkit.processes.command import TRUSTS_NOBODY, Result, run_command
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess
from perdure.web.ops import records

StartGateway = Callable[..., Awaitable[GatewayProcess]]

DEADLINE_S = 30.0
HOLDING = """
import fcntl, os, sys
lock = open(sys.argv[2], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, flush=True)
print("held", flush=True)
input()
"""
POLL_S = 0.02
pytestmark = pytest.mark.timeout(90)


def environment(**more: str) -> dict[str, str]:
    foreign = ("PERDURE_", "OPENAI_", "ANTHROPIC_", "OLLAMA_", "GEMINI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PERDURE_DISCOVER": "0", "COLUMNS": "60", **TRUSTS_NOBODY, **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "perdure", *arguments]


async def perdure(home: Path, *arguments: str, stdin: str = "", **environ: str) -> Result:
    around = environment(PERDURE_HOME=str(home), **environ)
    result = await run_command(arguments, environ=around, stdin=stdin)
    assert "Traceback" not in result.err, result.err
    return result


async def until(is_so: Callable[[], bool], *, what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await SystemClock().sleep(POLL_S)
    assert is_so(), what


@dataclass(frozen=True)
class Node:
    """Describes a gateway that tests share if they only add conversations of their own."""

    home: Path
    pid: int
    url: str
    banner: str


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    home = tmp_path_factory.mktemp("shared") / "home"
    with subprocess.Popen(
        command("serve", "--port", "0", "--home", str(home)),
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        banner = "".join(islice(process.stdout, 5))
        hint = json.loads((home / "server.json").read_text())
        yield Node(home, process.pid, hint["url"], banner)
        process.terminate()


async def talked(home: Path) -> dict[str, Any]:
    """Have one exchange in the conversation `main`. Returns its result."""
    said = await perdure(home, "--json", "chat", stdin="hello there\n")
    assert said.code == 0, said
    answered: dict[str, Any] = said.json
    return answered


async def test_no_verb_prints_help_and_is_no_mistake(tmp_path: Path) -> None:
    bare, asked = await perdure(tmp_path), await perdure(tmp_path, "--help")

    assert bare.code == asked.code == 0
    assert bare.out.strip() == asked.out.strip()
    for verb in ("serve", "chat", "status", "logs", "sessions", "explain", "stop", "restart"):
        assert f"\n  {verb} " in bare.out


async def test_version_and_help_of_a_verb_are_printed(tmp_path: Path) -> None:
    version = await perdure(tmp_path, "--version")
    help_ = await perdure(tmp_path, "chat", "--help")

    assert version.code == help_.code == 0
    assert version.out.startswith("perdure 0.")
    assert "usage: perdure chat [-h] [NAME]" in help_.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("serve", "--port", "high"),
        ("sessions",),
        ("logs", "--level=x"),
        ("turns", "stop"),
        ("explain", ""),
        ("sessions", "show", " "),
        ("serve", "--port", "0", "--host", "256.1.1.1"),
    ],
)
async def test_wrong_usage_is_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = await perdure(tmp_path, *arguments)

    assert result.code == 2
    assert result.err


@pytest.mark.parametrize("verb", ["status", "stop", "chat x", "logs", "serve --port 0"])
async def test_a_home_that_cannot_be_is_wrong_usage(tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    home = tmp_path / "file" / "below" if verb == "stop" else tmp_path / "file"
    result = await perdure(home, *verb.split(), stdin="hello")

    assert result.code == 2, result
    assert f"{home}: cannot be used as the home folder" in result.err
    assert "--home" in result.err


@pytest.mark.parametrize("verb", ["chat", "stop", "drain --no-wait", "restart"])
async def test_without_a_node_it_is_3_and_says_how_to_start_one(tmp_path: Path, verb: str) -> None:
    result = await perdure(tmp_path, *verb.split(), stdin="hello")

    assert result.code == 3
    assert "perdure serve" in result.err


async def test_status_without_a_node_is_json_too(tmp_path: Path) -> None:
    result = await perdure(tmp_path, "status", "--json")

    assert result.code == 3
    assert "perdure serve" in result.err
    assert result.json == {"state": "stopped", "home": str(tmp_path)}


async def test_reading_makes_no_home(tmp_path: Path) -> None:
    home = tmp_path / "typo"
    result = await perdure(home, "sessions", "list")

    assert result.code == 1
    assert str(home) in result.err
    assert not home.exists()


async def test_an_empty_home_has_no_sessions(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    result = await perdure(home, "sessions", "list", "--json")

    assert result.code == 0
    assert result.json == {"sessions": [], "next": None}


async def test_status_tells_what_runs_with_options_before_or_after_the_verb(
    node: Node, tmp_path: Path
) -> None:
    text = await perdure(tmp_path, "status", f"--home={node.home}")
    machine = await perdure(tmp_path, "--json", "--home", str(node.home), "status")

    assert text.code == machine.code == 0
    assert node.url in text.out
    assert "main (demo)" in text.out
    assert machine.json["state"] == "serving"
    assert machine.json["pid"] == node.pid


async def test_chat_sends_stdin_and_prints_the_answer(node: Node) -> None:
    result = await perdure(node.home, "chat", "garden", stdin="first line\nsecond line\n")
    shown = await perdure(node.home, "sessions", "show", "garden", "--json")

    user, assistant = shown.json["messages"]
    assert result.code == 0
    assert user["text"] == "first line\nsecond line"
    assert result.out == assistant["text"] + "\n"
    assert result.err == ""


async def test_chat_prints_a_streamed_answer_once_and_whole(node: Node) -> None:
    await talked(node.home)
    result = await perdure(node.home, "chat", stdin="demo words=60 delay_ms=5")

    assert result.code == 0
    assert len(result.out.split()) == 60


async def test_a_failed_turn_is_1_and_keeps_what_was_said(node: Node) -> None:
    failed = await perdure(node.home, "chat", stdin="demo fail")
    cut = await perdure(node.home, "chat", stdin="demo cut")

    assert failed.code == cut.code == 1
    assert failed.out == ""
    assert "failed" in failed.err
    assert cut.out.split()


async def test_nothing_on_stdin_is_wrong_usage(node: Node) -> None:
    assert (await perdure(node.home, "chat")).code == 2


async def begun_talk(
    home: Path, text: str, *, shown: int
) -> tuple[asyncio.subprocess.Process, bytes]:
    """Begin `perdure chat` and wait until it has printed this much of an answer. Returns the
    process and these bytes."""
    talk = await asyncio.create_subprocess_exec(
        *command("chat", "main", "--home", str(home)),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert talk.stdin is not None
    assert talk.stdout is not None
    talk.stdin.write(text.encode())
    talk.stdin.close()
    return talk, await talk.stdout.readexactly(shown)


async def test_chat_outlives_a_killed_node(gateway: GatewayProcess) -> None:
    # The same turn is followed through the restart, and no word is printed twice.
    async with asyncio.timeout(DEADLINE_S):
        talk, begun = await begun_talk(gateway.home, "demo words=80 delay_ms=30", shown=40)
        await gateway.restart()
        rest, told = await talk.communicate()
    shown = await perdure(gateway.home, "sessions", "show", "main", "--json")

    assert talk.returncode == 0
    assert b"perdure: the node went away; the message is kept" in told
    assert b"Error" not in told
    texts = [each["text"] for each in shown.json["messages"] if each["role"] == "assistant"]
    assert (begun + rest).decode().strip() == "\n\n".join(texts)
    assert len(" ".join(texts).split()) == 80


@pytest.mark.parametrize("command_elsewhere", ["/new", "/branch aside"])
async def test_chat_ends_when_somebody_begins_a_new_session(
    gateway: GatewayProcess, command_elsewhere: str
) -> None:
    await talked(gateway.home)
    async with asyncio.timeout(DEADLINE_S):
        talk, _ = await begun_talk(gateway.home, "demo words=5000 delay_ms=20", shown=10)
        moved = await perdure(gateway.home, "chat", "main", stdin=command_elsewhere)
        _, complaint = await talk.communicate()

    assert moved.code == 0
    assert talk.returncode == 1
    assert "the turn ended as stopped" in complaint.decode()


@asynccontextmanager
async def terminal(home: Path, *arguments: str) -> AsyncIterator["Terminal"]:
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        env=environment(PERDURE_HOME=str(home), TERM="dumb"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    window = Terminal(master, process)
    try:
        yield window
    finally:
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
        if process.returncode is None:
            process.kill()
        await process.wait()


class Terminal:
    """Plays a window in which the command runs and a person types."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._master = master
        self.seen = ""
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            self.seen += os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._master)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def shows(self, text: str) -> None:
        """Wait for a text, and from then on look only at what comes after it."""
        await until(lambda: text in self.seen, what=text)
        self.seen = self.seen.partition(text)[2]

    async def ends(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            return await self.process.wait()


async def test_in_a_terminal_ctrl_c_stops_the_turn_and_ctrl_d_leaves(
    gateway: GatewayProcess,
) -> None:
    await talked(gateway.home)
    async with terminal(gateway.home, "chat") as window:
        await window.shows("> hello there")
        await window.shows("\n> ")
        window.type("demo words=5000 delay_ms=20\n")
        await window.shows("stone")
        window.process.send_signal(signal.SIGINT)
        await window.shows("stopped")
        await window.shows("> ")
        window.type("and now this\n")
        await window.shows('You said: "and now this"')
        await window.shows("> ")
        window.process.send_signal(signal.SIGINT)
        await window.shows("> ")
        window.type("\x04")
        assert await window.ends() == 0
    shown = await perdure(gateway.home, "sessions", "show", "main", "--json")

    outcomes = [each["outcome"] for each in shown.json["messages"] if "outcome" in each]
    assert outcomes == ["done", "stopped", "done"]


async def test_ctrl_c_while_a_message_is_on_its_way_sends_it_once_and_stops_it(
    gateway: GatewayProcess,
) -> None:
    async with terminal(gateway.home, "chat") as window:
        await window.shows("> ")
        window.type("hello\n")
        await window.shows("> ")
        gateway.send_signal(signal.SIGSTOP)
        window.type("demo words=5000 delay_ms=20\n")
        await until(
            lambda: has_unread(gateway.home / "perdure.sock"), what="the request is on its way"
        )
        window.process.send_signal(signal.SIGINT)
        gateway.send_signal(signal.SIGCONT)
        await window.shows("stopped")
        await window.shows("> ")
        window.type("\x04")
        assert await window.ends() == 0
    shown = await perdure(gateway.home, "sessions", "show", "main", "--json")

    texts = [each["text"] for each in shown.json["messages"] if each["role"] == "user"]
    assert texts == ["hello", "demo words=5000 delay_ms=20"]


def has_unread(path: Path) -> bool:
    """Tell whether the system has accepted a connection for this socket, or holds bytes on one,
    that its owner has not read. Linux tells this over netlink (`man 7 sock_diag`)."""
    states, name_and_queues, nobody = 1 << 1 | 1 << 10, 0x01 | 0x10, 2**32 - 1
    wanted = struct.pack("=BxxxIII2I", socket.AF_UNIX, states, 0, name_and_queues, nobody, nobody)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(wanted), 20, 0x301, 0, 0) + wanted)
        answer = kernel.recv(1_000_000)
        while (parts := attributes(answer)) is not None:
            if parts.get(0, b"").rstrip(b"\0") == os.fsencode(path) and any(parts[4][:4]):
                return True
            answer = answer[(struct.unpack_from("=I", answer)[0] + 3) & ~3 :]
            answer = answer or kernel.recv(1_000_000)
    return False


def attributes(message: bytes) -> dict[int, bytes] | None:
    """Return what the first message of an answer says about one socket, or None at the end."""
    length, kind = struct.unpack_from("=IH", message)
    found: dict[int, bytes] = {}
    at = 32
    while at < length and kind == 20:
        size, what = struct.unpack_from("=HH", message, at)
        found[what] = message[at + 4 : at + size]
        at += (size + 3) & ~3
    return found if kind == 20 else None


async def test_in_a_terminal_a_command_is_answered_once_and_an_errand_is_not_waited_for(
    node: Node,
) -> None:
    async with terminal(node.home, "chat", "commands") as window:
        await window.shows("> ")
        for command, reply in [
            ("/whoami", "You are operator"),
            ("/title Garden", "now called: Garden"),
            ("/background this", "in the background"),
        ]:
            window.type(f"{command}\n")
            await window.shows(reply)
            await window.shows("> ")
        window.type("and now this\n")
        await until(lambda: 'You said: "and now this"' in window.seen, what="the answer")
        assert "[notice]" not in window.seen
        await window.shows('You said: "and now this"')
        await window.shows("> ")
        window.type("\x04")
        assert await window.ends() == 0


async def test_a_turn_is_stopped_by_its_id(node: Node) -> None:
    headers = {"Authorization": f"Bearer {(node.home / 'token').read_text().strip()}"}
    turns = []
    async with aiohttp.ClientSession(node.url, headers=headers) as http:
        for text in ("demo words=5000 delay_ms=20", "the next one"):
            post = http.post("/api/conversations/endless/messages", json={"text": text})
            async with post as response:
                turns.append((await response.json())["turn"])
    running, waiting = turns
    removed = await perdure(node.home, "turns", "stop", waiting)
    stopped = await perdure(node.home, "turns", "stop", running, "--json")
    again = await perdure(node.home, "turns", "stop", running)
    unknown = await perdure(node.home, "turns", "stop", "trn_none")

    assert (removed.code, removed.out) == (0, f"{waiting} is stopped\n")
    assert (stopped.code, stopped.json["id"], stopped.json["outcome"]) == (0, running, "stopped")
    assert (again.code, unknown.code) == (1, 1)
    assert "already finished" in again.err
    assert "trn_none" in unknown.err


async def test_more_is_found_than_a_node_tells_at_once(node: Node) -> None:
    for number in range(3):
        await perdure(node.home, "chat", f"page-{number}", stdin="a needle")
    answers = await node_client(node.home, {})
    assert answers is not None
    whole = await answers.ask(records.search, q="needle", limit=200)
    in_pages = await hits(answers, "needle", limit=1000, after=None, page=2)
    few = await hits(answers, "needle", limit=3, after=None, page=2)
    rest = await hits(answers, "needle", limit=1000, after=few.next, page=2)

    assert len(whole.hits) >= 3
    assert in_pages == whole
    assert [*few.hits, *rest.hits] == whole.hits


async def taken_back(gateway: GatewayProcess) -> None:
    """Undo one turn, ask one again, and branch, in a conversation of its own."""
    lines = ("kept", "undone", "/undo", "asked twice", "/retry", "/branch", "in the branch")
    async with aiohttp.ClientSession() as http:
        client = Client(gateway, http)
        for line in lines:
            said = await client.say("garden", line)
            if said["turn"]:
                await client.settled(said["turn"])


async def what_stands_is_told(home: Path) -> None:
    branch = (await perdure(home, "sessions", "show", "garden", "--json")).json
    said = [each for each in branch["messages"] if each["role"] == "user"]
    (left,) = {each["session"] for each in said if "session" in each}
    told = (await perdure(home, "sessions", "show", left, "--json")).json["messages"]
    drawn = await perdure(home, "sessions", "show", left)
    undone = await perdure(home, "explain", told[2]["turn"])

    assert [each["text"] for each in said] == ["kept", "asked twice", "in the branch"]
    assert [(each["text"], each.get("left")) for each in told if each["role"] == "user"] == [
        ("kept", None),
        ("undone", "undone"),
        ("asked twice", "asked_again"),
        ("asked twice", None),
    ]
    lines = [line for line in drawn.out.splitlines() if line.startswith("user")]
    assert [line.endswith(("undone", "asked again")) for line in lines] == [
        False,
        True,
        True,
        False,
    ]
    assert "undone" in undone.out


@pytest.mark.parametrize("is_running", [True, False])
async def test_reading_verbs_answer_alike_with_and_without_a_node(
    gateway: GatewayProcess, is_running: bool
) -> None:
    await taken_back(gateway)
    await perdure(gateway.home, "chat", "other", stdin="hello from there")
    answered = await talked(gateway.home)
    if not is_running:
        assert await gateway.terminate() == 0
    await what_stands_is_told(gateway.home)

    listed = await perdure(gateway.home, "sessions", "list", "--json")
    found = await perdure(gateway.home, "sessions", "search", "hello", "--json")
    by_name = await perdure(gateway.home, "sessions", "show", "main", "--json")
    by_id = await perdure(gateway.home, "sessions", "show", answered["session"], "--json")
    journal = await perdure(gateway.home, "sessions", "show", "main", "--journal")
    explained = await perdure(gateway.home, "explain", answered["message"], "--json")

    results = [listed, found, by_name, by_id, journal, explained]
    assert [result.code for result in results] == [0] * len(results)
    assert listed.json["sessions"][0]["id"] == answered["session"]
    assert answered["message"] in [hit["message"] for hit in found.json["hits"]]
    assert by_name.json == by_id.json
    assert [each["role"] for each in by_id.json["messages"]] == ["user", "assistant"]
    assert [each["seq"] for each in journal.json["events"]][:5] == [1, 2, 3, 4, 5]
    assert explained.json["turn"]["id"] == answered["turn"]
    assert [each["kind"] for each in explained.json["events"]] == [
        "turn_queued",
        "turn_started",
        "assistant_said",
        "turn_settled",
    ]
    await what_was_asked_is_told(gateway.home, answered)
    await unknown_ids_are_named(gateway.home)
    await pages_follow_each_other(gateway.home)
    if is_running:  # what people are shown is made from the same answers
        await people_read_the_same(gateway.home, answered)


async def what_was_asked_is_told(home: Path, answered: dict[str, Any]) -> None:
    asked = await perdure(home, "explain", answered["turn"], "--request")

    assert asked.code == 0
    assert asked.json["agent"] == "main"
    assert asked.json["messages"] == [
        {"role": "user", "blocks": [{"kind": "text", "text": "hello there"}]}
    ]


async def people_read_the_same(home: Path, answered: dict[str, Any]) -> None:
    listed = await perdure(home, "sessions", "list")
    found = await perdure(home, "sessions", "search", "hello", "there")
    shown = await perdure(home, "sessions", "show", answered["session"])
    explained = await perdure(home, "explain", answered["turn"])

    assert answered["session"] in listed.out
    assert "hello there" in found.out
    assert answered["text"] in shown.out
    for word in ("update ", answered["turn"], "attempt 1", answered["message"], "done"):
        assert word in explained.out


async def unknown_ids_are_named(home: Path) -> None:
    explained = await perdure(home, "explain", "msg_none")
    shown = await perdure(home, "sessions", "show", "nobody")

    assert explained.code == shown.code == 1
    assert "msg_none" in explained.err
    assert "sessions list" in shown.err


async def pages_follow_each_other(home: Path) -> None:
    for words, key in (("sessions list", "sessions"), ("sessions search hello", "hits")):
        verb = [*words.split(), "--json"]
        first = (await perdure(home, *verb, "-n", "1")).json
        rest = (await perdure(home, *verb, "-n", "500", "--after", first["next"])).json
        assert len(first[key]) == 1, words
        assert rest[key], words
        assert first[key][0] not in rest[key], words
    for words, cursor in (
        ("sessions list", "nonsense"),
        ("sessions search hello", "\u00b2"),
        ("places", "\u00b2:x"),
        ("parked list", f"{'9' * 30}:x"),
    ):
        wrong = await perdure(home, *words.split(), "--after", cursor)
        assert wrong.code == 1, words
        assert wrong.err.startswith("perdure: "), words


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_token_is_made_listed_and_revoked(
    gateway: GatewayProcess, is_running: bool
) -> None:
    if not is_running:
        await gateway.terminate()
    made = (await perdure(gateway.home, "token", "add", "phone", "--json")).json
    text = await perdure(gateway.home, "token", "add", "tablet")
    listed = (await perdure(gateway.home, "token", "list", "--json")).json["tokens"]
    ambiguous = await perdure(gateway.home, "token", "add", "tablet")
    several = await perdure(gateway.home, "token", "revoke", "tablet")
    unknown = await perdure(gateway.home, "token", "revoke", "toaster")
    other = await perdure(gateway.home, "token", "revoke", ambiguous.out.split()[0], "--json")
    revoked = await perdure(gateway.home, "token", "revoke", "phone", "--json")
    last = await perdure(gateway.home, "token", "revoke", listed[0]["id"])
    if not is_running:
        await gateway.start()
    refused = await perdure(gateway.home, "status", PERDURE_TOKEN=made["token"])
    taken = await perdure(gateway.home, "status", PERDURE_TOKEN=text.out.split()[-1])

    assert [(each["principal"], each["role"]) for each in listed] == [
        ("operator", "operator"),
        ("phone", "member"),
        ("tablet", "member"),
    ]
    assert not any("token" in each for each in listed)
    assert (several.code, unknown.code) == (1, 1)
    assert "tablet has 2 valid tokens" in several.err
    assert ambiguous.out.split()[0] in several.err
    assert "no token has the id or the name toaster" in unknown.err
    assert other.json["principal"] == "tablet"
    assert (revoked.json["id"], revoked.json["revoked_at"] is not None) == (made["id"], True)
    assert refused.code == 1
    assert "token" in refused.err
    assert taken.code == 0
    assert last.code == 1
    assert "last token" in last.err


async def test_the_token_of_the_home_opens_again_after_a_restart(gateway: GatewayProcess) -> None:
    await gateway.terminate()
    damage(gateway.home, "UPDATE tokens SET revoked_at = 1")
    await gateway.start()

    assert (await perdure(gateway.home, "status")).code == 0


async def test_a_token_made_before_the_first_start_leaves_the_operator_alone(
    tmp_path: Path,
) -> None:
    home = tmp_path / "new"
    made = await perdure(home, "token", "add", "phone")
    listed = await perdure(home, "token", "list", "--json")

    assert made.code == 0
    assert str(home) in made.err
    assert [each["role"] for each in listed.json["tokens"]] == ["member"]
    assert home.stat().st_mode & 0o777 == 0o700


async def test_a_member_may_not_stop_the_node(node: Node) -> None:
    made = (await perdure(node.home, "token", "add", "phone", "--json")).json
    result = await perdure(node.home, "stop", PERDURE_TOKEN=made["token"])

    assert result.code == 1
    assert (await perdure(node.home, "status")).code == 0


async def test_a_node_whose_address_is_unknown_is_found_by_its_lock(node: Node) -> None:
    hint, aside = node.home / "server.json", node.home / "aside.json"
    hint.rename(aside)
    try:
        text = await perdure(node.home, "status")
        machine = await perdure(node.home, "status", "--json")
        restart = await perdure(node.home, "restart")
    finally:
        aside.rename(hint)

    assert text.code == machine.code == restart.code == 1
    for result in (text, machine, restart):
        assert f"process {node.pid}), but its address is unknown" in result.err
        assert "perdure stop" in result.err
    told = {"state": "unreachable", "home": str(node.home), "pid": node.pid}
    assert machine.json == told


@pytest.mark.parametrize("has_hint", [True, False])
async def test_stop_waits_until_the_node_is_gone(gateway: GatewayProcess, has_hint: bool) -> None:
    # If its address is missing, the node is found by the lock, and gets a signal that means the
    # same.
    if not has_hint:
        (gateway.home / "server.json").unlink()
    result = await perdure(gateway.home, "stop", "--json")

    assert result.code == 0
    assert result.json == {"state": "stopped"}
    assert not (gateway.home / "server.json").exists()
    assert await gateway.wait() == 0
    again = await perdure(gateway.home, "sessions", "list")
    assert again.code == 0, again.err


async def test_stop_lets_a_turn_finish_and_says_so(gateway: GatewayProcess) -> None:
    async with asyncio.TaskGroup() as group:
        chatting = group.create_task(
            perdure(gateway.home, "chat", "slow", stdin="demo words=80 delay_ms=50")
        )
        while (await perdure(gateway.home, "status", "--json")).json["turns"]["running"] == 0:
            assert not chatting.done()
        stopped = await perdure(gateway.home, "drain")

    assert stopped.code == 0
    assert "1 turn running" in stopped.err
    assert len(chatting.result().out.split()) == 80


async def test_sigterm_is_0_and_takes_the_server_file_away(gateway: GatewayProcess) -> None:
    assert (gateway.home / "server.json").exists()

    assert await gateway.terminate() == 0
    assert not (gateway.home / "server.json").exists()


async def test_serve_keeps_the_token_out_of_what_is_no_terminal(node: Node) -> None:
    # The output may be a log that others read. It has the address, and says how to sign in.
    token = (node.home / "token").read_text().strip()
    link = await perdure(node.home, "token", "link")
    machine = await perdure(node.home, "token", "link", "--json")

    assert f"{node.url}/\n" in node.banner
    assert "perdure token link" in node.banner
    assert token not in node.banner
    assert link.out == f"{node.url}/#token={token}\n"
    assert machine.json == {"url": link.out.strip()}


async def test_serve_prints_the_address_with_the_token_where_it_is_asked_to(
    tmp_path: Path, gateway_factory: StartGateway
) -> None:
    public = await gateway_factory(toml='[server]\nbase_url = "https://me:word@chat.example/p"\n')
    link = await perdure(public.home, "token", "link")
    await public.terminate()
    gone = await perdure(public.home, "token", "link")
    await public.start("--show-token")
    async with terminal(tmp_path / "seen", "serve", "--port", "0") as window:
        await window.shows("/#token=")
        window.process.send_signal(signal.SIGTERM)
        assert await window.ends() == 0

    signed_in = f"https://chat.example/p/#token={public.token}"
    assert link.out.strip() == signed_in
    assert (gone.code, gone.out) == (3, "")
    assert public.output.count(signed_in) == 1
    assert "word" not in public.output


async def test_a_second_node_on_one_home_is_refused(node: Node) -> None:
    result = await perdure(node.home, "serve", "--port", "0")
    status = await perdure(node.home, "status", "--json")

    assert result.code == 1
    assert str(node.pid) in result.err
    assert status.json["pid"] == node.pid


async def test_a_port_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = await perdure(tmp_path / "home", "serve", "--port", port)

    assert result.code == 1
    assert port in result.err
    assert "--port" in result.err


@pytest.mark.parametrize("verb", [("serve", "--port", "0"), ("sessions", "list")])
async def test_a_wrong_key_is_2_and_named_with_its_line(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    (tmp_path / "perdure.toml").write_text("[server]\nprot = 1\n")
    result = await perdure(tmp_path, *verb)

    assert result.code == 2
    assert "perdure.toml:2" in result.err
    assert '"port"' in result.err


async def test_config_check_says_what_a_start_would_say(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    assert "the defaults are used" in (await perdure(home, "config", "check")).out
    file = home / "perdure.toml"
    file.write_text(f'[tools.files]\nroots = [\n"{tmp_path}",\n"{tmp_path}/nowhere"]\n')
    told = await perdure(home, "config", "check")
    started = await perdure(home, "serve", "--port", "0")
    assert (told.code, told.out) == (2, "")
    assert f"{file}:4: " in told.err
    assert told.err == started.err

    file.write_text("[retention]\nclosed_days = 3\n")

    fine = await perdure(home, "config", "check")
    assert fine.out.splitlines() == [
        f"{file} can be used",
        "[retention] closed_days has no effect in this version",
    ]
    listed = (await perdure(home, "--json", "config", "check")).json["without_effect"]
    assert listed == ["[retention] closed_days"]
    assert not (home / "perdure.db").exists()


@pytest.mark.parametrize("toml", ['[server]\nhost = "192.0.2.1"\n'])
async def test_what_cannot_be_done_here_is_2_and_named_with_its_line(
    tmp_path: Path, toml: str
) -> None:
    (tmp_path / "perdure.toml").write_text(toml)
    result = await perdure(tmp_path, "serve", "--port", "0")

    assert result.code == 2
    assert "perdure.toml:2" in result.err


async def test_settings_without_effect_are_named_at_the_start(
    gateway_factory: StartGateway,
) -> None:
    gateway = await gateway_factory(
        toml='[agents.main]\nkind = "demo"\ntools = ["memory"]\n[retention]\nclosed_days = 1\n'
    )

    told = "[retention] closed_days has no effect in this version"
    assert gateway.output.count(told) == 1
    assert '"memory" has no effect' not in gateway.output


async def test_a_full_disk_is_said_once_and_the_node_goes_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "perdure.log").symlink_to("/dev/full")
    (home / "perdure.toml").write_text(
        "[sessions]\nidle_reset_s = 9\n[retention]\nclosed_days = 1\n"
    )
    async with terminal(home, "serve", "--port", "0") as window:
        await window.shows("the log file cannot be written")
        await window.shows("is ready")
        window.process.send_signal(signal.SIGTERM)
        assert await window.ends() == 0
        assert "Traceback" not in window.seen
        assert "cannot be written" not in window.seen


async def test_a_killed_node_is_not_running(gateway: GatewayProcess) -> None:
    await talked(gateway.home)
    await gateway.kill()

    assert (gateway.home / "server.json").exists()
    assert (await perdure(gateway.home, "status")).code == 3
    assert (await perdure(gateway.home, "sessions", "list")).code == 0


async def test_the_address_of_a_dead_node_may_belong_to_another(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    # Two homes used the same port, so the dead node's hint leads to another node.
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o700)
    (ours / "token").write_text("another-token\n")
    dead = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await dead.wait()
    hint = {"pid": dead.pid, "port": gateway.port, "url": gateway.url}
    (ours / "server.json").write_text(json.dumps(hint))

    assert (await perdure(ours, "status")).code == 3
    (ours / "token").write_text(gateway.token)
    assert (await perdure(ours, "status")).code == 3


VERBS = [
    ("status",),
    ("stop",),
    ("restart",),
    ("sessions", "list"),
    ("token", "list"),
    ("chat", "main"),
    ("send", "home", "hello"),
    ("turns", "stop", "trn_1"),
]


async def test_whoever_takes_the_port_of_a_dead_node_is_told_nothing(
    gateway: GatewayProcess,
) -> None:
    # A stranger that answers as the node would must above all not get the operator's token.
    await gateway.kill()
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        body = json.dumps({"pid": gateway.pid, "version": "0"}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", gateway.port):
        results = [await perdure(gateway.home, *verb, stdin="hi\n") for verb in VERBS]

    assert [result.code for result in results[:3]] == [3, 3, 3]
    assert not heard


async def test_the_token_is_needed_on_the_socket_too(gateway: GatewayProcess) -> None:
    path = gateway.home / "perdure.sock"
    statuses = []
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as http:
        for token in ("", "wrong", gateway.token):
            headers = {"Authorization": f"Bearer {token}"}
            async with http.get("http://localhost/api/status", headers=headers) as response:
                statuses.append(response.status)

    assert statuses == [401, 401, 200]
    assert path.stat().st_mode & 0o777 == 0o600
    assert await gateway.terminate() == 0
    assert not path.exists()


async def test_a_home_with_a_long_path_is_reached_too(tmp_path: Path) -> None:
    home = tmp_path / ("h" * 120)
    home.mkdir(mode=0o700)
    gateway = GatewayProcess(home, environ=environment(), clock=SystemClock())
    await gateway.start()
    try:
        found = await perdure(home, "status", "--json")
        await gateway.restart()
        again = await perdure(home, "status", "--json")
        stopped = await perdure(home, "stop")
    finally:
        await gateway.kill()

    assert (found.code, again.code, stopped.code) == (0, 0, 0)
    assert again.json["pid"] == gateway.pid


async def test_a_live_process_is_the_node_only_if_it_holds_the_lock(tmp_path: Path) -> None:
    # After a kill the system may give the process id to an unrelated process.
    hint = {"pid": os.getpid(), "port": 9, "url": "http://127.0.0.1:9"}
    (tmp_path / "server.json").write_text(json.dumps(hint))
    (tmp_path / "perdure.db.lock").write_text(str(os.getpid()))
    stranger = [await perdure(tmp_path, verb) for verb in ("status", "stop")]
    program = tmp_path / "perdure"
    program.write_text(HOLDING)
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), "serve", str(tmp_path / "perdure.db.lock")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    silent = await perdure(tmp_path, "status")
    stopped = await perdure(tmp_path, "stop")

    assert [result.code for result in stranger] == [3, 3]
    assert silent.code == 1
    assert f"process {holder.pid}" in silent.err
    assert stopped.code == 0
    assert await holder.wait() == -signal.SIGTERM


def test_on_a_shared_store_a_stranger_is_told_by_its_command_line(tmp_path: Path) -> None:
    # The folders in the program's path do not count, whatever they are called.
    (tmp_path / "perdure.toml").write_text('[store]\nurl = "postgresql://h/db"\n')
    for name, is_node in (("perdure", True), ("ollama", False)):
        program = tmp_path / name
        program.write_text("input()")
        with subprocess.Popen(
            [sys.executable, str(program), "serve", "--home", "perdure"], stdin=subprocess.PIPE
        ) as process:
            hint = {"pid": process.pid, "port": 9, "url": "http://127.0.0.1:9"}
            (tmp_path / "server.json").write_text(json.dumps(hint))
            assert silent_node(tmp_path, {}) == (process.pid if is_node else None)
            process.kill()


async def test_a_store_that_somebody_holds_is_named(gateway: GatewayProcess) -> None:
    await gateway.terminate()
    with (gateway.home / "perdure.db.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = await perdure(gateway.home, "sessions", "list")

    assert result.code == 1
    assert "does not answer" in result.err


async def test_verify_checks_every_session(gateway: GatewayProcess) -> None:
    await talked(gateway.home)
    await perdure(gateway.home, "chat", "other", stdin="demo fail")
    await gateway.terminate()
    text = await perdure(gateway.home, "verify")
    machine = await perdure(gateway.home, "verify", "--json")

    assert text.code == machine.code == 0
    assert "2 sessions" in text.out
    assert machine.json == {"sessions": 2, "violations": []}


async def test_verify_looks_for_itself_beside_a_running_node(gateway: GatewayProcess) -> None:
    # The node keeps the database open and is not asked. `--new` remembers which sessions were
    # sound.
    await talked(gateway.home)
    first = await perdure(gateway.home, "verify", "--json")
    nothing = await perdure(gateway.home, "verify", "--new", "--json")
    await perdure(gateway.home, "chat", "other", stdin="hello")
    again = await perdure(gateway.home, "verify", "--new")
    status = await perdure(gateway.home, "status", "--json")

    assert (first.code, first.err) == (0, "")
    assert first.json == {"sessions": 1, "violations": []}
    assert nothing.json == {"sessions": 0, "violations": []}
    assert again.out == "1 new sessions: all sound\n"
    assert status.json["state"] == "serving"


async def test_verify_new_still_names_what_was_found_broken(gateway: GatewayProcess) -> None:
    answered = await talked(gateway.home)
    await gateway.terminate()
    damage(gateway.home, "UPDATE sessions SET strikes = strikes + 1")
    whole = await perdure(gateway.home, "verify", "--json")
    new = await perdure(gateway.home, "verify", "--new", "--json")

    assert whole.code == new.code == 1
    assert any(answered["session"] in each for each in whole.json["violations"])
    assert new.json["violations"] == whole.json["violations"]


async def test_verify_finds_a_damaged_session(gateway: GatewayProcess) -> None:
    answered = await talked(gateway.home)
    await gateway.terminate()
    damage(gateway.home, "UPDATE sessions SET last_seq = last_seq + 1")
    result = await perdure(gateway.home, "verify", "--json")

    assert result.code == 1
    assert any(answered["session"] in each for each in result.json["violations"])


def damage(home: Path, sql: str) -> None:
    import apsw

    connection = apsw.Connection(str(home / "perdure.db"))
    connection.execute(sql)
    connection.close()


async def test_logs_show_the_end_and_leave_out_what_matters_less(tmp_path: Path) -> None:
    home = written_log(tmp_path, [("info", f"line {number}") for number in range(100)])
    with (home / "logs" / "perdure.log").open("a") as log:
        log.write(log_line("error", "\x1b[31mbroken\x1b[0m", turn="trn_1"))
    newest = await perdure(home, "logs", "-n", "3")
    errors = await perdure(home, "logs", "--level", "warning")
    machine = await perdure(home, "logs", "-n", "2", "--json")

    assert [line.split()[3:] for line in newest.out.splitlines()[:2]] == [
        ["line", "98"],
        ["line", "99"],
    ]
    assert "[31mbroken[0m turn=trn_1" in errors.out
    assert "\x1b" not in errors.out
    assert len(errors.out.splitlines()) == 1
    assert [json.loads(line)["level"] for line in machine.out.splitlines()] == ["info", "error"]


async def test_where_nothing_has_run_there_are_no_logs_yet(tmp_path: Path) -> None:
    result = await perdure(tmp_path, "logs")

    assert (result.code, result.out) == (0, "")
    assert "no logs" in result.err


async def test_logs_go_back_into_the_files_that_rotation_put_aside(tmp_path: Path) -> None:
    home = written_log(tmp_path, [("info", "old"), ("info", "older")])
    current = home / "logs" / "perdure.log"
    current.rename(current.with_name("perdure.log.1"))
    current.write_text(log_line("info", "new"))
    result = await perdure(home, "logs", "-n", "2")

    assert [line.split()[-1] for line in result.out.splitlines()] == ["older", "new"]


async def test_logs_follow_through_a_rotation(tmp_path: Path) -> None:
    home = written_log(tmp_path, [("info", "before")])
    current = home / "logs" / "perdure.log"
    async with terminal(home, "logs", "-f", "-n", "1") as window:
        await window.shows("before")
        with current.open("a") as log:
            log.write(log_line("info", "while"))
        await window.shows("while")
        current.rename(current.with_name("perdure.log.1"))
        current.write_text(log_line("info", "afterwards"))
        await window.shows("afterwards")
        window.process.send_signal(signal.SIGINT)
        assert await window.ends() == 130


async def test_the_log_of_a_real_node_can_be_read(gateway_factory: StartGateway) -> None:
    gateway = await gateway_factory(toml="[drain]\ntimeout_s = 0\n")
    async with terminal(gateway.home, "chat") as window:
        await window.shows("> ")
        window.type("demo words=5000 delay_ms=20\n")
        await window.shows("stone")
        assert await gateway.terminate() == 0
    result = await perdure(gateway.home, "logs", "--level", "info")

    assert result.code == 0
    assert "INFO     gateway: parking turns turns=1 reason=shutdown" in result.out


def written_log(folder: Path, lines: list[tuple[str, str]]) -> Path:
    home = folder / "home"
    (home / "logs").mkdir(parents=True)
    text = "".join(log_line(level, event) for level, event in lines)
    (home / "logs" / "perdure.log").write_text(text)
    return home


def log_line(level: str, event: str, **more: str) -> str:
    at = "2026-01-01T00:00:00.000000Z"
    fields = {"event": event, "logger": "test", "level": level, "timestamp": at, **more}
    return json.dumps(fields) + "\n"


async def test_stored_text_cannot_steer_the_terminal(node: Node) -> None:
    said = await perdure(node.home, "chat", "steering", stdin="\x1b]0;owned\x07 hello")
    shown = await perdure(node.home, "sessions", "show", "steering")
    listed = await perdure(node.home, "sessions", "search", "owned")

    for result in (said, shown, listed):
        assert result.code == 0
        assert "owned" in result.out
        assert "\x1b" not in result.out
        assert "\x07" not in result.out


async def test_a_reader_that_has_seen_enough_is_no_error(node: Node) -> None:
    await talked(node.home)
    line = " ".join(command("sessions", "show", "main", "--json"))
    process = await asyncio.create_subprocess_shell(
        f"{line} | head -c 1",
        env=environment(PERDURE_HOME=str(node.home)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()

    assert out == b"{"
    assert err == b""


async def test_help_answers_at_once(tmp_path: Path) -> None:
    # Heavy modules are only loaded once a verb is chosen.
    program = (
        "import sys\nfrom perdure.cli.parser import command\ncommand().format_help()\n"
        "print(*[name for name in ('aiohttp', 'msgspec', 'rich', 'structlog', 'asyncio', 'apsw')"
        " if name in sys.modules], file=sys.stderr)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env=environment(),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()

    assert err.decode().split() == []


# Loading them takes longer than asking a node on its socket.
HEAVY = {"aiohttp", "yarl", "multidict", "apsw", "asyncpg", "structlog"}


async def loaded_by(home: Path, *arguments: str, stdin: str = "") -> tuple[int | None, set[str]]:
    """Return the exit code of a command, and every package that it imported."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", "-m", "perdure", *arguments),
        env=environment(PERDURE_HOME=str(home)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, err = await process.communicate(stdin.encode())
    lines = [line for line in err.decode().splitlines() if line.startswith("import time:")]
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert "perdure.app.operate.client" in modules
    return process.returncode, {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("verb", ["status", "status --json", "send nowhere hello", "chat lean"])
async def test_a_verb_that_asks_a_node_loads_no_library_for_it(node: Node, verb: str) -> None:
    code, loaded = await loaded_by(node.home, *verb.split(), stdin="hello\n")

    assert code == (1 if verb.startswith("send") else 0)
    assert loaded & HEAVY == set()


async def test_status_loads_no_library_where_no_node_is(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    # The same holds where a killed node has left its address and its socket behind.
    await gateway.kill()
    for home in (tmp_path, gateway.home):
        code, loaded = await loaded_by(home, "status")
        assert code == 3
        assert loaded & HEAVY == set()


async def test_verify_works_beside_a_node_that_shares_its_store(
    gateway_factory: StartGateway, postgres_database: str
) -> None:
    gateway = await gateway_factory(toml=f'[store]\nurl = "{postgres_database}"\n')
    answered = await talked(gateway.home)
    beside = await perdure(gateway.home, "verify", "--json")
    await gateway.terminate()
    alone = await perdure(gateway.home, "sessions", "show", "main", "--json")

    assert beside.code == 0, beside.err
    assert beside.json == {"sessions": 1, "violations": []}
    assert alone.json["session"] == answered["session"]
