"""Checks that every chat platform of the tests answers, and that its control client sees what a bot
does.

The bot speaks plain HTTP, so that these tests fail because of a peer and never because of an
adapter.
"""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from perdure.testkit.peers.discord.discord_twin import DiscordTwinControl
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.matrix.synapse import MatrixControl
from perdure.testkit.peers.slack.emulate_slack import EmulateSlackControl
from perdure.testkit.peers.slack.local_slack import ALICE, BOT, GENERAL, LocalSlackControl
from perdure.testkit.peers.telegram.telegram_test_api import TelegramTestApiControl
from perdure.testkit.peers.telegram.telemelya import TelemelyaControl

BUTTONS = {"inline_keyboard": [[{"text": "Yes", "callback_data": "yes"}]]}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Webhook:
    """Runs a bot's own server, and keeps what was posted to it."""

    def __init__(self) -> None:
        self.url = ""
        self.posted: list[tuple[dict[str, str], bytes]] = []

    async def take(self, request: web.Request) -> web.Response:
        self.posted.append((dict(request.headers), await request.read()))
        return web.json_response({})

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.posted]


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    hook = Webhook()
    application = web.Application()
    application.router.add_post("/hook", hook.take)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        hook.url = f"http://127.0.0.1:{port}/hook"
        yield hook
    finally:
        await runner.cleanup()


def bot_api(
    http: aiohttp.ClientSession, peer: TelegramTestApiControl | TelemelyaControl
) -> Callable[..., Awaitable[Any]]:
    """Return a caller of Telegram's methods for the bot of this test."""

    async def call(method: str, **params: object) -> Any:
        url = f"{peer.api_url}/bot{peer.bot_token}/{method}"
        async with http.post(url, json=params) as response:
            return await response.json()

    return call


async def test_a_matrix_room_shows_edits_threads_reactions_and_typing(
    matrix: MatrixControl,
) -> None:
    alice, bot = await matrix.person("alice"), await matrix.person("bot")
    room = await alice.room(invite=[bot.user_id], is_direct=True)
    await bot.join(room)

    asked = await alice.write(room, "hello", txn="once")
    assert await alice.write(room, "hello", txn="once") == asked
    answer = await bot.write(room, "par", thread=asked)
    await bot.edit(room, answer, "partial")
    await bot.react(room, asked, "👀")
    await bot.call(
        "PUT",
        f"/_matrix/client/v3/rooms/{room}/typing/{bot.user_id}",
        {"typing": True, "timeout": 10_000},
    )

    first, second = await alice.shown(room)
    assert (first.id, first.text, first.author) == (asked, "hello", alice.user_id)
    assert (second.text, second.thread, second.is_edited) == ("partial", asked, True)
    assert await alice.reactions(room, asked) == [(bot.user_id, "👀")]
    assert await alice.typing(room) == [bot.user_id]
    await bot.delete(room, answer)
    assert [each.id for each in await alice.shown(room)] == [asked]


async def test_a_matrix_file_comes_out_as_it_went_in(matrix: MatrixControl) -> None:
    alice = await matrix.person("alice")
    room = await alice.room()
    await alice.send_file(room, "a.png", PNG, "image/png")
    (shown,) = await alice.shown(room)
    assert shown.raw["content"]["msgtype"] == "m.image"
    assert await alice.download(shown.raw["content"]["url"]) == PNG


async def test_matrix_with_its_own_limits_says_when_to_come_back(
    strict_matrix: MatrixControl,
) -> None:
    alice = await strict_matrix.person("alice")
    room = await alice.room()
    path = f"/_matrix/client/v3/rooms/{room}/send/m.room.message/"
    content = {"msgtype": "m.text", "body": "again"}
    status = 200
    answer: Any = None
    for number in range(20):
        if status == 200:
            status, answer = await alice.call("PUT", f"{path}{number}", content)
    assert (status, answer["errcode"]) == (429, "M_LIMIT_EXCEEDED")
    assert answer["retry_after_ms"] > 0


