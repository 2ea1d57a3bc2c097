"""Runs one node after another on the same home: drains, restarts, takeovers, and what people
notice."""

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from perdure.app.life.systemd import Notifier
from perdure.app.wiring.system import SystemClock
from perdure.domain.turn.announcing import Drain, UnderWay, shutdown_text
from perdure.domain.turn.recovery import Policy, Resume
from perdure.testkit.processes.command import TRUSTS_NOBODY
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
DEADLINE_S = 30.0
POLL_S = 0.02
WRITE_EVERY_S = 0.15
LONG = "demo words=400 delay_ms=20"
BEGINNING = "000001-0000000000-99-000000000"
GONE = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)


@pytest.fixture
async def start(gateway_factory: Factory) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    async with aiohttp.ClientSession() as session:

        async def begin(toml: str = "", **environ: str) -> Client:
            return Client(await gateway_factory(toml=toml, environ=environ), session)

        yield begin


Start = Callable[..., Awaitable[Client]]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await is_so():
            await SystemClock().sleep(POLL_S)


async def until_text(client: Client, name: str = "main") -> None:
    async with client.events(name) as events:
        async for _, kind, _data in events:
            if kind == "delta":
                return


async def is_draining(client: Client) -> bool:
    return (await client.call("GET", "/readyz"))[0] == 503


async def is_running_turn(client: Client, turn: str) -> bool:
    return bool((await client.call("GET", f"/api/turns/{turn}"))[1]["state"] == "running")


def words(entries: list[dict[str, Any]], turn: str) -> list[str]:
    texts = [each["text"] for each in entries if each["role"] == "assistant"]
    assert {each["turn"] for each in entries} == {turn}
    return " ".join(texts).split()


@asynccontextmanager
async def process(*arguments: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the real command beside the node."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "perdure", *arguments),
        env={**os.environ, **TRUSTS_NOBODY, "PERDURE_DISCOVER": "0", **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def perdure(client: Client, *arguments: str) -> str:
    async with process("--home", str(client.gateway.home), *arguments) as running:
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await running.communicate()
    assert running.returncode == 0, out
    return out.decode()


@pytest.mark.executed
async def test_a_restart_keeps_the_port_and_lets_turns_finish(start: Start) -> None:
    client = await start()
    before = (await client.call("GET", "/api/status"))[1]
    accepted = await client.say("main", "demo words=160 delay_ms=20")
    await until_text(client)

    told = await perdure(client, "restart")

    after = (await client.call("GET", "/api/status"))[1]
    assert f"restarted, process {client.gateway.pid} at {client.gateway.url}" in told
    assert "1 turn running" in told
    assert after["pid"] == before["pid"] == client.gateway.pid
    assert after["node"] != before["node"]
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 1)
    assert len(words(await client.transcript("main"), accepted["turn"])) == 160
    assert await client.gateway.terminate() == 0


async def test_a_restart_without_a_wait_continues_the_turn_once(start: Start) -> None:
    client = await start("[drain]\ntimeout_s = 0\n")
    accepted = await client.say("main", "demo words=200 delay_ms=20")
    await until_text(client)

    await perdure(client, "restart")

    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)
    entries = await client.transcript("main")
    assert len(words(entries, accepted["turn"])) == 200
    assert [each["role"] for each in entries].count("user") == 1
    assert "reason=restart" in client.gateway.output


@pytest.mark.executed
async def test_a_node_restarts_any_number_of_times(start: Start) -> None:
    client = await start()
    lives = [(await client.call("GET", "/api/status"))[1]["node"]]
    for _ in range(3):
        await perdure(client, "restart")
        lives.append((await client.call("GET", "/api/status"))[1]["node"])

    assert len(set(lives)) == 4
    assert open_files(client.gateway.pid) < 40


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_a_signal_hurries_a_restart_and_the_next_one_ends_it(start: Start) -> None:
    client = await start()
    accepted = await client.say("main", LONG)
    await until_text(client)
    await client.call("POST", "/api/restart")
    await until(lambda: is_draining(client))
    life = (await client.call("GET", "/api/status"))[1]["node"]

    client.gateway.send_signal(signal.SIGTERM)

    await until(lambda: is_another_life(client, life))
    assert client.gateway.is_running
    assert "reason=restart" in client.gateway.output
    assert (await client.call("GET", f"/api/turns/{accepted['turn']}"))[1]["attempts"] >= 1


