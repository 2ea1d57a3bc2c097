"""Checks what people of a group meet, end to end: a real gateway with a bot on Telegram, and a
model server that writes down what it is asked."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.contract.adapter_suite_showing import PICTURE
from perdure.testkit.models.model_script import Reply, ScriptedRequest, say, slow
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
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
        words = json.dumps(request.messages[-1])
        answer = say("[SILENT]" if "idle talk" in words else f"answer {len(self.asked)}")
        return slow(2_000, answer) if "slowly" in words else answer

    def told(self) -> str:
        """Return everything that the last request says."""
        return json.dumps(self.asked[-1].messages, ensure_ascii=False)


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    found = Model()
    async with found.server:
        yield found


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


def toml(api: BotApi, model: Model, more: str = "") -> str:
    return (
        f"[agents.main]\nkind = 'chat'\nbase_url = '{model.server.openai_url}'\nmodel = 'm'\n"
        "[sessions]\ntitles = false\n"
        f"[adapters.telegram]\ntoken = '{api.token}'\napi_url = '{api.url}'\nallow = ['*']\n"
        f"busy = 'queue'\ncollect_ms = 0\n{more}"
    )


def say_in(api: BotApi, text: str, *, sender: dict[str, object] = ADA, **fields: object) -> int:
    """Let somebody write in the club."""
    marks = {"entities": [MENTION]} if text.startswith(NAME) else {}
    return api.write(-100500, text, **{"from": sender, **marks, **fields})


async def test_what_a_group_said_is_told_with_the_next_mention_also_after_a_kill(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model))
    say_in(api, "lunch at noon?", sender=BOB)
    say_in(api, "better at one")
    api.write(42, "hello")
    await api.wait_shown(42, lambda shown: any("answer 1" in each.text for each in shown))
    assert "lunch" not in model.told()
    await gateway.kill()
    await gateway.start()
    say_in(api, f"{NAME} when do we eat?")
    await api.wait_shown(-100500, lambda shown: any("answer 2" in each.text for each in shown))
    words = model.told()
    assert "[Bob (43)]\\n> lunch at noon?\\n[Ada (42)]\\n> better at one" in words
    assert words.index("better at one") < words.index("when do we eat?")
    say_in(api, f"{NAME} sure?")
    await api.wait_shown(-100500, lambda shown: any("answer 3" in each.text for each in shown))
    assert model.told().count("lunch at noon?") == 1


async def test_where_it_reads_along_the_bot_may_be_silent_and_leaves_other_bots_alone(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    place = (
        '[[adapters.telegram.places]]\nplace = "-100500"\nmention = false\n'
        'instructions = "You look after the club."\n'
    )
    await gateway_factory(toml=toml(api, model, place))
    say_in(api, "idle talk")
    other = {"type": "mention", "offset": 0, "length": 10}
    api.write(-100500, "@other_bot hello", **{"from": BOB, "entities": [other]})
    say_in(api, "what is the tide?", sender=BOB)
    shown = await api.wait_shown(-100500, lambda seen: any("answer 2" in m.text for m in seen))
    assert [each.text for each in shown] == ["answer 2"]
    assert "You look after the club." in model.told()
    assert len(model.asked) == 2, "what is for another bot is left to it"


OLD, NEW = -555, -1005550
PLACE = (
    f'[[adapters.telegram.places]]\nplace = "{OLD}"\ninstructions = "You look after the club."\n'
)


async def post(gateway: GatewayProcess, path: str, body: object) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http:
        status, answer = await Client(gateway, http).call("POST", path, body=body)
    assert status in (200, 201, 202), answer
    found: dict[str, Any] = answer
    return found


def ask_in(api: BotApi, chat: int, text: str) -> None:
    api.write(chat, f"{NAME} {text}", **{"from": ADA, "entities": [MENTION]})


async def has_shown(api: BotApi, chat: int, text: str) -> None:
    await api.wait_shown(chat, lambda shown: any(text in each.text for each in shown))


async def test_a_group_that_becomes_a_supergroup_takes_everything_along(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model, f"operators = ['42']\n{PLACE}"))
    ask_in(api, OLD, "the key is blue")
    await has_shown(api, OLD, "answer 1")
    ask_in(api, OLD, "/home")
    await has_shown(api, OLD, "home conversation")
    job = {"conversation": f"telegram:{OLD}", "prompt": "say tea", "every_s": 3_600}
    ordered = await post(gateway, "/api/jobs", job)
    api.write(OLD, "lunch at noon?", **{"from": BOB})
    await api.wait(lambda: not api.updates)
    await gateway.kill()
    api.migrate(OLD, NEW)
    await gateway.start()
    ask_in(api, NEW, "which colour?")
    await has_shown(api, NEW, "answer 2")
    words = model.told()
    assert "the key is blue" in words
    assert words.index("lunch at noon?") < words.index("which colour?")
    assert "You look after the club." in words
    await post(gateway, f"/api/jobs/{ordered['id']}/run", {})
    await has_shown(api, NEW, "answer 3")


async def test_a_move_that_nobody_told_is_learned_from_the_refusal(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model, f"operators = ['42']\n{PLACE}"))
    ask_in(api, OLD, "the key is blue")
    await has_shown(api, OLD, "answer 1")
    api.chats.migrate(OLD, NEW, keeps_messages=True)
    await post(gateway, "/api/send", {"to": f"telegram:{OLD}", "text": "the backup is done"})
    await has_shown(api, NEW, "the backup is done")
    await gateway.kill()
    await gateway.start()
    ask_in(api, NEW, "which colour?")
    await has_shown(api, NEW, "answer 2")
    assert "the key is blue" in model.told()
    assert "You look after the club." in model.told()


@pytest.mark.parametrize("busy", ["", "busy = 'interrupt'\n"])
async def test_nobody_ends_stops_or_resets_what_is_anothers(
    api: BotApi, model: Model, gateway_factory: Factory, busy: str
) -> None:
    settings = toml(api, model).replace("busy = 'queue'\n", busy)
    await gateway_factory(toml=settings)
    say_in(api, f"{NAME} slowly, please")
    await api.wait(lambda: len(model.asked) == 1)
    for text in ("/stop", "/new"):
        api.write(-100500, text, **{"from": BOB})
    say_in(api, f"{NAME} and me?", sender=BOB)

    def is_over(shown: list[ShownMessage]) -> bool:
        return sum(each.text.startswith("answer") for each in shown) == 2

    shown = await api.wait_shown(-100500, is_over)
    answers = [each.text for each in shown if each.text.startswith("answer")]
    assert answers == ["answer 1", "answer 2"], "in order, and both whole"
    assert sum("somebody else's" in each.text for each in shown) == 2
    assert "answer 1" in model.told(), "nothing was reset"


async def test_a_bare_mention_and_a_reply_bring_what_they_are_about(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    await gateway_factory(toml=toml(api, model))
    picture = api.chats.add_file(PICTURE, name="tide.png")
    photo = [{"file_id": picture, "file_unique_id": "u", "width": 1, "height": 1}]
    club = {"id": -100500, "type": "supergroup", "title": "Club"}
    origin = {"type": "channel", "chat": {"id": -9, "type": "channel", "title": "News"}}
    said = {
        "message_id": 800, "date": 1, "chat": club, "from": BOB, "caption": "the tide is high",
        "photo": photo, "forward_origin": origin,
    }  # fmt: skip
    say_in(api, f"{NAME} is that right?", reply_to_message=said)
    await has_shown(api, -100500, "answer 1")
    assert "Bob, forwarded from News, wrote:\\n> the tide is high" in model.told()
    assert "[attached file: photo.jpg" in model.told()
    say_in(api, "what is the time?", sender=BOB)
    say_in(api, NAME)
    await has_shown(api, -100500, "answer 2")
    assert model.told().index("> what is the time?") < model.told().index("only calls you")


async def test_leaving_a_group_forgets_what_was_said_there(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    await gateway_factory(toml=toml(api, model))
    say_in(api, "lunch at noon?", sender=BOB)
    club = {"id": -100500, "type": "supergroup", "title": "Club"}
    api.push(my_chat_member={"chat": club, "new_chat_member": {"status": "kicked"}})
    say_in(api, f"{NAME} hello")
    await has_shown(api, -100500, "answer 1")
    assert "lunch" not in model.told()
