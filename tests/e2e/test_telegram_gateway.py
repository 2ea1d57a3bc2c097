"""Checks a whole gateway with a bot on Telegram: what people see there, also when it dies."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.peers.telegram.bot_api import BotApi, BotApiFault
from perdure.testkit.peers.telegram.telegram_test_api import TelegramTestApiControl
from perdure.testkit.peers.telegram.telemelya import TelemelyaControl
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Awaitable[GatewayProcess]]

CLOCK = SystemClock()
ADA = 42
STRANGER = 99
MENTION = {"type": "mention", "offset": 0, "length": 12}
SLOW = "demo words=60 delay_ms=30"
SECRET = "X-Telegram-Bot-Api-Secret-Token"


def section(url: str, token: str, more: str, allow: Iterable[int]) -> str:
    allowed = ", ".join(f'"{person}"' for person in allow)
    return (
        f'[adapters.telegram]\ntoken = "{token}"\napi_url = "{url}"\nallow = [{allowed}]\n'
        f"collect_ms = 0\n{more}\n"
    )


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


@pytest.fixture
def start(gateway_factory: Start) -> Start:
    """Return a function that starts a gateway with a bot at this server. `more` goes into its
    section, `toml` before it."""

    async def begin(
        url: str, token: str, more: str = "", *, toml: str = "", allow: int = ADA
    ) -> GatewayProcess:
        return await gateway_factory(toml=f"{toml}\n{section(url, token, more, [allow])}")

    return begin


def is_whole(words: int) -> Callable[[list[ShownMessage]], bool]:
    return lambda shown: bool(shown) and len(shown[-1].text.split()) == words


def said(word: str) -> Callable[[list[ShownMessage]], bool]:
    return lambda shown: any(word in each.text for each in shown)


PEOPLE = range(1001, 1101)
NUMBERS = count(PEOPLE[0])


@pytest.fixture
def ada() -> int:
    """Return a person who has not written yet."""
    return next(NUMBERS)


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def one_api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def one_gateway(
    one_api: BotApi, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("telegram")
    toml = section(one_api.url, one_api.token, 'busy = "queue"\ngroups = "person"', PEOPLE)
    (home / "perdure.toml").write_text(toml)
    environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
    gateway = GatewayProcess(home, environ=environ, clock=CLOCK)
    await gateway.start()
    yield gateway
    await gateway.kill()


@pytest.mark.asyncio(loop_scope="class")
class TestOneGateway:
    """Checks one gateway that many people talk to, each in a chat of their own."""

    @pytest.fixture
    def gateway(self, one_gateway: GatewayProcess) -> GatewayProcess:
        return one_gateway

    @pytest.fixture
    def api(self, one_api: BotApi) -> BotApi:
        return one_api

    async def test_an_answer_is_typed_streamed_and_sent_once(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.write(ada, SLOW)
        (answer,) = await api.wait_shown(ada, is_whole(60))
        drafts = api.chats.drafted_in(ada)
        assert len(drafts) > 1
        assert all(answer.text.startswith(draft.rstrip(" …")) for draft in drafts)
        assert (ada, "typing") in api.chats.actions
        assert ada not in api.chats.drafts

    async def test_the_same_message_again_is_the_same_turn(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        number = api.write(ada, "hello there")
        await api.wait_shown(ada, said("hello there"))
        for _ in range(3):
            api.push(message=api.chats.message(ada, number))
        await gateway.restart()
        api.push(message=api.chats.message(ada, number))
        api.write(ada, "and now?")
        await api.wait_shown(ada, said("and now?"))
        assert not api.updates
        assert len(await api.shown(ada)) == 2

    async def test_a_kill_in_the_middle_loses_nothing_and_shows_nothing_twice(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.write(ada, SLOW)
        await api.wait(lambda: bool(api.chats.drafted_in(ada)))
        await gateway.kill()
        api.write(ada, "said while it was dead")
        await gateway.start()
        shown = await api.wait_shown(ada, said("said while it was dead"))
        assert [len(each.text.split()) >= 60 for each in shown] == [True, False]
        assert not api.updates

    async def test_a_stop_ends_the_answer(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.write(ada, "demo words=600 delay_ms=40")
        await api.wait(lambda: bool(api.chats.drafted_in(ada)))
        api.press_stop(ada)
        await api.wait_shown(ada, said("topped"))
        drafted = len(api.chats.drafted_in(ada))
        api.write(ada, "next")
        await api.wait_shown(ada, said("next"))
        late = [text for text in api.chats.drafted_in(ada)[drafted:] if "next" not in text]
        assert late == []

    async def test_strangers_meet_silence(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.write(STRANGER, "let me in")
        api.write(ada, "hello")
        await api.wait_shown(ada, said("hello"))
        await api.wait(lambda: not api.updates)
        assert STRANGER not in {call.params.get("chat_id") for call in api.calls}

    async def test_a_group_is_answered_where_it_asks(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        club, person = -ada, {"from": {"id": ada, "is_bot": False, "first_name": "Ada"}}
        api.write(club, "what do you think, Bo?", **person)
        topic = {"message_thread_id": 7, "is_topic_message": True}
        asked = api.write(club, "@perdure_bot hello", entities=[MENTION], **topic, **person)
        (answer,) = await api.wait_shown(club, said("hello"))
        assert answer.thread == "7"
        assert answer.raw["reply_to_message"]["message_id"] == asked
        assert api.chats.drafted_in(club) == []

    async def test_a_bubble_grows_in_a_group(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        club, person = -ada, {"from": {"id": ada, "is_bot": False, "first_name": "Ada"}}
        text = "@perdure_bot demo words=90 delay_ms=40"
        api.write(club, text, entities=[MENTION], **person)
        (growing,) = await api.wait_shown(club, bool)
        assert len(growing.text.split()) < 90
        (answer,) = await api.wait_shown(club, is_whole(90))
        assert answer.id == growing.id

    async def test_a_long_answer_arrives_whole(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.write(ada, "demo words=1700 delay_ms=0")
        shown = await api.wait_shown(
            ada, lambda shown: sum(len(each.text.split()) for each in shown) >= 1700
        )
        assert len(shown) > 2
        assert sum(len(each.text.split()) for each in shown) == 1700

    async def test_a_file_that_the_agent_makes_is_sent(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.write(ada, "demo file report.txt high tide at noon")
        await api.wait_shown(ada, lambda shown: len(shown) == 2)
        sent = [call.uploads["document"] for call in api.calls if call.method == "sendDocument"]
        assert [(each.name, b"high tide" in each.data) for each in sent] == [("report.txt", True)]

    async def test_a_wait_is_honoured_and_the_answer_delivered(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        api.fail("sendMessage", BotApiFault(status=429, retry_after=2))
        api.write(ada, "hello")
        await api.wait_shown(ada, said("hello"))
        assert [call["chat_id"] for call in api.made("sendMessage")].count(ada) == 2
        assert api.impatient == 0

    async def test_an_edited_message_is_asked_anew(
        self, api: BotApi, gateway: GatewayProcess, ada: int
    ) -> None:
        number = api.write(ada, "helo")
        await api.wait_shown(ada, said("helo"))
        api.edit(ada, number, "hello again")
        await api.wait_shown(ada, said("hello again"))


async def test_a_question_is_answered_by_a_button(api: BotApi, start: Start) -> None:
    gateway = await start(api.url, api.token, toml='[recovery]\nresume = "ask"')
    api.write(ADA, SLOW)
    await api.wait(lambda: bool(api.chats.drafted))
    await gateway.restart()
    shown = await api.wait_shown(ADA, lambda shown: bool(shown) and "reply_markup" in shown[-1].raw)
    query = api.click(ADA, int(shown[-1].id), "continue")
    await api.wait_shown(ADA, lambda shown: any(len(each.text.split()) >= 60 for each in shown))
    await api.wait(lambda: api.chats.answered == [query])


SHELL = """
[agents.main]
kind = "demo"
tools = ["shell"]
[tools.shell]
roots = ["{work}"]
sandbox = "off"
approve = "never"
"""
HALF_WAY = "echo 'half way, see [here](https://a.example)'; while [ ! -e go ]; do sleep 0.05; done"


async def test_people_see_how_far_a_tool_is_and_nothing_of_it_stays(
    api: BotApi, start: Start, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    await start(api.url, api.token, toml=SHELL.format(work=work))
    text = f"demo tool shell {json.dumps({'action': 'run', 'argv': ['sh', '-c', HALF_WAY]})}"
    far = "shell: half way, see [here](https://a.example)"  # as words, and no link
    club, person = -ADA, {"from": {"id": ADA, "is_bot": False, "first_name": "Ada"}}

    api.write(ADA, text)
    api.write(club, f"@perdure_bot {text}", entities=[MENTION], **person)
    await api.wait(lambda: any(far in draft for draft in api.chats.drafted_in(ADA)))
    (growing,) = await api.wait_shown(club, said(far))
    assert "text_link" not in json.dumps(growing.raw)
    (work / "go").touch()

    (answer,) = await api.wait_shown(club, lambda shown: "half way, see" in shown[0].text)
    assert answer.id == growing.id
    await api.wait_shown(ADA, bool)
    for chat in (ADA, club):
        (answer,) = await api.wait_shown(chat, lambda shown: far not in shown[0].text)
        assert "exit code 0" in answer.text


async def test_two_bots_of_one_platform_are_two_surfaces(
    api: BotApi, gateway_factory: Start
) -> None:
    async with BotApi(CLOCK) as other:
        second = section(other.url, other.token, "", [ADA]).replace(
            "[adapters.telegram]", '[adapters.work]\nplatform = "telegram"'
        )
        gateway = await gateway_factory(toml=section(api.url, api.token, "", [ADA]) + second)
        api.write(ADA, "to the first")
        other.write(ADA, "to the second")
        await api.wait_shown(ADA, said("to the first"))
        await other.wait_shown(ADA, said("to the second"))
        sent = {"to": f"work:{ADA}", "text": "sent to work"}
        url, bearer = gateway.url, {"Authorization": f"Bearer {gateway.token}"}
        async with (
            aiohttp.ClientSession(headers=bearer) as http,
            http.post(f"{url}/api/send", json=sent) as response,
        ):
            assert response.status == 202, await response.text()
        await gateway.kill()
        await gateway.start()
        await other.wait_shown(ADA, said("sent to work"))
        api.write(ADA, "still here?")
        await api.wait_shown(ADA, said("still here?"))
        first, latter = await api.shown(ADA), await other.shown(ADA)
        assert len(first) == len(latter) == 2
        assert not said("second")(first)
        assert not said("first")(latter)


async def test_a_wrong_token_is_told_by_the_health(api: BotApi, start: Start) -> None:
    gateway = await start(api.url, "700:WRONG")
    await api.wait(lambda: "BotFather" in gateway.output)
    assert "WRONG" not in gateway.output
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/healthz") as response:
        assert (await response.json())["adapters"] == {"telegram": "blind"}


class Front:
    """Plays the public address of a gateway: passes on what comes, with extra headers where
    needed."""

    def __init__(self) -> None:
        self.url = ""
        self.behind = ""
        self.more: Mapping[str, str] = {}

    async def serve(self, request: web.Request) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(
                self.behind + request.path,
                data=await request.read(),
                headers={**headers, **self.more},
            ) as response,
        ):
            return web.Response(status=response.status, body=await response.read())


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    front = Front()
    app = web.Application()
    app.router.add_post("/{path:.*}", front.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    front.url = f"http://{host}:{port}"
    yield front
    await runner.cleanup()


async def test_nothing_is_lost_by_webhook_while_the_gateway_is_down(
    api: BotApi, start: Start, front: Front
) -> None:
    behind = f'[server]\nbase_url = "{front.url}"'
    gateway = await start(api.url, api.token, 'mode = "webhook"', toml=behind)
    front.behind = gateway.url
    api.write(ADA, "first")
    await api.wait_shown(ADA, said("first"))
    await gateway.kill()
    api.write(ADA, "second")
    await gateway.start()
    await api.wait_shown(ADA, said("second"))
    assert len(await api.shown(ADA)) == 2

    body = {"update_id": 1, "message": api.chats.message(ADA, 1)}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/hooks/telegram/updates", json=body) as response,
    ):
        assert response.status == 401


async def test_a_gateway_serves_people_on_a_server_of_others_by_polling(
    telegram_polling: TelegramTestApiControl, start: Start
) -> None:
    peer = telegram_polling
    await start(peer.api_url, peer.bot_token, allow=peer.alice.id)
    await peer.write(peer.bob, "let me in")
    await peer.write(peer.alice, SLOW)
    (growing,) = await peer.wait_shown(peer.alice, bool)
    assert len(growing.text.split()) < 60
    (answer,) = await peer.wait_shown(peer.alice, is_whole(60))
    assert answer.id == growing.id
    assert await peer.shown(peer.bob) == []


async def test_a_gateway_serves_people_on_a_server_of_others_by_webhook(
    telegram_webhook: TelemelyaControl, start: Start, front: Front
) -> None:
    peer = telegram_webhook
    front.more = {SECRET: "s3"}
    gateway = await start(
        peer.api_url,
        peer.bot_token,
        'mode = "webhook"\nwebhook_secret = "s3"',
        toml=f'[server]\nbase_url = "{front.url}"',
        allow=peer.chat,
    )
    front.behind = gateway.url

    async def is_connected() -> bool:
        async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/healthz") as response:
            return "serving" in await response.text()

    await wait_until(is_connected, bool, clock=CLOCK)
    await peer.write("hello there")
    await peer.wait_shown(said("hello there"))
    assert await peer.calls("sendChatAction")