async def is_another_life(client: Client, life: str) -> bool:
    try:
        status, body = await client.call("GET", "/api/status")
    except GONE:
        return False
    return bool(status == 200 and body["node"] != life)


@pytest.mark.parametrize("sign", ["INVOCATION_ID", "NOTIFY_SOCKET"])
async def test_a_restart_under_systemd_is_left_to_systemd(
    start: Start, tmp_path: Path, sign: str
) -> None:
    client = await start(**{sign: str(tmp_path / "nobody-listens")})

    await client.call("POST", "/api/restart")

    assert await client.gateway.wait() == 75
    assert not (client.gateway.home / "server.json").exists()


async def test_a_shell_started_by_systemd_is_not_a_unit(start: Start) -> None:
    client = await start(INVOCATION_ID="of-the-desktop", SYSTEMD_EXEC_PID="1")

    await perdure(client, "restart")

    assert client.gateway.is_running


async def test_posts_during_a_drain_are_kept_and_run_in_the_next_life(start: Start) -> None:
    client = await start()
    running = await client.say("main", "demo words=200 delay_ms=20")
    await until_text(client)

    assert await perdure(client, "drain", "--no-wait") == "draining\n"
    await until(lambda: is_draining(client))
    waiting = await client.say("main", "and then this")
    elsewhere = await client.say("other", "and that")

    assert await client.gateway.wait() == 0
    await client.gateway.start()
    for accepted in (running, waiting, elsewhere):
        turn = await client.settled(accepted["turn"])
        assert (turn["outcome"], turn["attempts"]) == ("done", 1)


async def test_a_second_signal_skips_the_wait(start: Start) -> None:
    client = await start()
    accepted = await client.say("main", "demo words=150 delay_ms=20")
    await until_text(client)
    client.gateway.send_signal(signal.SIGTERM)
    await until(lambda: is_draining(client))
    assert await is_running_turn(client, accepted["turn"])

    assert await client.gateway.terminate() == 0

    assert "reason=shutdown" in client.gateway.output
    await client.gateway.start()
    turn = await client.settled(accepted["turn"])
    assert (turn["outcome"], turn["attempts"]) == ("done", 2)


async def test_a_drain_that_takes_too_long_is_said_to_have(start: Start) -> None:
    client = await start('[drain]\ntimeout_s = 0.2\n[recovery]\nresume = "wait"\n')
    await client.say("main", LONG)
    await until_text(client)

    assert await client.gateway.terminate() == 0

    await client.gateway.start()
    _, conversation = await client.call("GET", "/api/conversations/main")
    assert (conversation["state"], conversation["resume_reason"]) == (
        "resume_pending",
        "drain_timeout",
    )
    _, journal = await client.call("GET", f"/api/sessions/{conversation['session']}/journal")
    cuts = [each["body"] for each in journal["events"] if each["kind"] == "attempt_interrupted"]
    assert [each["asked"] for each in cuts] == ["stop"]


@pytest.mark.parametrize("timeout_s", [0, 0.3])
async def test_a_signal_under_load_loses_nothing_and_repeats_nothing(
    start: Start, timeout_s: float
) -> None:
    client = await start(f"[drain]\ntimeout_s = {timeout_s}\n")
    sent = [
        (name, await client.say(name, f"demo words={10 + 4 * number} delay_ms=10"))
        for number in range(6)
        for name in ("ada", "bob", "carol", "dave")
    ]
    await until_text(client, "dave")

    assert await client.gateway.terminate() == 0

    await client.gateway.start()
    for _, accepted in sent:
        assert (await client.settled(accepted["turn"]))["outcome"] == "done"
    for name in ("ada", "bob", "carol", "dave"):
        entries = await client.transcript(name)
        mine = [accepted["turn"] for who, accepted in sent if who == name]
        assert [each["turn"] for each in entries if each["role"] == "user"] == mine
        for number, turn in enumerate(mine):
            said = words([each for each in entries if each["turn"] == turn], turn)
            assert len(said) == 10 + 4 * number
    assert await perdure(client, "verify") == "4 sessions: all sound\n"


