"""Checks the settings of single places on real gateways with a bot on Telegram, Discord and Slack,
as people there meet them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from simcord.backend.models import Channel

from perdure.app.wiring.system import SystemClock
from perdure.testkit.models.model_script import Reply, ScriptedRequest, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.discord.simcord_server import TOKEN, SimcordServer
from perdure.testkit.peers.slack import scripted_slack as slack_peer
from perdure.testkit.peers.slack.scripted_slack import ScriptedSlack
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
Factory = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
DEADLINE_S = 30.0
CLUB = -100500
ADA = {"id": 42, "is_bot": False, "first_name": "Ada"}
BOB = {"id": 43, "is_bot": False, "first_name": "Bob"}
MENTION = {"type": "mention", "offset": 0, "length": 12}
NAME = "@perdure_bot"


class Model:
    """Plays a model that says how often it was asked."""

    def __init__(self) -> None:
        self.server = ModelServer(self._reply)
        self.asked: list[ScriptedRequest] = []

    def _reply(self, request: ScriptedRequest) -> Reply:
        self.asked.append(request)
        return say(f"answer {len(self.asked)}")

    def told(self, number: int = -1) -> str:
        return json.dumps(self.asked[number].messages, ensure_ascii=False)


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    found = Model()
    async with found.server:
        yield found


def agents(model: Model, *names: str) -> str:
    return "[sessions]\ntitles = false\n" + "".join(
        f"[agents.{name}]\nkind = 'chat'\nbase_url = '{model.server.openai_url}'\nmodel = 'm'\n"
        f"instructions = 'You are {name}.'\n"
        for name in names
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_place_has_its_agent_persona_words_and_topics(
    model: Model, gateway_factory: Factory
) -> None:
    async with BotApi(CLOCK) as api:
        toml = (
            agents(model, "main", "helper") + "[personas.pirate]\ninstructions = 'Talk like one.'\n"
            f"[adapters.telegram]\ntoken = '{api.token}'\napi_url = '{api.url}'\nallow = ['*']\n"
            f"overhear = false\ncollect_ms = 0\n"
            f"[[adapters.telegram.places]]\nplace = '{CLUB}'\nagent = 'helper'\n"
            "persona = 'pirate'\nwake = ['captain']\nignore_topics = ['7']\n"
        )
        await gateway_factory(toml=toml)

        def write(text: str, **fields: object) -> None:
            marks = {"entities": [MENTION]} if text.startswith(NAME) else {}
            api.write(CLUB, text, **{"from": ADA, **marks, **fields})

        write("captains are many")
        write(f"{NAME} in a topic", message_thread_id=7, is_topic_message=True)
        write("what now, Captain?")
        await api.wait_shown(CLUB, bool)
        api.write(42, "hello")
        await api.wait_shown(42, bool)
    assert ["what now, Captain?" in model.told(0), "hello" in model.told(1)] == [True, True]
    assert "You are helper." in model.told(0)
    assert "Talk like one." in model.told(0)
    assert "You are main." in model.told(1)
    assert "Talk like one." not in model.told(1)
    assert len(model.asked) == 2


async def test_on_discord_each_question_has_a_thread_that_needs_no_mention(
    model: Model, gateway_factory: Factory
) -> None:
    async with SimcordServer() as server:
        room = server.general
        toml = (
            agents(model, "main") + f"[adapters.discord]\ntoken = '{TOKEN}'\n"
            f"api_url = '{server.api_url}'\nallow = ['*']\ncollect_ms = 0\n"
            f"[[adapters.discord.places]]\nplace = '{room.id}'\nthread = true\n"
        )

        def shown(channel: Channel) -> list[str]:
            return [each.text for each in server.shown(channel) if each.author == server.bot]

        def thread_of(message: str) -> Channel:
            return server.world.channels[int(message)]

        def answers(message: str, text: str) -> Callable[[], bool]:
            channels = server.world.channels
            return lambda: int(message) in channels and text in shown(thread_of(message))

        gateway = await gateway_factory(toml=toml)
        await until(lambda: server.gateway.connected == 1 and bool(server.world.commands))
        server.write(server.bob, room, "lunch at noon?")
        first = server.write(server.alice, room, f"<@{server.bot}> when do we **eat**?")
        await until(answers(first, "answer 1"))
        assert thread_of(first).name == "when do we **eat**?"
        assert "lunch at noon?" in model.told(), "it was said in the channel before"
        await gateway.kill()
        await gateway.start()
        await until(lambda: server.gateway.connected == 1)
        server.write(server.alice, thread_of(first), "are you sure?")
        await until(answers(first, "answer 2"))
        assert "when do we" in model.told()
        second = server.write(server.alice, room, f"<@{server.bot}> and the tide?")
        await until(answers(second, "answer 3"))
        assert "when do we" not in model.told(), "another question is another conversation"
        assert not any("answer" in text for text in shown(room))


async def test_on_discord_a_channel_without_threads_gets_the_answer_itself(
    model: Model, gateway_factory: Factory
) -> None:
    async with SimcordServer() as server:
        room = server.general
        server.fail("POST", "*/threads", 403, code=50013, times=9)
        toml = (
            agents(model, "main") + f"[adapters.discord]\ntoken = '{TOKEN}'\n"
            f"api_url = '{server.api_url}'\nallow = ['*']\ncollect_ms = 0\n"
            f"[[adapters.discord.places]]\nplace = '{room.id}'\nthread = true\n"
        )
        await gateway_factory(toml=toml)
        await until(lambda: server.gateway.connected == 1 and bool(server.world.commands))
        server.write(server.alice, room, f"<@{server.bot}> may you?")
        await until(
            lambda: [s.text for s in server.shown(room) if s.author == server.bot] == ["answer 1"]
        )


async def test_on_slack_a_place_may_do_without_threads(
    model: Model, gateway_factory: Factory
) -> None:
    async with ScriptedSlack(CLOCK) as slack:
        toml = (
            agents(model, "main") + f"[adapters.slack]\ntoken = '{slack_peer.BOT_TOKEN}'\n"
            f"app_token = '{slack_peer.APP_TOKEN}'\napi_url = '{slack.api_url}'\nallow = ['*']\n"
            f"collect_ms = 0\n[[adapters.slack.places]]\nplace = '{slack_peer.CHANNEL}'\n"
            "thread = false\nmention = false\ninstructions = 'You look after the club.'\n"
        )
        await gateway_factory(toml=toml)
        await slack.wait(lambda: bool(slack.connections))
        await slack.write(slack_peer.CHANNEL, "what is the tide?", user=slack_peer.ALICE)
        (shown,) = await slack.wait_shown(slack_peer.CHANNEL, bool)
    assert shown.thread == ""
    assert "You look after the club." in model.told()
