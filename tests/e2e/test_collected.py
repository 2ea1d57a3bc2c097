"""Checks what people meet who send several messages quickly, end to end: a real gateway with its
default settings, a bot on Telegram, and a model server that writes down what it is asked."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.contract.adapter_suite_showing import PICTURE
from perdure.testkit.models.model_script import Reply, ScriptedRequest, say
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
Factory = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
ADA: Final = 42
# Telegram's apps cut a longer text into messages of this many characters.
PIECE: Final = 4_096


class Model:
    def __init__(self) -> None:
        self.server = ModelServer(self._reply)
        self.asked: list[ScriptedRequest] = []

    def _reply(self, request: ScriptedRequest) -> Reply:
        self.asked.append(request)
        return say(f"answer {len(self.asked)}")


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
        f"[adapters.telegram]\ntoken = '{api.token}'\napi_url = '{api.url}'\nallow = ['{ADA}']\n"
        f"{more}"
    )


async def answered(api: BotApi, text: str) -> None:
    await api.wait_shown(ADA, lambda shown: any(text in each.text for each in shown))


def pieces() -> list[str]:
    """Return a long text as Telegram's apps send it."""
    text = "".join(f"word {number} " for number in range(1_200))
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


async def test_a_long_text_that_the_app_cuts_is_answered_once(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    await gateway_factory(toml=toml(api, model))
    for piece in pieces():
        api.write(ADA, piece)
    await api.wait(lambda: bool(api.chats.actions))
    assert (api.chats.actions[0], model.asked) == ((ADA, "typing"), []), "the wait is not silent"
    await answered(api, "answer 1")
    assert len(model.asked) == 1
    told = json.dumps(model.asked[0].messages)
    assert len(pieces()) > 2
    assert [told.count(piece.strip()) for piece in pieces()] == [1] * len(pieces())
    api.write(ADA, "and now?")
    await answered(api, "answer 2")


async def test_photos_one_by_one_and_an_album_are_answered_once_each(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    await gateway_factory(toml=toml(api, model))

    def photo(name: str, album: str = "") -> None:
        about = {"file_id": api.chats.add_file(PICTURE, name=name), "file_unique_id": name}
        shown = [{**about, "width": 1, "height": 1}]
        api.write(ADA, photo=shown, **({"media_group_id": album} if album else {}))

    for name in ("a.png", "b.png", "c.png"):
        photo(name)
    await answered(api, "answer 1")
    for name in ("d.png", "e.png"):
        photo(name, "trip")
    await answered(api, "answer 2")
    assert len(model.asked) == 2


async def test_a_kill_while_more_is_waited_for_loses_and_repeats_nothing(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    gateway = await gateway_factory(toml=toml(api, model, "collect_ms = 5000\nbusy = 'queue'\n"))
    api.write(ADA, "the first half")
    await api.wait(lambda: not api.updates)
    await gateway.kill()
    assert model.asked == [], "it was stored and acknowledged, and more was waited for"
    await gateway.start()
    api.write(ADA, "the second half")

    def whole() -> bool:
        return bool(model.asked) and "the second half" in json.dumps(model.asked[-1].messages)

    await api.wait(whole)
    told = json.dumps(model.asked[-1].messages)
    assert [told.count(f"the {half} half") for half in ("first", "second")] == [1, 1]
    await answered(api, f"answer {len(model.asked)}")
    assert len(await api.shown(ADA)) == len(model.asked), "once, or one after the other"


async def test_a_command_waits_for_nothing(
    api: BotApi, model: Model, gateway_factory: Factory
) -> None:
    await gateway_factory(toml=toml(api, model, "collect_ms = 5000\n"))
    api.write(ADA, "never mind")
    api.write(ADA, "/stop")
    await answered(api, "Stopped.")
    assert model.asked == []
