"""Checks commands at a real gateway: who is asked, what they can see of it, and that nothing which
an agent has started outlives a stop, a drain or a kill."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from tests.e2e.approving import answer, asked, questions, result_of

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(90)
CANARY = "canary-4417"
_numbers = count(1)


def toml(work: Path, *, more: str = "", rules: str = "") -> str:
    return f"""
[agents.main]
kind = "demo"
tools = ["shell"]
{rules}
[tools.shell]
roots = ["{work}"]
{more}
"""


def rule(match: str, do: str) -> str:
    return f'[[agents.main.rules]]\ntool = "shell"\nmatch = "{match}"\ndo = "{do}"\n'


def run(*argv: str, **more: object) -> str:
    """Return a message that makes the agent run a command."""
    return f"demo tool shell {json.dumps({'action': 'run', 'argv': argv, **more})}"


@pytest.fixture
def work(tmp_path: Path, new_peer: NewPeer) -> Path:
    new_peer.bubblewrap()
    work = tmp_path / "work"
    work.mkdir()
    return work


Start = Callable[..., Awaitable[Client]]


@pytest.fixture
async def start(gateway_factory: StartGateway, work: Path) -> AsyncIterator[Start]:
    """Start a gateway whose agent has a shell, and provide its operator."""
    async with aiohttp.ClientSession() as session:

        async def start(more: str = "", rules: str = "", **environ: str) -> Client:
            text = toml(work, more=more, rules=rules)
            return Client(await gateway_factory(toml=text, environ=environ), session)

        yield start


def sleeping(seconds: str) -> bool:
    """Tell whether a `sleep` of so many seconds runs, wherever that is."""
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit():
                words = (each / "cmdline").read_bytes().split(b"\0")
                if words[:2] == [b"sleep", seconds.encode()]:
                    return True
        except OSError:
            continue
    return False


async def until(client: Client, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await client.gateway.pause(POLL_S)


async def told(client: Client, text: str) -> str:
    accepted = await client.say("a", text)
    return await result_of(client, "a", accepted["turn"])


async def sleeps(client: Client, *, background: bool) -> tuple[str, str]:
    """Have the agent run a long command. Returns its turn, and by what the command is known."""
    # Nothing else on this machine sleeps so long.
    seconds = f"600.{os.getpid()}{next(_numbers)}"
    accepted = await client.say("a", run("sleep", seconds, background=background))
    await until(client, lambda: sleeping(seconds))
    return accepted["turn"], seconds


async def test_a_person_sees_the_whole_command_before_it_runs(start: Start, work: Path) -> None:
    client = await start()
    (work / "deep").mkdir()
    text = run("tee", "made.txt", cwd="deep", input="hello")
    question = await asked(client, "a", text)
    for words in ('"tee"', '"made.txt"', '"cwd": "deep"', '"input": "hello"'):
        assert words in question["arguments"]
    assert f"in {work}/deep, in a sandbox without network." in question["text"]
    assert not (work / "deep" / "made.txt").exists()

    await answer(client, question["id"], "allow", scope="session")

    assert "exit code 0" in await result_of(client, "a", question["turn"])
    assert (work / "deep" / "made.txt").read_text() == "hello"
    assert "exit code 0" in await told(client, text), "the same command is covered"
    for other in (
        run("tee", "made.txt", cwd="deep", input="other"),
        run("tee", "made.txt", cwd="", input="hello"),
        run("tee", "-a", "made.txt", cwd="deep", input="hello"),
    ):
        question = await asked(client, "a", other)
        await answer(client, question["id"], "deny")
        await client.settled(question["turn"])


async def test_rules_speak_of_words_and_are_not_reached_through_others(start: Start) -> None:
    client = await start(rules=rule("echo **", "allow") + rule("rm **", "deny"))
    assert (await told(client, run("echo", "hello", "there"))).endswith("\n\nhello there")
    for denied in (("rm", "x"), ("/bin/rm", "x")):
        assert "does not allow this call" in await told(client, run(*denied))
    for hidden in (("sh", "-c", "echo x"), ("echo", "$(rm x)"), ("env", "echo", "x"), ("./echo",)):
        message = await client.say("a", run(*hidden))
        if hidden == ("./echo",):
            assert "find no program" in await result_of(client, "a", message["turn"])
            continue
        async with asyncio.timeout(DEADLINE_S):
            while not (open_now := await questions(client, message["turn"])):
                await client.gateway.pause(POLL_S)
        await answer(client, open_now[0]["id"], "deny")
        await client.settled(message["turn"])


@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_a_command_finds_no_secret_of_the_gateway(
    start: Start, work: Path, sandbox: str
) -> None:
    client = await start(
        f'sandbox = "{sandbox}"\napprove = "never"',
        OPENAI_API_KEY=CANARY,
        SLACK_TOKEN=CANARY,
        SECRET=CANARY,
    )
    said = await told(client, run("env"))
    assert "PATH=" in said
    assert CANARY not in said
    if sandbox == "off":
        return
    home = client.gateway.home
    for command in (["ls", str(home)], ["sh", "-c", f"cat {home}/* /proc/*/environ"]):
        said = await told(client, run(*command))
        assert "No such file or directory" in said
        assert CANARY not in said
        assert "perdure.toml" not in said


async def test_a_stop_ends_what_runs(start: Start) -> None:
    client = await start('approve = "never"')
    turn, seconds = await sleeps(client, background=False)
    await client.say("a", "/stop")
    assert (await client.settled(turn))["outcome"] == "stopped"
    await until(client, lambda: not sleeping(seconds))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_no_command_outlives_the_gateway_and_that_is_told(
    start: Start, end: signal.Signals
) -> None:
    client = await start('approve = "never"\n[drain]\ntimeout_s = 0.5')
    turn, job = await sleeps(client, background=True)
    await client.settled(turn)
    _, waited = await sleeps(client, background=False)
    client.gateway.send_signal(end)
    await client.gateway.wait()
    await until(client, lambda: not sleeping(job) and not sleeping(waited))
    await client.gateway.start()
    other = await client.say("b", 'demo tool shell {"action": "list"}')
    said = await result_of(client, "b", other["turn"])
    assert said.startswith("There are no jobs in this conversation; jobs end with the gateway")


async def test_jobs_end_when_what_they_may_do_has_changed(start: Start) -> None:
    client = await start('approve = "never"')
    turn, job = await sleeps(client, background=True)
    await client.settled(turn)
    file = client.gateway.home / "perdure.toml"
    file.write_text(file.read_text().replace('kind = "demo"', 'kind = "demo"\ninstructions = "x"'))
    client.gateway.send_signal(signal.SIGHUP)
    await until(client, lambda: "configuration applied" in client.gateway.output)
    assert sleeping(job), "what has changed was not about it"
    file.write_text(file.read_text().replace("[tools.shell]", "[tools.shell]\nnetwork = true"))
    client.gateway.send_signal(signal.SIGHUP)
    await until(client, lambda: not sleeping(job))


async def test_people_are_told_why_there_are_no_commands(start: Start, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    client = await start(PATH=str(nothing))
    said = await told(client, run("true"))
    assert "no sandbox starts: there is no program bwrap" in said
    await client.say("a", "/tools")
    entries = await client.transcript("a", "?limit=1000")
    assert "no sandbox starts" in entries[-1]["text"]


async def test_a_folder_around_the_home_is_refused_at_the_start(
    start: Start, tmp_path: Path, gateway_factory: StartGateway
) -> None:
    with pytest.raises(Exception, match="would reach the gateway's home"):
        await gateway_factory(toml=toml(tmp_path), name="other")
