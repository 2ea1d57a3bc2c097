"""Checks at a real gateway that a tool server gets words of the agent's model where that is
configured, nothing of the conversation with them, and not without end."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.e2e.approving import result_of

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp, Mischief
from perdure.testkit.processes.http import DEADLINE_S, POLL_S, Client
from perdure.testkit.processes.process import GatewayProcess

Start = Callable[[str], Awaitable[Client]]
pytestmark = pytest.mark.timeout(90)
CANARY = "canary-4410"
USED = script.ScriptedUsage(prompt=70_000, completion=2)


class Talk:
    """Lets a scripted model call one tool and say what it returned. Whatever else it is asked, it
    answers with `words`."""

    def __init__(self) -> None:
        self.tool = ""
        self.arguments: dict[str, Any] = {}
        self.words: script.Reply = script.say("seven", usage=USED)

    def __call__(self, request: script.ScriptedRequest) -> script.Reply:
        if not request.body.get("tools"):
            return self.words
        if request.messages[-1]["role"] == "tool":
            return script.say("done")
        return script.call_tools([("c1", self.tool, json.dumps(self.arguments))])

    def calls(self, tool: str, **arguments: object) -> None:
        self.tool, self.arguments = tool, arguments


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
async def model(talk: Talk) -> AsyncIterator[ModelServer]:
    async with ModelServer(talk) as server:
        yield server


@pytest.fixture
def hostile(new_peer: NewPeer) -> HostileMcp:
    return new_peer.hostile_mcp()


@pytest.fixture
async def start(
    gateway_factory: Callable[..., Awaitable[GatewayProcess]], model: ModelServer
) -> AsyncIterator[Start]:
    """Start a gateway whose agent uses the tool server `peer`, and provide its operator."""
    async with aiohttp.ClientSession() as session:

        async def start(more: str) -> Client:
            toml = f"""
[agents.main]
kind = "chat"
base_url = "{model.openai_url}"
model = "scripted"
max_tokens = 500
instructions = "Nobody may know {CANARY}."
tools = ["mcp.peer"]

[sessions]
titles = false

