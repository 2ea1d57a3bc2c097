"""Checks the budgets of a real gateway: a person who has none left is told so before any model is
asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import openai
import pytest

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
# About a thousand tokens, as both the gateway and the scripted model count them.
QUESTION = "x" * 3_600
COUNTED = script.ScriptedUsage(prompt=1_000, completion=1)


def toml(model: ModelServer, budget: str) -> str:
    return f"""
[agents.main]
kind = "chat"
base_url = "{model.openai_url}"
model = "scripted"
max_tokens = 1
prices = {{ input = 2.0, output = 8.0 }}

[sessions]
titles = false

{budget}
"""


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(lambda request: script.say("yes", usage=COUNTED)) as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_of_a_hundred_turns_at_once_ten_run_on_a_budget_for_ten(
    gateway_factory: Factory, model: ModelServer
) -> None:
    gateway = await gateway_factory(toml=toml(model, "[budgets.person.daily]\ntokens = 10_500"))
    sdk = openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key=gateway.token, max_retries=0)

    async def ask(number: int) -> str:
        try:
            answer = await sdk.chat.completions.create(
                model="main", messages=[{"role": "user", "content": f"{QUESTION}{number}"}]
            )
        except openai.RateLimitError as error:
            return error.message
        return answer.choices[0].message.content or ""

    async with sdk:
        answers = await asyncio.gather(*(ask(number) for number in range(100)))

    assert answers.count("yes") == len(model.requests) == 10
    refused = [answer for answer in answers if answer != "yes"]
    assert all("Your daily budget has no room" in answer for answer in refused)
    assert all("renews at 00:00 UTC" in answer for answer in refused)


async def test_a_refusal_is_a_429_streamed_or_not(
    gateway_factory: Factory, model: ModelServer, http: aiohttp.ClientSession
) -> None:
    gateway = await gateway_factory(toml=toml(model, "[budgets.agent.daily]\ntokens = 10"))
    client = Client(gateway, http)
    for stream in (False, True):
        body = {"stream": stream, "messages": [{"role": "user", "content": QUESTION}]}

        status, answer = await client.call("POST", "/v1/chat/completions", body=body)

        assert status == 429
        assert answer["error"]["type"] == "budget"
        assert not answer["error"]["retryable"]
        assert "The daily budget of the agent main" in answer["error"]["message"]
    assert not model.requests


async def test_a_conversation_shows_the_refusal_and_what_was_spent(
    gateway_factory: Factory, model: ModelServer, http: aiohttp.ClientSession
) -> None:
    budget = "[budgets.conversation.daily]\nmoney = 0.003"
    client = Client(await gateway_factory(toml=toml(model, budget)), http)

    first = await client.settled((await client.say("main", QUESTION))["turn"])
    second = await client.settled((await client.say("main", QUESTION))["turn"])

    assert first["outcome"] == "done"
    assert (second["outcome"], second["reason"]) == ("refused", "budget")
    assert "The daily budget of this conversation" in second["detail"]
    told = await client.transcript("main")
    assert told[-1]["outcome"] == "refused"
    assert told[-1]["ending"] == second["ending"] == second["detail"]
    assert told[-1]["renews_at"] == second["renews_at"] > second["settled_at"]
    answer = told[1]["usage"]
    assert (answer["agent"], answer["input_tokens"], answer["cost"]) == ("main", 1_000, 2_008)
    other = await client.settled((await client.say("other", QUESTION))["turn"])
    assert other["outcome"] == "done"
    usage = (await client.say("main", "/usage"))["reply"]
    assert "This conversation today: 1 turn, 1,000 tokens in" in usage
    assert "cost 0.002008" in usage
    assert "You today: 2 turns, 2,000 tokens in" in usage
