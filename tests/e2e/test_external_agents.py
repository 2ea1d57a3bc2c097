"""Checks an external agent at a real gateway: a program that speaks ACP answers, calls the tools of
the gateway, asks for its own, and survives stops, deaths and restarts like any other agent."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.approving import answer, asked, questions

from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import Mischief
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

StartGateway = Callable[..., Awaitable[GatewayProcess]]
pytestmark = pytest.mark.timeout(90)


class External:
    """Holds a gateway with an external agent, its operator, and what really ran in the agent."""

    def __init__(self, client: Client, mischief: Mischief) -> None:
        self.client = client
        self._mischief = mischief

    async def told(self, text: str, name: str = "a") -> str:
        """Return the whole answer to a message."""
        accepted = await self.client.say(name, text)
        return await self.answer(accepted["turn"], name)

    async def answer(self, turn: str, name: str = "a") -> str:
        settled = await self.client.settled(turn)
        assert settled["outcome"] == "done", settled
        entries = await self.client.transcript(name, "?limit=1000")
        said = [e for e in entries if e["role"] == "assistant" and e["turn"] == turn]
        return "".join(str(each["text"]) for each in said)

    def ran(self, name: str) -> list[Any]:
        return [call for call in self._mischief.ran() if call.tool == name]

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():
                await self.client.gateway.pause(POLL_S)


@pytest.fixture
async def external(
    gateway_factory: StartGateway, new_peer: NewPeer, tmp_path: Path
) -> AsyncIterator[External]:
    mischief = Mischief(calls=tmp_path / "calls")
    command = new_peer.hostile_acp().command(mischief)
    toml = f"""
[agents.main]
kind = "acp"
command = {json.dumps(command)}
tools = ["memory", "todo"]
sandbox = "off"
share = true
pool = {{ prewarm = false }}
[agents.main.approve]
memory = "always"
[agents.other]
kind = "demo"
[sessions]
titles = false
"""
    async with aiohttp.ClientSession() as session:
        yield External(Client(await gateway_factory(toml=toml), session), mischief)


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_a_conversation_with_an_external_agent(external: External) -> None:
    assert await external.told("[[PLAN one|two]][[EDIT /a.md new]][[SAY hello]]") == "hello"
    told = await external.told("[[HISTORY]]")
    assert "[[SAY hello]]" in told
    assert len(external.ran("session/new")) == 1
    entries = await external.client.transcript("a", "?limit=1000")
    (edit,) = [each for each in entries if each["role"] == "tool"]
    assert "-before\n+new" in edit["text"]
    status, body = await external.client.call("GET", "/api/agents")
    assert status == 200
    agent, _ = body["agents"]
    (process,) = agent["program"]["processes"]
    assert (agent["kind"], process["sessions"]) == ("acp", 1)


async def test_what_it_tells_beside_its_answers_is_journalled(external: External) -> None:
    client = external.client
    await external.told("[[MODE code]][[THINK canary-hm]][[EDIT /a.md new]][[SAY done]]")
    await external.told("[[SAY again]]")
    entries = await client.transcript("a", "?limit=1000")
    states = [each["agent_state"] for each in entries if each.get("agent_state")]
    assert states == [{"mode": "code", "commands": ["compact"]}]
    # What it thought stands with the call that it led to, for operators alone.
    assert "canary-hm" not in str([each for each in entries if each["role"] != "user"])
    _, known = await client.call("GET", "/api/conversations/a")
    _, journal = await client.call("GET", f"/api/sessions/{known['session']}/journal?limit=1000")
    (said,) = [
        each for each in journal["events"] if "canary-hm" in str(each["body"].get("thoughts"))
    ]
    assert [call["name"] for call in said["body"]["calls"]] == ["Edit /a.md"]


async def test_its_calls_are_asked_about_like_those_of_any_agent(external: External) -> None:
    question = await asked(external.client, "a", '[[TOOL memory {"action": "list"}]]')
    assert question["tool"] == "memory"
    assert (await answer(external.client, question["id"], "allow"))[0] == 200
    told = await external.answer(question["turn"])
    assert told.startswith("TOOLRESULT<[Output of memory")
    assert len(external.ran("session/new")) == 1  # the prompt was in flight all the time


@pytest.mark.parametrize(("word", "option"), [("allow", "once"), ("deny", "no")])
async def test_people_decide_about_its_own_tools(
    external: External, word: str, option: str
) -> None:
    question = await asked(external.client, "a", "[[ASK rm x]]")
    assert question["tool"] == "permission"
    assert "rm x" in question["arguments"]
    await answer(external.client, question["id"], word)
    assert await external.answer(question["turn"]) == f"ASKED<{option}>"


async def test_a_question_survives_a_restart_and_its_call_runs_once(external: External) -> None:
    client = external.client
    question = await asked(client, "a", '[[TOOL memory {"action": "list"}]]')
    await client.gateway.kill()
    await client.gateway.restart()
    await answer(client, question["id"], "allow")

    async def results() -> list[dict[str, Any]]:
        entries = await client.transcript("a", "?limit=1000")
        return [each for each in entries if each["role"] == "tool"]

    # A new session is told the result with the record.
    await external.until(lambda: len(external.ran("session/new")) == 2)
    (result,) = await results()
    assert "[Output of memory" not in result["text"]
    assert result["turn"] == question["turn"]


async def test_a_question_is_void_when_the_agent_that_asked_dies(external: External) -> None:
    client = external.client
    question = await asked(client, "a", "[[ASK rm x]]")
    os.kill(external.ran("start")[-1].pid, signal.SIGKILL)
    # The turn goes on in another process, which asks again; the first question cannot be answered.
    await external.until(lambda: len(external.ran("session/request_permission")) == 2)
    async with asyncio.timeout(DEADLINE_S):
        while not (found := await questions(client, question["turn"])):
            await client.gateway.pause(POLL_S)
    (again,) = found
    assert again["id"] != question["id"]
    status, body = await answer(client, question["id"], "allow")
    assert (status, body["error"]["code"]) == (409, "already_answered")
    assert "the agent's program that asked has ended" in body["error"]["message"]
    entries = await client.transcript("a", "?limit=1000&notices=true")
    assert "agent_lost" not in str([each["text"] for each in entries])
    assert (await answer(client, again["id"], "allow"))[0] == 200
    assert (await external.answer(question["turn"])).endswith("ASKED<once>")


async def test_a_stop_ends_an_answer_that_waits_for_a_person(external: External) -> None:
    question = await asked(external.client, "a", "[[ASK rm x]]")
    await external.client.say("a", "/stop")
    settled = await external.client.settled(question["turn"])
    assert settled["outcome"] == "stopped"
    assert await external.told("[[SAY still here]]", "b") == "still here"


async def test_an_agent_that_is_killed_in_mid_prompt_goes_on(
    external: External, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    accepted = await external.client.say("a", f"[[HOLD {go}]][[SAY done]]")
    await external.until(lambda: external.ran("hold"))
    go.touch()
    os.kill(external.ran("start")[0].pid, signal.SIGSTOP)
    os.kill(external.ran("start")[0].pid, signal.SIGKILL)
    assert "done" in await external.answer(accepted["turn"])


async def test_no_agent_outlives_a_gateway_that_is_killed(
    external: External, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    accepted = await external.client.say("a", f"[[HOLD {go}]][[SAY done]]")
    await external.until(lambda: external.ran("hold"))
    await external.client.gateway.kill()
    pid = external.ran("start")[0].pid
    await external.until(lambda: not is_alive(pid))
    go.touch()
    await external.client.gateway.restart()
    assert await external.answer(accepted["turn"]) == "done"


async def test_a_session_is_made_anew_after_an_undo(external: External) -> None:
    await external.told("[[SAY one]]")
    await external.told("[[SAY two]]")
    await external.client.say("a", "/undo")
    assert await external.told("[[HISTORY]]") == "HISTORY<[]>"
    assert len(external.ran("session/new")) == 2


async def test_a_session_is_made_anew_whatever_has_changed_the_conversation(
    external: External,
) -> None:
    client = external.client

    def record() -> str:
        """Return what the agent was told last, if that was the record in a new session."""
        news = [each.arguments["session"] for each in external.ran("session/new")]
        told = external.ran("session/prompt")[-1].arguments
        assert told["session"] == news[-1]
        return str(told["text"])

    long = "long " * 1000
    await external.told(f"{long} [[SAY one]]")
    await external.told("[[SAY two]]")
    retried = await client.say("a", "/retry")
    assert await external.answer(retried["turn"]) == "two"
    assert '"one"' in record()
    assert '"two"' not in record()

    await client.say("a", "/branch")
    assert await external.told("[[SAY three]]") == "three"
    assert '"two"' in record()

    await client.say("a", "/agent other")
    said = await external.told("demo words=3")
    await client.say("a", "/agent main")
    assert await external.told("[[SAY four]]") == "four"
    assert f'"{said}"' in record()

    assert long in record()
    compacted = await client.say("a", "/compact")
    await client.settled(compacted["turn"])
    assert await external.told("[[SAY five]]") == "five"
    assert long not in record()
    assert len(external.ran("session/new")) == 6


async def test_an_agent_is_warm_in_its_sandbox_and_a_stop_needs_no_obedience(
    gateway_factory: StartGateway, new_peer: NewPeer, tmp_path: Path
) -> None:
    new_peer.bubblewrap()
    # It reaches its tools by the relay only, and goes on when it is cancelled.
    command = new_peer.hostile_acp().command(Mischief("no_http", "ignores_cancel"))
    toml = f"""
