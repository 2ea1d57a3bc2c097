"""Checks an answer that reaches the model's length limit and is continued."""

from collections.abc import Awaitable, Callable

import aiohttp

from perdure.testkit.models.model_script import Reply, ScriptedRequest, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

Factory = Callable[..., Awaitable[GatewayProcess]]
PIECES = ("The first third, ", "the second third, ", "and the end.")


def thirds(request: ScriptedRequest) -> Reply:
    """Say the next piece of the answer, and stop at the limit after all but the last."""
    said = sum(1 for message in request.messages if message["role"] == "assistant")
    return say(PIECES[said], finish="length" if said < 2 else "stop")


async def test_an_answer_that_is_continued_twice_is_one_message(gateway_factory: Factory) -> None:
    async with ModelServer(thirds) as model, aiohttp.ClientSession() as session:
        gateway = await gateway_factory(
            toml=f'[agents.main]\nkind = "chat"\nbase_url = "{model.openai_url}"\nmodel = "m"\n'
            "[sessions]\ntitles = false\n"
        )
        client = Client(gateway, session)
        turns = []
        for text in ("tell me all", "/continue", "/continue"):
            turns.append((await client.say("main", text))["turn"])
            await client.settled(turns[-1])
        messages = await client.transcript("main")

    assert [(each["role"], each["text"]) for each in messages] == [
        ("user", "tell me all"),
        ("assistant", "".join(PIECES)),
    ]
    assert messages[-1]["turn"] == turns[-1]
    assert messages[-1]["outcome"] == "done"
    assert model.violations == []
