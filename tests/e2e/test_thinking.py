"""Checks agents whose models want their thoughts back, end to end: a real gateway, and a model
server that refuses a request without them."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.testkit.models.model_script import (
    Reply,
    ScriptedRequest,
    call_tools,
    hang,
    say,
    status,
)
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.models.thoughtful import ThoughtfulModel, thoughts_in
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
WORD = "mulling"
LOOK = ("call_1", "memory", '{"action": "list"}')
WIRES = {
    "openai": ("openai", "reasoning_content"),
    "vllm": ("openai", "reasoning"),
    "router": ("openai", "reasoning_details"),
    "anthropic": ("anthropic", ""),
}


class Thinking:
    """Plays a model that calls a tool `calls` times in each turn, and then answers. Each reply is
    passed through `wrap`, which a test may change."""

    def __init__(self, field: str) -> None:
        self.calls = 2
        self.wrap: Callable[[ScriptedRequest, Reply], Reply] = lambda _, reply: reply
        self.model = ThoughtfulModel(self._answer, field=field, word=WORD)
        self.server = ModelServer(self._reply)
        self.client: Client

    def _answer(self, request: ScriptedRequest) -> Reply:
        if request.model == "other":
            return say("the other answers")
        made = sum(1 for each in request.messages if is_call(each))
        if made % self.calls or is_from_person(request.messages[-1]):
            return call_tools([LOOK, ("call_2", *LOOK[1:])], text="Let me look. ", fragments=2)
        return say("That is all.")

    def _reply(self, request: ScriptedRequest) -> Reply:
        return self.wrap(request, self.model(request))

    @property
    def asked(self) -> list[dict[str, Any]]:
        return [received.body for received in self.server.requests if received.body]

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(15):
            await self.server.wait_for_requests(count)

    async def done(self, turn: str) -> None:
        ended = await self.client.settled(turn)
        assert (ended["outcome"], self.model.refusals) == ("done", [])


def is_call(message: dict[str, Any]) -> bool:
    blocks = message["content"] if isinstance(message.get("content"), list) else ()
    return bool(message.get("tool_calls")) or any(b["type"] == "tool_use" for b in blocks)


def is_from_person(message: dict[str, Any]) -> bool:
    blocks = message["content"] if isinstance(message["content"], list) else ()
    return message["role"] == "user" and all(b["type"] != "tool_result" for b in blocks)


def thinking_messages(body: dict[str, Any]) -> int:
    """Return how many messages of a request hold thoughts."""
    return sum(1 for message in body["messages"] if thoughts_in(message))


@pytest.fixture(params=WIRES)
async def scene(
    request: pytest.FixtureRequest, gateway_factory: Factory
) -> AsyncIterator[Callable[..., Awaitable[Thinking]]]:
    api, field = WIRES[request.param]
    made = Thinking(field)
    async with made.server, aiohttp.ClientSession() as session:

        async def begin(rest: str = "", *, main: str = "") -> Thinking:
            url = made.server.openai_url
            toml = (
                f'[agents.main]\nkind = "chat"\napi = "{api}"\nbase_url = "{url}"\n'
                f'model = "scripted"\ntools = ["memory"]\nreasoning = "medium"\n{main}\n'
                f"[sessions]\ntitles = false\n{rest}"
            )
            toml = toml.replace("URL", url)
            made.client = Client(await gateway_factory(toml=toml), session)
            return made

        yield begin
        assert made.server.violations == []


async def test_a_model_gets_its_thoughts_back_within_the_turn_only(scene: Any) -> None:
    here = await scene()
    said = await here.client.say("main", "first")
    await here.done(said["turn"])

    # Each request has the thoughts of all calls before it, and the next turn has none of them.
    assert [thinking_messages(body) for body in here.asked] == [0, 1, 2]
    again = await here.client.say("main", "second")
    await here.done(again["turn"])
    assert [thinking_messages(body) for body in here.asked] == [0, 1, 2, 0, 1, 2]
    assert WORD not in json.dumps(here.asked[3]["messages"])

    # What was left out is a break of the prefix, and the turn says so.
    _, session = await here.client.call("GET", f"/api/sessions/{said['session']}/journal")
    settled = [each["body"] for each in session["events"] if each["kind"] == "turn_settled"]
    assert [each.get("prefix_break", "") for each in settled] == ["", "thoughts"]


async def test_thoughts_are_shown_to_nobody(scene: Any) -> None:
    here = await scene()
    said = await here.client.say("main", "first")
    await here.done(said["turn"])
    client = here.client

    shown = [await client.transcript("main")]
    start = "000001-0000000000-99-000000000"
    async with client.events("main", start) as events:
        async for _, kind, data in events:
            shown.append(data)
            if kind == "outcome":
                break
    shown.append((await client.call("GET", f"/api/search?q={WORD}"))[1])
    shown.append((await client.call("GET", f"/api/sessions/{said['session']}/transcript"))[1])
    shown.append((await client.say("main", "/why"))["reply"])
    assert WORD not in json.dumps(shown).replace(f"q={WORD}", "")
    assert "That is all." in json.dumps(shown)

    # An operator finds them in the raw journal, and they are in no other table.
    _, journal = await client.call("GET", f"/api/sessions/{said['session']}/journal")
    assert WORD in json.dumps(journal)
    await client.gateway.terminate()
    assert tables_with(client.gateway, WORD) == {"journal"}


def tables_with(gateway: GatewayProcess, word: str) -> set[str]:
    """Return the tables of a gateway's store in which a word stands."""
    found = set()
    with sqlite3.connect(gateway.home / "perdure.db") as store:
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
        for (name,) in store.execute(tables).fetchall():
            rows = store.execute(f'SELECT * FROM "{name}"').fetchall()
            if word in repr(rows):
                found.add(name)
    store.close()
    return found