[agents.main]
kind = "acp"
command = {json.dumps(command)}
tools = ["memory"]
share = true
[sessions]
titles = false
"""
    async with aiohttp.ClientSession() as session:
        gateway = await gateway_factory(toml=toml)
        external = External(Client(gateway, session), Mischief(calls=tmp_path / "none"))
        client = external.client

        async def processes() -> list[dict[str, Any]]:
            _, body = await client.call("GET", "/api/agents")
            return list(body["agents"][0]["program"]["processes"])

        async with asyncio.timeout(DEADLINE_S):
            while not (running := await processes()):
                await gateway.pause(POLL_S)
        assert (running[0]["has_sandbox"], running[0]["sessions"]) == (True, 0)

        told = await external.told('[[TOOL memory {"action": "list"}]]')
        assert "Nothing is remembered" in told
        kept = [each.name for each in gateway.home.iterdir()]
        assert {"perdure.db", "agents"} <= set(kept)
        assert await external.told(f"[[PEEK {gateway.home}]]") == "PEEK<agents>"
        for name in kept:
            if name != "agents":
                seen = await external.told(f"[[PEEK {gateway.home / name}]]")
                assert seen == "PEEK<FileNotFoundError>", name
        assert gateway.token not in await external.told("[[WHOAMI]]")

        accepted = await client.say("a", "[[SLOW 10000 x]]")
        async with asyncio.timeout(DEADLINE_S):
            while not (await processes())[0]["prompts"]:
                await gateway.pause(POLL_S)
        await client.say("a", "/stop")
        assert (await client.settled(accepted["turn"]))["outcome"] == "stopped"
        # What does not obey harms nobody. The words in front keep the new request from being one
        # with the old one, if nothing of its answer was shown.
        assert await external.told("And now: [[SAY went on]]") == "went on"
