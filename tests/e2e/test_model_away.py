"""Checks a model server that goes away and comes back, and one that limits its requests."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from perdure.testkit.models.model_script import Reply, ScriptedRequest, echo, status
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
Factory = Callable[..., Awaitable[GatewayProcess]]


def toml(url: str) -> str:
    return f'[agents.main]\nkind = "chat"\nbase_url = "{url}"\nmodel = "scripted"\n'


def a_crowd() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def ask(client: Client, text: str) -> str:
    """Return the answer to one call without a conversation."""
    body = {"model": "main", "messages": [{"role": "user", "content": text}]}
    code, answer = await client.call("POST", "/v1/chat/completions", body=body)
    assert code == 200, answer
    return str(answer["choices"][0]["message"]["content"])


async def told(client: Client, conversation: str, words: str) -> None:
    """Wait until the gateway itself says something in a conversation."""
    async with asyncio.timeout(30), client.events(conversation) as events:
        async for _, kind, news in events:
            if kind == "message" and news["role"] == "notice" and words in news["text"]:
                return


async def test_messages_that_come_while_the_model_restarts_are_all_answered(
    gateway_factory: Factory,
) -> None:
    async with ModelServer() as model:
        port, url = model.port, model.openai_url
    gateway = await gateway_factory(toml=toml(url))
    async with a_crowd() as session:
        client = Client(gateway, session)
        watched = await client.say("watched", "are you there?")
        asked = [asyncio.create_task(ask(client, f"hello {n}")) for n in range(50)]
        # The server stays away until the person has been told so.
        await told(client, "watched", "still being tried")
        async with ModelServer(port=port) as model:
            answers = await asyncio.gather(*asked)
            assert (await client.settled(watched["turn"]))["outcome"] == "done"
            assert model.violations == []
        transcript = await client.transcript("watched")
    assert sorted(answers) == sorted(f"echo: hello {n}" for n in range(50))
    assert [entry["text"] for entry in transcript] == ["are you there?", "echo: are you there?"]


class Limited:
    """Takes a number of requests in each second, and tells the others to come back later."""

    def __init__(self, per_second: int, *, retry_after: int) -> None:
        self._per_second = per_second
        self._retry_after = retry_after
        self._taken: Counter[int] = Counter()
        self.times: list[float] = []
        self.refused: list[float] = []

    def __call__(self, request: ScriptedRequest) -> Reply:
        now = time.monotonic()
        self.times.append(now)
        self._taken[int(now)] += 1
        if self._taken[int(now)] > self._per_second:
            self.refused.append(now)
            return status(429, retry_after=self._retry_after)
        return echo(request)


async def test_a_crowd_is_spread_over_what_the_server_takes(gateway_factory: Factory) -> None:
    rule = Limited(60, retry_after=1)
    async with ModelServer(rule) as model, a_crowd() as session:
        client = Client(await gateway_factory(toml=toml(model.openai_url)), session)
        answers = await asyncio.gather(*(ask(client, f"hello {n}") for n in range(120)))
    assert sorted(answers) == sorted(f"echo: hello {n}" for n in range(120))
    # In the first rush all come at once; the refused ones come back one after another. How evenly
    # is tested on a virtual clock (`unit/test_reaching.py`), because here the machine may stall. A
    # slow one sends the first rush so slowly that few are refused.
    rush_until = rule.refused[0] + 0.9
    refused = [at for at in rule.refused if at <= rush_until]
    came_back = [at for at in rule.times if at > rush_until]
    tenths = Counter(int(at * 10) for at in came_back)
    assert len(came_back) >= len(refused)
    assert max(tenths.values()) <= max(len(came_back) / 2, len(refused) / 2, 10)