@pytest.mark.parametrize("resume", list(Resume))
async def test_active_conversations_are_told_what_will_happen(start: Start, resume: Resume) -> None:
    client = await start(f'[drain]\ntimeout_s = 0\n[recovery]\nresume = "{resume}"\n')
    await client.settled((await client.say("idle", "hello"))["turn"])
    accepted = await client.say("main", LONG)
    await until_text(client)

    assert await client.gateway.terminate() == 0

    await client.gateway.start()
    notices = await told(client, "main")
    policy, at_once = Policy(resume=resume), Drain(timeout_s=0)
    assert notices[0] == shutdown_text(policy, at_once, UnderWay())
    assert len(notices) == (2 if resume is Resume.ASK else 1)
    assert await told(client, "idle") == []
    state = (await client.call("GET", f"/api/turns/{accepted['turn']}"))[1]["state"]
    assert (state == "interrupted") == (resume is not Resume.CONTINUE)


async def told(client: Client, name: str) -> list[str]:
    """Return the notices that the conversation got from its beginning until now."""
    notices = []
    async with client.events(name) as events:
        now, _, _ = await anext(events)
    async with client.events(name, BEGINNING) as events:
        async for position, kind, data in events:
            if kind == "message" and data["role"] == "notice":
                notices.append(data["text"])
            if position >= now:
                return notices
    raise AssertionError("the stream ended")