class SocketApp:
    """Runs an app on Socket Mode that acknowledges everything at once, and keeps it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._payloads: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def run(self) -> None:
        async for message in self._socket:
            envelope = message.json()
            if "envelope_id" in envelope:
                await self._socket.send_json({"envelope_id": envelope["envelope_id"]})
                self._payloads.put_nowait(envelope["payload"])

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            return await self._payloads.get()


@pytest.fixture
async def socket_app(
    local_slack: LocalSlackControl, http: aiohttp.ClientSession
) -> AsyncIterator[SocketApp]:
    headers = {"Authorization": f"Bearer {local_slack.app_token}"}
    async with http.post(local_slack.api_url + "apps.connections.open", headers=headers) as opened:
        url = (await opened.json())["url"]
    async with http.ws_connect(url) as socket:
        app = SocketApp(socket)
        running = asyncio.create_task(app.run())
        await local_slack.wait_connected()
        yield app
    await running


async def test_local_slack_brings_a_mention_as_two_events(
    local_slack: LocalSlackControl, socket_app: SocketApp
) -> None:
    ts = await local_slack.mention(GENERAL, "hi")
    payloads = [await socket_app.next(), await socket_app.next()]
    assert {each["event"]["type"] for each in payloads} == {"message", "app_mention"}
    assert {each["event"]["ts"] for each in payloads} == {ts}
    assert len({each["event_id"] for each in payloads}) == 2


async def test_local_slack_shows_what_the_app_posts(local_slack: LocalSlackControl) -> None:
    assert await local_slack.shown(GENERAL) == []
    asked = await local_slack.write(GENERAL, "hello")
    posted = await local_slack.call(
        "chat.postMessage", channel=GENERAL, text="par", thread_ts=asked
    )
    await local_slack.call("chat.update", channel=GENERAL, ts=posted["ts"], text="partial")
    await local_slack.call("reactions.add", channel=GENERAL, timestamp=asked, name="eyes")

    shown = await local_slack.wait_shown(GENERAL, lambda seen: len(seen) == 2)
    assert [(each.author, each.text, each.thread) for each in shown] == [
        (ALICE, "hello", ""),
        (BOT, "partial", asked),
    ]
    assert await local_slack.reactions(GENERAL, asked) == [(BOT, "eyes")]


async def test_local_slack_brings_what_people_do(
    local_slack: LocalSlackControl, socket_app: SocketApp, http: aiohttp.ClientSession
) -> None:
    label = {"type": "plain_text", "text": "OK"}
    button = {"type": "button", "action_id": "ok", "value": "42", "text": label}
    blocks = [{"type": "actions", "block_id": "b1", "elements": [button]}]
    asked = await local_slack.call(
        "chat.postMessage", channel=GENERAL, text="sure?", blocks=json.dumps(blocks)
    )

    await local_slack.click(GENERAL, asked["ts"], "ok")
    clicked = await socket_app.next()
    assert (clicked["actions"][0]["value"], clicked["user"]["id"]) == ("42", ALICE)

    direct = await local_slack.direct()
    await local_slack.write(direct, "psst")
    whispered = (await socket_app.next())["event"]
    assert (whispered["channel"], whispered["channel_type"]) == (direct, "im")

    await local_slack.command(GENERAL, "/agent", "go")
    command = await socket_app.next()
    assert (command["command"], command["text"]) == ("/agent", "go")

    await local_slack.send_file(GENERAL, "a.txt", b"abc", text="see")
    shared = (await socket_app.next())["event"]
    headers = {"Authorization": f"Bearer {local_slack.bot_token}"}
    async with http.get(shared["files"][0]["url_private"], headers=headers) as response:
        assert await response.read() == b"abc"


async def test_emulate_slack_signs_its_events(
    emulate_slack: EmulateSlackControl, webhook: Webhook
) -> None:
    await emulate_slack.subscribe(webhook.url)
    channel = emulate_slack.channels["general"]
    await emulate_slack.write(channel, "hello")

    ((headers, body),) = webhook.posted
    signed = b"v0:" + headers["X-Slack-Request-Timestamp"].encode() + b":" + body
    digest = hmac.new(emulate_slack.signing_secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Slack-Signature"] == f"v0={digest}"
    event = json.loads(body)["event"]
    assert (event["text"], event["user"]) == ("hello", emulate_slack.user)
    assert [each.status for each in await emulate_slack.deliveries()] == [200]


async def test_emulate_slack_shows_what_the_app_posts(emulate_slack: EmulateSlackControl) -> None:
    channel = await emulate_slack.direct()
    asked = await emulate_slack.write(channel, "hello")
    bot = {"token": emulate_slack.bot_token, "channel": channel}
    posted = await emulate_slack.call("chat.postMessage", text="par", thread_ts=asked, **bot)
    await emulate_slack.call("chat.update", ts=posted["ts"], text="partial", **bot)

    assert [each.text for each in await emulate_slack.shown(channel)] == ["hello"]
    _, answer = await emulate_slack.wait_thread(channel, asked, lambda seen: len(seen) == 2)
    assert (answer.text, answer.author) == ("partial", emulate_slack.bot_user)


async def test_telegram_test_api_is_polled(
    telegram_polling: TelegramTestApiControl, http: aiohttp.ClientSession
) -> None:
    peer, call = telegram_polling, bot_api(http, telegram_polling)
    asked = await peer.write(peer.alice, "/start now")
    (update,) = (await call("getUpdates"))["result"]
    assert str(update["message"]["message_id"]) == asked
    assert update["message"]["chat"]["id"] == peer.alice.id

    sent = await call("sendMessage", chat_id=peer.alice.id, text="par", reply_markup=BUTTONS)
    message = sent["result"]["message_id"]
    await call("editMessageText", chat_id=peer.alice.id, message_id=message, text="partial")
    (shown,) = await peer.shown(peer.alice)
    assert (shown.id, shown.text, shown.is_edited) == (str(message), "partial", True)
    assert await peer.shown(peer.bob) == []

    await peer.click(peer.alice, shown.id, "yes")
    (pressed,) = (await call("getUpdates"))["result"]
    assert pressed["callback_query"]["data"] == "yes"
    await call("deleteMessage", chat_id=peer.alice.id, message_id=message)
    assert await peer.shown(peer.alice) == []


async def test_telegram_test_api_holds_an_empty_poll(
    telegram_polling: TelegramTestApiControl, http: aiohttp.ClientSession
) -> None:
    call = bot_api(http, telegram_polling)
    clock = telegram_polling.server.clock
    begun = clock.monotonic_s()
    assert (await call("getUpdates"))["result"] == []
    assert clock.monotonic_s() - begun > 0.5


async def test_telemelya_calls_the_webhook_and_keeps_what_the_bot_does(
    telegram_webhook: TelemelyaControl, http: aiohttp.ClientSession, webhook: Webhook
) -> None:
    peer, call = telegram_webhook, bot_api(http, telegram_webhook)
    await call("setWebhook", url=webhook.url)
    asked = await peer.write("hello")
    sent = await call("sendMessage", chat_id=peer.chat, text="par", reply_markup=BUTTONS)
    message = sent["result"]["message_id"]
    await call("editMessageText", chat_id=peer.chat, message_id=message, text="partial")
    unknown = await call("editMessageText", chat_id=peer.chat, message_id=999, text="x")
    await peer.click(str(message), "yes")

    written, pressed = webhook.bodies()
    assert str(written["message"]["message_id"]) == asked
    assert pressed["callback_query"]["data"] == "yes"
    assert not unknown["ok"]
    (shown,) = await peer.wait_shown(lambda seen: bool(seen) and seen[0].is_edited)
    assert shown.text == "partial"
    await call("deleteMessage", chat_id=peer.chat, message_id=message)
    assert await peer.shown() == []


async def test_telemelya_carries_photos_both_ways(
    telegram_webhook: TelemelyaControl, http: aiohttp.ClientSession, webhook: Webhook
) -> None:
    peer, call = telegram_webhook, bot_api(http, telegram_webhook)
    await call("setWebhook", url=webhook.url)
    file_id = await peer.send_photo(PNG, caption="see")
    file_path = (await call("getFile", file_id=file_id))["result"]["file_path"]
    async with http.get(f"{peer.api_url}/file/bot{peer.bot_token}/{file_path}") as response:
        assert await response.read() == PNG
    assert webhook.bodies()[0]["message"]["caption"] == "see"

    form = aiohttp.FormData({"chat_id": str(peer.chat), "caption": "back"})
    form.add_field("photo", PNG, filename="b.png", content_type="image/png")
    async with http.post(f"{peer.api_url}/bot{peer.bot_token}/sendPhoto", data=form) as response:
        assert (await response.json())["ok"]
    (sent,) = await peer.wait_calls("sendPhoto")
    assert await peer.media(sent["file_id"]) == PNG


class Bot:
    """Runs a bot on Discord: one gateway connection, and REST."""

    def __init__(self, peer: DiscordTwinControl, http: aiohttp.ClientSession) -> None:
        self._peer = peer
        self._http = http

    async def call(self, method: str, path: str, **body: object) -> Any:
        url = f"{self._peer.rest_url}/v10{path}"
        headers = {"Authorization": f"Bot {self._peer.bot_token}"}
        async with self._http.request(method, url, json=body, headers=headers) as response:
            assert response.status < 300, await response.text()
            return await response.json() if response.status == 200 else None

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        url = f"{self._peer.gateway_url}/?v=10&encoding=json"
        async with self._http.ws_connect(url) as gateway:
            assert (await gateway.receive_json())["op"] == 10
            identity = {"token": self._peer.bot_token, "intents": 33_281, "properties": {}}
            await gateway.send_json({"op": 2, "d": identity})
            assert (await gateway.receive_json())["t"] == "READY"
            assert (await gateway.receive_json())["t"] == "GUILD_CREATE"
            yield gateway


async def test_the_discord_twin_brings_what_people_do(
    discord_twin: DiscordTwinControl, http: aiohttp.ClientSession
) -> None:
    bot, general = Bot(discord_twin, http), discord_twin.general
    button = {"type": 2, "style": 1, "label": "Yes", "custom_id": "yes"}
    components = [{"type": 1, "components": [button]}]
    async with bot.gateway() as gateway:
        await discord_twin.wait_connected()
        asked = await discord_twin.write(general, "hello")
        created = await gateway.receive_json()
        assert (created["t"], created["d"]["id"]) == ("MESSAGE_CREATE", asked)
        assert created["d"]["author"]["id"] == discord_twin.users["alice"]

        sent = await bot.call(
            "POST", f"/channels/{general}/messages", content="sure?", components=components
        )
        assert (await gateway.receive_json())["d"]["id"] == sent["id"]
        interaction = await discord_twin.click(general, sent["id"], "yes", user="bob")
        pressed = (await gateway.receive_json())["d"]
        assert (pressed["id"], pressed["data"]["custom_id"]) == (interaction, "yes")
        assert await discord_twin.answer(general, interaction) is None
        await bot.call("POST", f"/interactions/{interaction}/{pressed['token']}/callback", type=6)
        answer = await discord_twin.answer(general, interaction)
        assert answer is not None
        assert answer["type"] == 6


async def test_the_discord_twin_can_cut_its_connections(
    discord_twin: DiscordTwinControl, http: aiohttp.ClientSession
) -> None:
    async with Bot(discord_twin, http).gateway() as gateway:
        assert await discord_twin.connections() == 1
        await discord_twin.cut()
        assert (await gateway.receive()).type is aiohttp.WSMsgType.CLOSED
    assert await discord_twin.connections() == 0


async def test_the_discord_twin_shows_what_the_bot_does(
    discord_twin: DiscordTwinControl, http: aiohttp.ClientSession
) -> None:
    bot, general = Bot(discord_twin, http), discord_twin.general
    asked = await discord_twin.write(general, "hello")
    await bot.call("POST", f"/channels/{general}/typing")
    sent = await bot.call("POST", f"/channels/{general}/messages", content="par")
    await bot.call("PATCH", f"/channels/{general}/messages/{sent['id']}", content="partial")

    first, second = await discord_twin.shown(general)
    assert (first.id, first.text, first.is_edited) == (asked, "hello", False)
    assert (second.text, second.author) == ("partial", discord_twin.bot_user)
    assert second.is_edited
    assert await discord_twin.typing(general) == 1
    await bot.call("DELETE", f"/channels/{general}/messages/{sent['id']}")
    assert [each.id for each in await discord_twin.shown(general)] == [asked]


async def test_a_peer_can_be_killed_and_comes_back_at_the_same_address(
    new_peer: NewPeer, http: aiohttp.ClientSession
) -> None:
    async with new_peer.local_slack() as server:
        await server.kill()
        assert not server.is_running
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"{server.url}/_control/state")
        await server.start()
        async with server.control() as slack:
            assert await slack.shown(GENERAL) == []
    assert not server.is_running
