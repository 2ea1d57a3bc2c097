"""Checks agents by others, Gemini CLI and Codex, at a real gateway: as their presets start them, in
their sandbox, offline, against a model on loopback. What the scripted agent proves in detail is
proved here once more with programs that people use."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import certifi
import pytest
from tests.e2e.approving import answer, asked

from perdure.app.children.launcher import descendants
from perdure.testkit.peers.acp.aimock import HELLO, AimockControl
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.processes.http import POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(240)
# An agent needs seconds for its start, and more on a busy machine.
WAIT_S = 100.0
KEPT = ("GEMINI_API_KEY", "GEMINI_MODEL", "GOOGLE_GEMINI_BASE_URL", "CODEX_HOME", "MODEL_KEY")


class Person:
    """Speaks with the agents of a gateway."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def until(self, is_so: Callable[[], Awaitable[object]]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not await is_so():
                await self.client.gateway.pause(POLL_S)

    async def settled(self, turn: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def is_settled() -> bool:
            _, body = await self.client.call("GET", f"/api/turns/{turn}")
            found.update(body)
            return bool(body["state"] == "settled")

        await self.until(is_settled)
        return found

    async def answer(self, turn: str, name: str = "a") -> str:
        """Return what was said in a turn that ends well."""
        settled = await self.settled(turn)
        assert settled["outcome"] == "done", settled
        entries = await self.client.transcript(name, "?limit=1000")
        said = [e for e in entries if e["role"] == "assistant" and e["turn"] == turn]
        return "".join(str(each["text"]) for each in said)

    async def told(self, text: str, name: str = "a") -> str:
        """Return the whole answer to a message."""
        return await self.answer((await self.client.say(name, text))["turn"], name)

    async def begun(self, text: str, words: str) -> str:
        """Send a message, and wait until its answer is shown as far as some words. Returns its
        turn."""
        async with asyncio.timeout(WAIT_S), self.client.events("a") as events:
            turn: str = (await self.client.say("a", text))["turn"]
            shown = ""
            async for _, kind, data in events:
                if kind == "delta" and data.get("turn") == turn:
                    shown += data["text"]
                if words in shown:
                    return turn
        pytest.fail("the stream has ended")

    async def processes(self, agent: str = "main") -> list[dict[str, Any]]:
        _, body = await self.client.call("GET", "/api/agents")
        (found,) = [each for each in body["agents"] if each["name"] == agent]
        return list(found["program"]["processes"])


def section(name: str, agent: str, peers: NewPeer, model: str, folder: Path, more: str = "") -> str:
    """Return the configuration of an agent by its preset, with a key of its own."""
    published = peers.published_acp()
    theirs = {"gemini": published.gemini, "codex": published.codex}[name](folder / agent, model)
    env = {key: theirs.environ[key] for key in KEPT if key in theirs.environ}
    env = {key: f"key-of-{agent}" if key.endswith("_KEY") else each for key, each in env.items()}
    # A gateway of the tests trusts no authority. Codex then reaches nothing, also without TLS.
    env["SSL_CERT_FILE"] = certifi.where()
    told = ", ".join(f"{key} = {json.dumps(each)}" for key, each in env.items())
    return f"""
[agents.{agent}]
kind = "acp"
preset = "{name}"
command = {json.dumps(list(theirs.command))}
tools = ["memory"]
env = {{ {told} }}
pool = {{ prewarm = false }}
{more}
"""


Open = Callable[..., Awaitable[Person]]


@pytest.fixture
async def open_with(
    gateway_factory: StartGateway, new_peer: NewPeer, aimock: AimockControl, tmp_path: Path
) -> AsyncIterator[Open]:
    """Start a gateway with agents, each given by its name, its preset and other settings."""
    new_peer.bubblewrap()
    async with aiohttp.ClientSession() as session:

        async def start(*agents: tuple[str, ...]) -> Person:
            toml = "".join(
                section(name, agent, new_peer, aimock.url, tmp_path / "theirs", *more)
                for agent, name, *more in agents
            )
            gateway = await gateway_factory(toml=f"{toml}[sessions]\ntitles = false\n")
            return Person(Client(gateway, session))

        yield start


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def remembers(text: str) -> str:
    return f'Please. [[TOOL memory {{"action": "save", "text": "{text}"}}]]'


def counted(mark: str, times: int) -> str:
    return "".join(f"{mark}{at:03}".ljust(8, ".") for at in range(times))


@pytest.mark.parametrize("name", ["gemini", "codex"])
async def test_people_talk_with_it_as_with_any_agent(
    open_with: Open, aimock: AimockControl, name: str
) -> None:
    # One gateway does everything, because an agent starts slowly.
    ada = await open_with(("main", name))
    bob = Person(Client(ada.client.gateway, ada.client.session))
    await bob.client.become("bob")

    # Two people in one process, who know nothing of each other.
    assert await ada.told("Hello, canary-ada.") == HELLO
    assert await bob.told("Hello, canary-bob.") == HELLO
    await asyncio.gather(
        ada.told(remembers("canary-ada likes tea")), bob.told(remembers("canary-bob likes milk"))
    )
    listed = 'Please. [[TOOL memory {"action": "list"}]]'
    assert "canary-ada likes tea" in await ada.told(listed)
    assert "canary-bob likes milk" in await bob.told(listed)
    assert await aimock.asked("canary-bob")
    assert not [each for each in await aimock.asked("canary-ada") if "canary-bob" in each.text]
    (process,) = await ada.processes()
    assert (process["sessions"], process["has_sandbox"]) == (2, True)

    # The answer comes in pieces, and a stop keeps those that were shown.
    turn = await ada.begun("[[SLOW 400 s]]", "s003")
    await ada.client.say("a", "/stop")
    assert (await ada.settled(turn))["outcome"] == "stopped"
    assert await ada.told("[[SLOW 5 x]]") == counted("x", 5)
    assert (await aimock.asked("SLOW 5 x"))[-1].text.count("s003") == 1

    # What is taken back was never said.
    assert await ada.told("[[SAY taken back]]") == "taken back"
    await ada.client.say("a", "/undo")
    assert await ada.told("[[SAY went on]]") == "went on"
    said = (await aimock.asked("SAY went on"))[-1].text
    assert "canary-ada" in said
    assert "taken back" not in said

    # The agent dies in the middle of an answer, and then the gateway. The answer goes on.
    turn = await ada.begun("[[SLOW 400 k]]", "k003")
    os.kill((await ada.processes())[0]["pid"], signal.SIGKILL)
    await goes_on(ada, aimock, turn, shown="k003")
    assert await bob.told("[[SAY still here]]") == "still here"
    turn = await ada.begun("[[SLOW 400 g]]", "g003")
    pid = (await ada.processes())[0]["pid"]
    theirs = [pid, *descendants(pid)]
    await ada.client.gateway.kill()

    async def are_gone() -> bool:
        return not any(map(is_alive, theirs))

    await ada.until(are_gone)
    await ada.client.gateway.restart()
    await goes_on(ada, aimock, turn, shown="g003")
    assert await ada.told("[[SAY the end]]") == "the end"


async def goes_on(person: Person, aimock: AimockControl, turn: str, *, shown: str) -> None:
    """Wait until a turn whose agent is gone is told to a new one, and stop it there."""
    await person.until(lambda: aimock.asked(shown))
    again, *_ = await aimock.asked(shown)
    assert "your work was interrupted. The person has seen your text above." in again.text
    await person.client.say("a", "/stop")
    settled = await person.settled(turn)
    assert (settled["outcome"], settled["attempts"]) == ("stopped", 2)


async def test_each_agent_has_its_own_key_and_asks_for_what_it_does(
    open_with: Open, aimock: AimockControl
) -> None:
    ada = await open_with(("main", "codex"), ("other", "codex", "own_tools = true"))
    await ada.client.say("b", "/agent other")
    assert await ada.told("Hello, canary-main.") == HELLO
    assert await ada.told("Hello, canary-other.", "b") == HELLO
    for agent, another in (("main", "other"), ("other", "main")):
        sent = await aimock.asked(f"canary-{agent}")
        assert {each.headers["authorization"] for each in sent} == {f"Bearer key-of-{agent}"}
        assert not [each for each in sent if f"key-of-{another}" in each.text]

    for word, is_made in (("deny", False), ("allow", True)):
        given = {"cmd": f"touch {word}", "sandbox_permissions": "require_escalated"}
        words = f"[[TOOL exec_command {json.dumps({**given, 'justification': 'a test'})}]]"
        question = await asked(ada.client, "b", f"Please. {words}")
        assert question["tool"] == "permission"
        told = json.loads(question["arguments"])
        assert (told["kind"], told["command"][-1]) == ("execute", f"touch {word}")
        await answer(ada.client, question["id"], word)
        await ada.settled(question["turn"])
        assert Path(told["folder"], word).exists() == is_made