async def test_thoughts_outlive_a_kill_between_a_result_and_the_next_call(scene: Any) -> None:
    here = await scene()
    here.wrap = lambda request, reply: hang(inner=reply) if request.number == 2 else reply
    said = await here.client.say("main", "first")
    await here.until_asked(2)
    await here.client.gateway.kill()
    await here.client.gateway.start()
    await here.done(said["turn"])

    # The third request carries a note about the interruption behind the results.
    assert [thinking_messages(body) for body in here.asked] == [0, 1, 1, 2]
    assert "interrupted" in json.dumps(here.asked[2]["messages"][-1])


async def test_a_repeated_turn_begins_without_thoughts(scene: Any) -> None:
    here = await scene()
    said = await here.client.say("main", "first")
    await here.done(said["turn"])
    again = await here.client.say("main", "/retry")
    await here.done(again["turn"])

    assert [thinking_messages(body) for body in here.asked] == [0, 1, 2, 0, 1, 2]


async def test_a_message_in_between_leaves_the_thoughts_where_they_are(scene: Any) -> None:
    here = await scene('[server]\nbusy = "steer"\n')
    here.wrap = lambda request, reply: hang(inner=reply) if request.number < 3 else reply
    said = await here.client.say("main", "first")
    for number in (1, 2):
        await here.until_asked(number)
        await here.client.say("main", f"also this {number}")
        here.server.release()
    await here.done(said["turn"])

    assert "also this 1" in json.dumps(here.asked[1]["messages"])
    assert [thinking_messages(body) for body in here.asked[:3]] == [0, 1, 2]


async def test_another_model_gets_none_of_these_thoughts(scene: Any) -> None:
    others = (
        '[agents.second]\nkind = "chat"\nbase_url = "URL"\nmodel = "broken"\n'
        '[agents.third]\nkind = "chat"\napi = "anthropic"\nbase_url = "URL"\n'
        'model = "other"\nreasoning = "low"\n'
    )
    here = await scene(others, main='fallbacks = ["second", "third"]\npatience_s = 0')

    def wrap(request: ScriptedRequest, reply: Reply) -> Reply:
        if request.number == 2:
            return hang(inner=reply)
        return reply if request.number == 1 or request.model == "other" else status(503)

    here.wrap = wrap
    # The strict rules of the wires are kept; that the thoughts are missing is what is wanted here.
    here.model._problem = lambda request: ""
    said = await here.client.say("main", "first")
    await here.until_asked(2)
    await here.client.gateway.kill()
    await here.client.gateway.start()
    await here.done(said["turn"])

    asked = {body["model"]: body for body in here.asked[2:]}
    assert list(asked) == ["scripted", "broken", "other"]
    assert [thinking_messages(body) for body in asked.values()] == [1, 0, 0]
    assert (await here.client.transcript("main"))[-1]["text"] == "the other answers"


async def test_what_think_chooses_outlives_a_restart_and_reaches_the_model(scene: Any) -> None:
    here = await scene()
    is_openai = 'api = "openai"' in (here.client.gateway.home / "perdure.toml").read_text()
    assert "medium, as configured" in (await here.client.say("main", "/status"))["reply"]
    assert "high" in (await here.client.say("main", "/think high"))["reply"]
    await here.client.gateway.kill()
    await here.client.gateway.start()
    for text in ("first", "/think off", "second", "/think default", "third"):
        said = await here.client.say("main", text)
        if said["turn"]:
            await here.done(said["turn"])

    if is_openai:
        efforts = [body["reasoning_effort"] for body in here.asked]
        assert efforts == [*["high"] * 3, *["none"] * 3, *["medium"] * 3]
    else:
        budgets = [body["thinking"].get("budget_tokens", 0) for body in here.asked]
        # Without a budget this server's thoughts come all the same, and bind the turn.
        assert (budgets[:4], budgets[-1]) == ([16_384] * 3 + [0], 8_192)