class Writer:
    """Plays a person who repeats each message under its id until it is acknowledged."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self.is_done = False
        self.turns: list[str] = []

    async def write(self) -> None:
        for number in count():
            if self.is_done:
                return
            self.turns.append(await self._say(f"message {number}", f"{self._name}-{number}"))
            # Slowly enough that a long drain does not fill the conversation's queue.
            await SystemClock().sleep(WRITE_EVERY_S)

    async def _say(self, text: str, client_id: str) -> str:
        while True:
            try:
                accepted = await self._client.say(self._name, text, id=client_id)
            except GONE:
                await SystemClock().sleep(POLL_S)
            else:
                return str(accepted["turn"])


def replacing(client: Client, **environ: str) -> Any:
    home, port = str(client.gateway.home), str(client.gateway.port)
    return process("serve", "--replace", "--home", home, "--port", port, **environ)


async def serves(client: Client, pid: int) -> bool:
    try:
        return bool((await client.call("GET", "/api/status"))[1].get("pid") == pid)
    except GONE:
        return False


@pytest.mark.parametrize("has_hint", [True, False])
async def test_a_takeover_loses_no_message_and_repeats_none(start: Start, has_hint: bool) -> None:
    # The running node is found by its lock, because its server.json may be missing.
    client = await start()
    # The answer is long enough for another process to start meanwhile, also on a busy machine.
    running = await client.say("main", "demo words=400 delay_ms=20")
    await until_text(client)
    if not has_hint:
        (client.gateway.home / "server.json").unlink()
    writers = [Writer(client, name) for name in ("ada", "bob")]

    async with replacing(client) as successor:
        async with asyncio.TaskGroup() as group:
            for writer in writers:
                group.create_task(writer.write())
            await until(lambda: serves(client, successor.pid))
            for writer in writers:
                writer.is_done = True
        assert await client.gateway.wait() == 0
        turn = await client.settled(running["turn"])
        assert (turn["outcome"], turn["attempts"]) == ("done", 1)
        # A node that could not be asked over HTTP got a signal, which names no restart.
        what = "restart" if has_hint else "stop"
        assert (await told(client, "main"))[0].startswith(f"The gateway is about to {what}.")
        for name, writer in zip(("ada", "bob"), writers, strict=True):
            for each in writer.turns:
                assert (await client.settled(each))["outcome"] == "done"
            entries = await client.transcript(name, "?limit=1000")
            texts = Counter(each["text"] for each in entries if each["role"] == "user")
            assert texts == {f"message {n}": 1 for n in range(len(writer.turns))}
        successor.terminate()
        out, _ = await successor.communicate()

    assert successor.returncode == 0
    assert re.search(rb"\d turns running", out) or not has_hint
    assert b"Traceback" not in out


async def test_a_takeover_where_nothing_runs_just_starts(start: Start) -> None:
    client = await start()
    await client.gateway.kill()

    async with replacing(client) as successor:
        await until(lambda: serves(client, successor.pid))


async def test_a_takeover_on_a_shared_store_waits_for_the_node_of_its_home(
    start: Start, postgres_database: str
) -> None:
    client = await start(f'[store]\nurl = "{postgres_database}"\n')
    running = await client.say("main", "demo words=40 delay_ms=20")
    await until_text(client)

    async with replacing(client) as successor:
        await until(lambda: serves(client, successor.pid))
        assert await client.gateway.wait() == 0
        turn = await client.settled(running["turn"])
        assert (turn["outcome"], turn["attempts"]) == ("done", 1)
        assert (client.gateway.home / "server.json").exists()


async def test_who_holds_the_lock_is_waited_for_and_a_signal_ends_the_wait(start: Start) -> None:
    # Only a node is signalled, and here the test itself holds the lock.
    client = await start()
    await client.gateway.terminate()
    with (client.gateway.home / "perdure.db.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        with listening(client.gateway.home) as told_to:
            async with replacing(client, NOTIFY_SOCKET=told_to.address) as waiting:
                await told_to.hears("STATUS=waiting for the running node")
                waiting.terminate()
                async with asyncio.timeout(DEADLINE_S):
                    assert await waiting.wait() == 0


class Listener:
    """Receives what a node tells systemd."""

    def __init__(self, inbound: socket.socket, address: str) -> None:
        self.address = address
        self.heard: list[list[str]] = []
        self._inbound = inbound

    async def next(self) -> list[str]:
        async with asyncio.timeout(DEADLINE_S):
            raw = await asyncio.get_running_loop().sock_recv(self._inbound, 65536)
        self.heard.append(raw.decode().split("\n"))
        return self.heard[-1]

    async def hears(self, line: str) -> list[str]:
        while line not in (lines := await self.next()):
            pass
        return lines


@contextlib.contextmanager
def listening(home: Path, *, is_abstract: bool = False) -> Iterator[Listener]:
    name = str(home.parent / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbound:
        inbound.bind("\0" + name if is_abstract else name)
        inbound.setblocking(False)
        yield Listener(inbound, f"@{name}" if is_abstract else name)


@pytest.mark.parametrize("is_abstract", [False, True])
async def test_systemd_hears_how_the_node_is(
    start: Start, tmp_path: Path, is_abstract: bool
) -> None:
    with listening(tmp_path / "home", is_abstract=is_abstract) as told_to:
        client = await start(NOTIFY_SOCKET=told_to.address, WATCHDOG_USEC="100000")
        await told_to.hears("READY=1")
        await told_to.hears("WATCHDOG=1")
        await told_to.hears("WATCHDOG=1")
        client.gateway.send_signal(signal.SIGHUP)
        reloading = await told_to.hears("RELOADING=1")
        assert any(line.startswith("MONOTONIC_USEC=") for line in reloading)
        await told_to.hears("READY=1")
        client.gateway.send_signal(signal.SIGTERM)
        stopping = await told_to.hears("STOPPING=1")
        assert "STATUS=draining" in stopping
        assert await client.gateway.wait() == 0


async def test_the_watchdog_is_fed_while_the_loop_turns(tmp_path: Path) -> None:
    # The state of the store does not matter: a new life would find the database in the same state.
    with listening(tmp_path / "home") as told_to:
        environ = {"NOTIFY_SOCKET": told_to.address, "WATCHDOG_USEC": "40000"}
        watching = asyncio.ensure_future(Notifier(environ, SystemClock()).watch())
        assert await told_to.next() == ["WATCHDOG=1"]
        assert await told_to.next() == ["WATCHDOG=1"]
        watching.cancel()
        await asyncio.wait({watching})


async def test_sighup_applies_the_configuration_at_once_and_ends_nothing(start: Start) -> None:
    client = await start()
    running = await client.say("main", "demo words=40 delay_ms=20")
    await until_text(client)
    path = client.gateway.home / "perdure.toml"
    path.write_text('[agents.main]\nkind = "demo"\n[agents.second]\nkind = "demo"\n')

    client.gateway.send_signal(signal.SIGHUP)

    await until(lambda: has_agents(client, ["main", "second"]))
    path.write_text("[agents.main]\nkind = 7\n")
    client.gateway.send_signal(signal.SIGHUP)
    await until(lambda: is_logged(client, "configuration not applied"))
    assert await has_agents(client, ["main", "second"])
    assert (await client.settled(running["turn"]))["outcome"] == "done"
    assert client.gateway.is_running


async def has_agents(client: Client, names: list[str]) -> bool:
    _, body = await client.call("GET", "/api/status")
    return [each["name"] for each in body["agents"]] == names


async def is_logged(client: Client, text: str) -> bool:
    return text in client.gateway.output


def stop_lines(client: Client) -> list[str]:
    return [line for line in client.gateway.output.splitlines() if "[stop]" in line]


@pytest.mark.parametrize(("names", "answers"), [("a", "1 answer"), ("ab", "2 answers")])
async def test_a_signal_says_what_is_waited_for_and_how_it_ended(
    start: Start, names: str, answers: str
) -> None:
    client = await start()
    for name in names:
        await client.say(name, "demo words=40 delay_ms=20")
        await until_text(client, name)

    assert await client.gateway.terminate() == 0

    begun, waiting, ended = stop_lines(client)
    assert f"asked_by=SIGTERM turns={len(names)}" in begun
    assert f"waiting for {answers}; Ctrl-C again ends it now" in waiting
    assert "stopped" in ended
    assert "parked=0" in ended
    assert "waiting for" in await perdure(client, "logs")


async def test_a_stop_without_turns_waits_for_nothing(start: Start) -> None:
    client = await start()

    assert await perdure(client, "stop") == "stopped\n"

    begun, ended = stop_lines(client)
    assert "asked_by=request turns=0" in begun
    assert "stopped" in ended


async def test_perdure_stop_says_what_goes_on_at_the_next_start(start: Start) -> None:
    client = await start("[drain]\ntimeout_s = 0\n")
    await client.say("main", LONG)
    await until_text(client)

    told = await perdure(client, "stop")

    assert told.splitlines()[-2:] == [
        "1 turn did not finish and goes on at the next start",
        "stopped",
    ]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 0), ("SIGHUP", 3)])
async def test_a_signal_while_the_program_is_still_loading_is_heeded(
    tmp_path: Path, name: str, code: int
) -> None:
    # The signal comes in the middle of an import, and the import ends the process with 3.
    program = (
        "import os, signal, sys\n"
        "class Loading:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'aiohttp':\n"
        f"            os.kill(os.getpid(), signal.{name})\n"
        "            os._exit(3)\n"
        "from perdure.cli.main import main\n"
        "sys.meta_path.insert(0, Loading())\n"
        f"sys.argv = ['perdure', '--home', {str(tmp_path / 'home')!r}, 'serve', '--port', '0']\n"
        "main()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told = await process.communicate()

    assert process.returncode == code
    assert told == (b"", b"")
    assert not (tmp_path / "home").exists()
