"""Checks what a model is told about where it is, end to end: a real gateway whose day changes, with
a bot on Telegram, and a model server that writes down what it is asked."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.models.model_script import TIME_LINE, Reply, ScriptedRequest, echo, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess
from perdure.testkit.processes.wall_clock import WallClock

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
ADA, NAME = 42, "Ada"
WHERE = "Where this conversation takes place"


class Model:
    """Plays a model that repeats what it is told and gives every conversation the same title."""

    def __init__(self) -> None:
        self.server = ModelServer(self._reply)
        self.asked: list[ScriptedRequest] = []

    def _reply(self, request: ScriptedRequest) -> Reply:
        self.asked.append(request)
        return say("A chat") if is_errand(request) else echo(request)

    @property
    def answers(self) -> list[ScriptedRequest]:
        return [request for request in self.asked if not is_errand(request)]


def is_errand(request: ScriptedRequest) -> bool:
    return "title" in request.messages[-1]["content"].rpartition("\n\n")[2].lower()


def told(request: ScriptedRequest) -> str:
    """Return everything that a request says, as one text."""
    return json.dumps(request.messages)


def system(request: ScriptedRequest) -> str:
    return "".join(each["content"] for each in request.messages if each["role"] == "system")


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    found = Model()
    async with found.server:
        yield found


def toml(model: Model, api: BotApi) -> str:
    def agent(name: str) -> str:
        return (
            f'[agents.{name}]\nkind = "chat"\nbase_url = "{model.server.openai_url}"\n'
            'model = "scripted"\ninstructions = "Be brief."\n'
        )

    return (
        f"{agent('main')}{agent('silent')}context = false\n"
        f'[adapters.telegram]\ntoken = "{api.token}"\napi_url = "{api.url}"\nallow = ["{ADA}"]\n'
        "collect_ms = 0\n"
    )


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(SystemClock()) as server:
        yield server


async def test_a_model_knows_where_it_is_and_a_new_day_changes_no_byte(
    gateway_factory: Factory, wall_clock: WallClock, model: Model, api: BotApi
) -> None:
    environ: dict[str, Any] = {**wall_clock.environ, "TZ": "Europe/Berlin"}
    async with aiohttp.ClientSession() as session:
        client = Client(await gateway_factory(toml=toml(model, api), environ=environ), session)
        api.write(ADA, "hello")
        await api.wait_shown(ADA, lambda shown: len(shown) == 1)
        where = system(model.answers.pop())
        assert where.startswith("Be brief.")
        assert WHERE in where
        assert "platform: Telegram" in where
        assert f"place: private chat with {NAME}" in where
        assert "time zone: Europe/Berlin" in where
        await asked_over_http(client, model)

        del model.asked[:]
        await ask(client, "good evening")
        wall_clock.set("+1d")
        await ask(client, "good morning")
        # A kept window and one that is made again from the journal have the same bytes.
        await client.gateway.kill()
        await client.gateway.start()
        turn = await ask(client, "still there?")
        first, second, third = model.answers
        bodies = [json.dumps(each.messages) for each in (first, second, third)]
        assert bodies[1].startswith(bodies[0][:-1])
        assert bodies[2].startswith(bodies[1][:-1])
        said = [each["content"] for each in third.messages if each["role"] == "user"]
        times = [bool(TIME_LINE.match(each)) for each in said]
        assert times[:2] == [True, True]
        assert said[0][:30] != said[1][:30]
        await asked_again(client, model, turn)
        # The kill may have cut the errand, which is then asked again.
        errands = [each for each in model.asked if is_errand(each) and "evening" in told(each)]
        assert errands
        assert not any(WHERE in told(each) for each in errands)
        words = [each["content"] for errand in errands for each in errand.messages]
        assert not any(map(TIME_LINE.search, words))


async def ask(client: Client, text: str) -> str:
    turn = str((await client.say("home", text))["turn"])
    assert (await client.settled(turn))["outcome"] == "done"
    return turn


async def asked_again(client: Client, model: Model, turn: str) -> None:
    """Check that a request is made again as it was, from what is stored."""
    _, explained = await client.call("GET", f"/api/explain/{turn}?request=true")
    asked = explained["request"]
    assert not asked.get("missing")
    assert asked["instructions"] == system(model.answers[-1])
    encoded = json.dumps(asked["encoded"], separators=(",", ":"), ensure_ascii=False).encode()
    assert any(encoded[1:] in received.raw for received in model.server.requests)


async def asked_over_http(client: Client, model: Model) -> None:
    """Check the calls of programs: only those in a conversation are somewhere."""
    before = len(model.answers)
    for name, agent in [("", "main"), ("kept", "main"), ("silent", "silent")]:
        body = {"model": agent, "messages": [{"role": "user", "content": f"hello {name}"}]}
        where: dict[str, Any] = {"X-Perdure-Conversation": name} if name else {}
        answered = await client.call("POST", "/v1/chat/completions", body=body, **where)
        assert answered[0] == 200, answered
    alone, kept, silent = model.answers[before:]
    assert TIME_LINE.search(alone.messages[-1]["content"]) is None
    assert WHERE not in told(alone)
    assert WHERE in system(kept)
    assert "web chat or HTTP API" in system(kept)
    assert TIME_LINE.match(kept.messages[-1]["content"])
    assert WHERE not in told(silent)
    assert TIME_LINE.search(silent.messages[-1]["content"]) is None