[tools.mcp.peer]
approve = "never"
{more}
"""
            return Client(await gateway_factory(toml=toml), session)

        yield start


def allowed(command: list[str], more: str = "") -> str:
    return f"command = {json.dumps(command)}\nsampling = true\n{more}"


def beside(model: ModelServer) -> list[dict[str, Any]]:
    """Return the requests that were made for a tool server."""
    return [each.body for each in model.requests if each.body and not each.body.get("tools")]


async def told(client: Client, text: str = f"Do it, {CANARY}") -> str:
    accepted = await client.say("a", text)
    return await result_of(client, "a", accepted["turn"])


async def test_a_published_server_gets_words_of_the_model_and_nothing_else(
    start: Start, talk: Talk, model: ModelServer, new_peer: NewPeer
) -> None:
    client = await start(allowed(new_peer.published_mcp().everything()))
    talk.calls("peer__trigger-sampling-request", prompt="How many?", maxTokens=20)
    accepted = await client.say("a", f"Do it, {CANARY}")
    result = await result_of(client, "a", accepted["turn"])
    assert '"text": "seven"' in result
    assert '"model": "scripted"' in result

    (request,) = beside(model)
    assert request["max_tokens"] == 20
    assert [each["role"] for each in request["messages"]] == ["system", "user"]
    assert request["messages"][0]["content"] == "You are a helpful test server."
    assert "How many?" in request["messages"][1]["content"]
    assert CANARY not in json.dumps(request)

    # The turn is charged for it as for its own model calls.
    usage = (await client.say("a", "/usage"))["reply"]
    (tokens,) = re.findall(r"This conversation today: 1 turn, ([\d,]+) tokens in", usage)
    assert int(tokens.replace(",", "")) > 70_000


@pytest.mark.parametrize("kind", ["legacy", "modern"])
async def test_a_server_asks_a_model_midway(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp, kind: str
) -> None:
    mischief = Mischief(*(["modern"] if kind == "modern" else []))
    client = await start(allowed(hostile.command(mischief)))
    talk.calls("peer__sample", prompt="How many?")
    assert '"text": "seven"' in await told(client)
    (request,) = beside(model)
    assert [each["content"] for each in request["messages"]] == ["How many?"]


@pytest.mark.parametrize("kind", ["legacy", "modern"])
async def test_no_model_is_asked_where_that_is_not_configured(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp, kind: str
) -> None:
    mischief = Mischief(*(["modern"] if kind == "modern" else []))
    client = await start(f"command = {json.dumps(hostile.command(mischief))}\n")
    talk.calls("peer__sample", prompt="How many?")
    said = await told(client)
    assert "not supported" in said or "not allowed" in said
    assert beside(model) == []


async def test_a_flood_of_questions_to_the_model_is_answered_a_few_times(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp
) -> None:
    client = await start(allowed(hostile.command()))
    talk.calls("peer__sample_much", times=60, bytes=10)
    said = await told(client)
    assert said.count('"text": "seven"') == 5
    assert said.count("one call may ask the model 5 times") == 55
    assert len(beside(model)) == 5


async def test_a_huge_question_to_the_model_is_refused(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp
) -> None:
    client = await start(allowed(hostile.command()))
    talk.calls("peer__sample_much", times=1, bytes=10_000_000)
    assert "at most 200,000 characters" in await told(client)
    assert beside(model) == []


async def test_what_a_server_asks_the_model_fits_the_budgets_or_is_refused(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp
) -> None:
    budget = "[budgets.person.daily]\ntokens = 30_000\n"
    client = await start(allowed(hostile.command(), budget))
    talk.calls("peer__sample_much", times=1, bytes=150_000)
    said = await told(client)
    assert "the day's budget has no room for this" in said
    assert "30,000" not in said, "a server learns nothing of the person's budget"
    assert beside(model) == []


async def test_a_model_that_fails_costs_the_server_its_words_and_no_turn(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp
) -> None:
    client = await start(allowed(hostile.command()))
    talk.words = script.status(400, message=f"you are wrong, {CANARY}")
    talk.calls("peer__sample", prompt="?")
    said = await told(client)
    assert "the model gave no answer" in said
    assert CANARY not in said


@pytest.mark.parametrize("how", ["the person stops", "the server does not wait"])
async def test_the_model_is_left_alone_once_the_call_is_over(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp, how: str
) -> None:
    client = await start(allowed(hostile.command()))
    talk.words = script.hang("after_headers", script.say("never"))
    leaves = how == "the server does not wait"
    talk.calls("peer__sample_and_leave" if leaves else "peer__sample", prompt="?")
    accepted = await client.say("a", "go")
    if not leaves:
        await until(client, lambda: len(beside(model)) == 1)
        await client.say("a", "/stop")
    settled = await client.settled(accepted["turn"])
    assert settled["outcome"] == ("done" if leaves else "stopped")
    await until(client, lambda: model.in_flight == 0)


async def until(client: Client, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await client.gateway.pause(POLL_S)


async def test_a_kill_while_a_server_asks_the_model_leaves_the_call_unknown(
    start: Start, talk: Talk, model: ModelServer, hostile: HostileMcp, tmp_path: Path
) -> None:
    mischief = Mischief(calls=tmp_path / "calls")
    client = await start(allowed(hostile.command(mischief)))
    talk.words = script.hang("after_headers", script.say("never"))
    talk.calls("peer__sample", prompt="?")
    accepted = await client.say("a", "go")
    await until(client, lambda: len(beside(model)) == 1)
    await client.gateway.kill()
    await client.gateway.start()
    assert (await client.settled(accepted["turn"]))["outcome"] == "done"
    _, body = await client.call("GET", "/api/effects")
    assert [each["tool"] for each in body["effects"]] == ["peer__sample"]
    assert len(beside(model)) == 1, "nobody pays twice"
