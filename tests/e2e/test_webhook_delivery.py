"""Checks webhooks whose answers go into a chat, end to end: a service posts to a real gateway, and
people of a chat on Telegram read the answer and ask about it."""

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.models.model_script import Reply, ScriptedRequest, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
Factory = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
ADA, CLUB = 42, -100500
SECRET = "a secret that GitHub has"
MENTION = {"type": "mention", "offset": 0, "length": 12}


class Model:
    """Plays a model that is silent about noise, and else says how often it was asked."""

    def __init__(self) -> None:
        self.server = ModelServer(self._reply)
        self.asked: list[ScriptedRequest] = []

    def _reply(self, request: ScriptedRequest) -> Reply:
        self.asked.append(request)
        words = json.dumps(request.messages[-1])
        return say("[SILENT]" if "noise" in words else f"answer {len(self.asked)}")


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    found = Model()
    async with found.server:
        yield found


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


def toml(api: BotApi, model: Model, to: str) -> str:
    return f"""
[agents.main]
kind = "chat"
base_url = "{model.server.openai_url}"
model = "m"
[sessions]
titles = false
[adapters.telegram]
token = "{api.token}"
api_url = "{api.url}"
allow = ["{ADA}"]
collect_ms = 0
[adapters.webhook.routes.issues]
preset = "github"
secrets = ["{SECRET}"]
events = ["issues.opened"]
prompt = "A new issue: {{json.issue.title}}."
deliver_to = "telegram:{to}"
"""


async def post(gateway: GatewayProcess, title: str, *, action: str = "opened") -> int:
    """Post what GitHub posts when somebody opens an issue."""
    body = json.dumps({"action": action, "issue": {"title": title}}).encode()
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "issues"}
    url = f"{gateway.url}/hooks/webhook/issues"
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, data=body, headers=headers) as response,
    ):
        return response.status


async def has_shown(api: BotApi, chat: int, text: str) -> None:
    await api.wait_shown(chat, lambda shown: any(text in each.text for each in shown))


async def test_the_answer_goes_into_the_chosen_conversation_which_knows_it_afterwards(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model, str(ADA)))
    api.write(ADA, "my own secret")
    await has_shown(api, ADA, "answer 1")
    assert await post(gateway, "The tap drips") == 202
    await has_shown(api, ADA, "answer 2")
    assert "my own secret" not in json.dumps(model.asked[1].messages), "it is another conversation"
    api.write(ADA, "which issue?")
    await has_shown(api, ADA, "answer 3")
    told = json.dumps(model.asked[2].messages)
    assert "answer 2" in told
    assert "The tap drips" not in told, "what strangers wrote stays where it came in"


async def test_other_events_repeats_and_silence_say_nothing_there(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model, str(ADA)))
    assert await post(gateway, "The tap drips", action="closed") == 200
    assert await post(gateway, "noise") == 202
    for _ in range(2):
        assert await post(gateway, "The roof leaks") == 202
    await has_shown(api, ADA, "answer 2")
    api.write(ADA, "hello")
    await has_shown(api, ADA, "answer 3")
    assert [each.text for each in await api.shown(ADA)] == ["answer 2", "answer 3"]


async def test_a_group_where_nobody_has_spoken_gets_it_once_also_after_a_kill(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model, str(CLUB)))
    await api.wait(lambda: bool(api.made("getUpdates")))
    assert await post(gateway, "The tap drips") == 202
    await gateway.kill()
    await gateway.start()
    await api.wait_shown(CLUB, lambda shown: any("answer" in each.text for each in shown))
    (shown,) = await api.shown(CLUB)
    name = "@perdure_bot"
    sender = {"id": ADA, "is_bot": False, "first_name": "Ada"}
    api.write(CLUB, f"{name} what was that?", **{"from": sender, "entities": [MENTION]})
    await api.wait_shown(CLUB, lambda seen: len(seen) == 2)
    assert shown.text in json.dumps(model.asked[-1].messages)
