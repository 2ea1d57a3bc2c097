"""Checks files through a real gateway: fetched, read, seen, heard, lost and given, also through
kills."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from perdure.app.wiring.system import SystemClock
from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.telegram.bot_api import BotApi, BotApiFault
from perdure.testkit.processes.file_server import SPEECH, FileServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Factory = Callable[..., Awaitable[GatewayProcess]]
Start = Callable[..., Awaitable[Client]]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
OGG = b"OggS\0\x02" + bytes(22) + b"OpusHead" + bytes(10) + b"OggS\0\x04"
VOICE = OGG + (72 * 48_000).to_bytes(8, "little") + bytes(20)


@pytest.fixture
async def files() -> AsyncIterator[FileServer]:
    async with FileServer({"/report.txt": b"beans in May", "/cat.png": PNG}) as server:
        yield server


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer(lambda request: script.say("I see.")) as server:
        yield server


@pytest.fixture
async def start(gateway_factory: Factory, model: ModelServer) -> AsyncIterator[Start]:
    async with aiohttp.ClientSession() as session:

        async def begin(
            more: str = "", agent: str = "", limits: str = "", *, private: bool = True
        ) -> Client:
            toml = f"""
[agents.main]
kind = "chat"
base_url = "{model.openai_url}"
model = "scripted"
context = false
{agent}
[limits]
private_urls = {json.dumps(private)}
media_bytes = 100_000
{limits}
[sessions]
titles = false
{more}
"""
            return Client(await gateway_factory(toml=toml), session)

        yield begin


def told(model: ModelServer) -> list[Any]:
    """Return the texts of the newest message that the model was sent, or its parts if it has
    others."""
    body = model.requests[-1].body
    assert body is not None
    content = body["messages"][-1]["content"]
    return content.split("\n\n") if isinstance(content, str) else content


async def upload(client: Client, data: bytes, mime: str, name: str) -> str:
    status, body = await client.call(
        "POST", "/api/media", raw=data, **{"Content-Type": mime, "X-Filename": name}
    )
    assert status == 201, body
    media: str = body["id"]
    return media


async def test_an_address_is_fetched_and_read(
    start: Start, files: FileServer, model: ModelServer
) -> None:
    client = await start()

    said = await client.say("main", "when?", attachments=[{"url": f"{files.url}/report.txt"}])
    await client.settled(said["turn"])

    assert told(model) == [
        "when?",
        "[attached file: report.txt (text/plain)]\nbeans in May\n[end of report.txt]",
    ]
    (user, _) = await client.transcript("main")
    (attachment,) = user["attachments"]
    assert (attachment["name"], attachment["text"]) == ("report.txt", "beans in May")
    async with client.session.get(
        f"{client.gateway.url}/api/media/{attachment['media']}",
        headers={"Authorization": f"Bearer {client.token}"},
    ) as response:
        assert await response.read() == b"beans in May"


async def test_a_picture_is_seen_or_named(
    start: Start, files: FileServer, model: ModelServer
) -> None:
    client = await start(
        more=f'[agents.blind]\nkind = "chat"\nbase_url = "{model.openai_url}"\n'
        'model = "scripted"\nvision = false\ncontext = false\n'
    )
    picture = [{"url": f"{files.url}/cat.png"}]

    said = await client.say("main", "look", attachments=picture)
    await client.settled(said["turn"])
    seen = told(model)[-1]["image_url"]["url"]
    assert seen == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"

    said = await client.say("other", "look", attachments=picture, agent="blind")
    await client.settled(said["turn"])
    assert told(model)[-1] == "[attached file: cat.png (image/png)]"


async def test_what_a_model_was_asked_is_told_with_its_pictures(
    start: Start, model: ModelServer
) -> None:
    client = await start()
    picture = [{"media": await upload(client, PNG, "image/png", "cat.png")}]
    await client.settled((await client.say("main", "look", attachments=picture))["turn"])
    turn = (await client.say("main", "and now?"))["turn"]
    await client.settled(turn)

    _, explained = await client.call("GET", f"/api/explain/{turn}?request=true")

    encoded = json.dumps(explained["request"]["encoded"], separators=(",", ":")).encode()
    assert b"data:image/png" in encoded
    assert any(encoded[1:] in received.raw for received in model.requests), "byte for byte"


async def test_an_uploaded_document_is_read(start: Start, model: ModelServer) -> None:
    client = await start()
    media = await upload(client, b"<html><p>Leeks</p></html>", "text/html", "page.html")

    said = await client.say("main", "", attachments=[{"media": media}])
    await client.settled(said["turn"])

    assert told(model) == ["[attached file: page.html (text/html)]\nLeeks\n[end of page.html]"]


async def test_voice_is_heard_or_said_not_to_be(
    start: Start, files: FileServer, model: ModelServer
) -> None:
    files.hears = "Sow the beans."
    client = await start(more=f'[transcriber]\nurl = "{files.url}/v1"\n')
    media = await upload(client, VOICE, "audio/ogg", "note.ogg")

    said = await client.say("main", "", attachments=[{"media": media}])
    await client.settled(said["turn"])
    assert "Sow the beans." in told(model)[0]

    files.statuses["/v1/audio/transcriptions"] = 500
    said = await client.say("main", "", attachments=[{"media": media}])
    await client.settled(said["turn"])
    assert "it could not be understood" in told(model)[-1]


async def test_a_lost_file_is_named_to_model_and_person(
    start: Start, files: FileServer, model: ModelServer
) -> None:
    client = await start()
    said = await client.say("main", "read", attachments=[{"url": f"{files.url}/gone.pdf"}])
    await client.settled(said["turn"])

    assert told(model)[-1] == (
        "[attached file: gone.pdf: its server answered with status 404; check the address]"
    )
    async with client.events("main", "000001-0000000000-99-000000000") as events:
        async for _, _kind, data in events:
            if data.get("role") == "notice":
                break
    assert data["text"].startswith("The file gone.pdf could not be read: its server answered")


async def test_private_addresses_are_refused_unless_allowed(
    start: Start, files: FileServer, model: ModelServer
) -> None:
    client = await start(private=False)
    said = await client.say("main", "read", attachments=[{"url": f"{files.url}/report.txt"}])
    await client.settled(said["turn"])

    assert "private network" in told(model)[-1]
    assert files.asked == []


async def test_a_kill_while_files_are_on_their_way_loses_nothing(
    start: Start, files: FileServer, model: ModelServer
) -> None:
    files.statuses["/report.txt"] = 503
    client = await start()
    first = await client.say("main", "read", attachments=[{"url": f"{files.url}/report.txt"}])
    second = await client.say("main", "and then?")
    async with asyncio.timeout(20):
        while not files.asked:
            await client.gateway.pause(0.01)
    await client.gateway.kill()
    files.statuses.clear()
    await client.gateway.start()

    assert (await client.settled(first["turn"]))["outcome"] == "done"
    assert (await client.settled(second["turn"]))["outcome"] == "done"
    entries = await client.transcript("main")
    assert [e["text"] for e in entries if e["role"] == "user"] == ["read", "and then?"]
    assert entries[0]["attachments"][0]["text"] == "beans in May"
    status, report = await client.call("GET", "/api/verify")
    assert (status, report["violations"]) == (200, [])


async def test_a_stop_lets_go_of_a_file(start: Start, files: FileServer) -> None:
    files.statuses["/report.txt"] = 503
    client = await start()
    first = await client.say("main", "read", attachments=[{"url": f"{files.url}/report.txt"}])
    reply = await client.say("main", "/stop")
    assert reply["reply"] == "Stopped."
    assert (await client.settled(first["turn"]))["outcome"] == "stopped"
    second = await client.say("main", "never mind")
    assert (await client.settled(second["turn"]))["outcome"] == "done"


async def test_the_demo_agent_gives_a_file(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        said = await client.say("main", "demo file plan.txt sow beans")
        assert (await client.settled(said["turn"]))["outcome"] == "done"
        _, answer = await client.transcript("main")
        assert (answer["text"], answer["outcome"]) == ("Here is plan.txt.", "done")
        (attachment,) = answer["attachments"]
        assert (attachment["name"], attachment["mime"]) == ("plan.txt", "text/plain")
        headers = {"Authorization": f"Bearer {client.token}"}
        url = f"{gateway.url}/api/media/{attachment['media']}"
        async with session.get(url, headers=headers) as response:
            assert await response.read() == b"sow beans"
        said = await client.say("main", "and now?")
        assert (await client.settled(said["turn"]))["outcome"] == "done"


ADA = 42


@pytest.fixture
async def telegram() -> AsyncIterator[BotApi]:
    async with BotApi(SystemClock()) as server:
        yield server


async def on_telegram(telegram: BotApi, gateway_factory: Factory) -> GatewayProcess:
    return await gateway_factory(
        toml=f'[adapters.telegram]\ntoken = "{telegram.token}"\napi_url = "{telegram.url}"\n'
        f'allow = ["{ADA}"]\ncollect_ms = 0\n'
    )


def send_document(telegram: BotApi, name: str, **fields: object) -> None:
    held = telegram.chats.add_file(f"words of {name}".encode(), name=name)
    document = {"file_id": held, "file_unique_id": name, "file_name": name}
    telegram.write(ADA, "", document=document, **fields)


async def test_an_album_on_a_platform_is_one_turn(
    telegram: BotApi, gateway_factory: Factory
) -> None:
    await on_telegram(telegram, gateway_factory)

    send_document(telegram, "one.txt", media_group_id="7", caption="our garden")
    send_document(telegram, "two.txt", media_group_id="7")
    telegram.write(ADA, "and now?")

    shown = await telegram.wait_shown(ADA, lambda seen: len(seen) >= 2)
    assert 'You said: "our garden". You sent: one.txt, two.txt.' in shown[0].text
    assert '"and now?"' in shown[1].text


async def test_downloads_that_hang_keep_no_chat_silent(
    telegram: BotApi, start: Start, files: FileServer, model: ModelServer
) -> None:
    # One file is on a platform whose `getFile` hangs, and one on a web server that stops in the
    # middle.
    files.hanging.add("/report.txt")
    client = await start(
        limits="fetch_wait_s = 6.5",
        more=f'[adapters.telegram]\ntoken = "{telegram.token}"\napi_url = "{telegram.url}"\n'
        f'allow = ["{ADA}"]\nbusy = "queue"\ncollect_ms = 0\n',
    )
    telegram.fail("getFile", BotApiFault(is_hung=True))
    send_document(telegram, "plan.txt", caption="read this")
    telegram.write(ADA, "and answer")
    said = await client.say("main", "when?", attachments=[{"url": f"{files.url}/report.txt"}])

    shown = await telegram.wait_shown(ADA, lambda seen: len(seen) >= 4)
    assert (await client.settled(said["turn"]))["outcome"] == "done"

    still, late = (each.text for each in shown[:2])
    assert still == (
        "The file plan.txt is still being fetched. If it is not here within 6.5 seconds of your "
        "message, the answer begins without it."
    )
    assert late.startswith("The file plan.txt did not arrive in time, so the answer begins")
    assert telegram.made("sendChatAction")
    words = [str(request.body and request.body["messages"]) for request in model.requests]
    assert (
        sum(
            "plan.txt (application/octet-stream): it did not arrive in time" in each
            for each in words
        )
        == 2
    )
    assert sum("report.txt: it did not arrive in time" in each for each in words) == 1
    assert not any("still being fetched" in each for each in words)


async def test_a_sticker_is_described_once_and_a_forward_is_told_as_such(
    telegram: BotApi, start: Start, model: ModelServer
) -> None:
    await start(
        more=f'[adapters.telegram]\ntoken = "{telegram.token}"\napi_url = "{telegram.url}"\n'
        f'allow = ["{ADA}"]\nbusy = "queue"\ncollect_ms = 0\n'
    )
    sticker = {
        "file_id": telegram.chats.add_file(PNG, name="s.webp"),
        "file_unique_id": "s1",
        "emoji": "🙂",
        "set_name": "Cats",
    }
    telegram.write(ADA, sticker=sticker)
    await telegram.wait_shown(ADA, lambda seen: len(seen) == 1)
    description, answered = (request.body for request in model.requests)
    assert description is not None
    assert answered is not None
    (asked,) = description["messages"]
    assert asked["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert answered["messages"][-1]["content"] == "[sticker: I see; emoji 🙂, set Cats]"

    origin = {"type": "user", "sender_user": {"id": 43, "first_name": "Bob"}}
    telegram.write(ADA, sticker=sticker, forward_origin=origin)
    await telegram.wait_shown(ADA, lambda seen: len(seen) == 2)
    assert len(model.requests) == 3
    assert told(model) == ["[Forwarded from Bob]", "[sticker: I see; emoji 🙂, set Cats]"]

    telegram.write(ADA, "/new", forward_origin=origin)
    await telegram.wait_shown(ADA, lambda seen: len(seen) == 3)
    assert told(model) == ["[Forwarded from Bob]\n> /new"]


async def test_a_kill_during_an_album_keeps_it_together(
    telegram: BotApi, gateway_factory: Factory
) -> None:
    gateway = await on_telegram(telegram, gateway_factory)
    telegram.fail("getFile", BotApiFault(status=500))
    send_document(telegram, "one.txt", media_group_id="7", caption="our garden")
    send_document(telegram, "two.txt", media_group_id="7")
    await telegram.wait(lambda: bool(telegram.made("getFile")))
    await gateway.kill()
    await gateway.start()

    shown = await telegram.wait_shown(ADA, lambda seen: len(seen) >= 1)
    assert "You sent: one.txt, two.txt." in shown[0].text


async def test_a_file_that_the_agent_gives_arrives_on_the_platform(
    telegram: BotApi, gateway_factory: Factory
) -> None:
    await on_telegram(telegram, gateway_factory)
    telegram.write(ADA, "demo file plan.txt sow beans")

    await telegram.wait_shown(ADA, lambda seen: len(seen) >= 2)

    (call,) = telegram.made("sendDocument")
    assert call["chat_id"] in (ADA, str(ADA))
    assert b"sow beans" in telegram.chats.files.values()


async def test_people_are_spoken_to_in_the_language_of_their_platform(
    telegram: BotApi, gateway_factory: Factory
) -> None:
    gateway = await on_telegram(telegram, gateway_factory)
    anna = {"id": ADA, "is_bot": False, "first_name": "Anna", "language_code": "de-AT"}
    telegram.write(ADA, "/undo", **{"from": anna})
    telegram.write(ADA, "demo fail", **{"from": anna})
    await telegram.wait_shown(ADA, lambda seen: len(seen) >= 2)
    telegram.write(ADA, "demo words=400 delay_ms=20", **{"from": anna})
    await telegram.wait(lambda: len(telegram.made("sendMessageDraft")) > 1)
    await gateway.terminate()
    shown = [each.text for each in await telegram.shown(ADA)]
    assert shown[0] == "Nichts zurückzunehmen."
    assert shown[1].startswith("⚠️ Es gibt keine Antwort: ")
    assert any(each.startswith("Das Gateway hält gleich an. Eine Antwort") for each in shown)


async def test_answers_are_spoken_where_a_person_wants_that(
    telegram: BotApi, start: Start, files: FileServer, model: ModelServer
) -> None:
    client = await start(
        more=f'[adapters.telegram]\ntoken = "{telegram.token}"\napi_url = "{telegram.url}"\n'
        f'allow = ["{ADA}"]\n[speech]\nurl = "{files.url}/v1"\nvoice = "nova"\n'
    )
    telegram.write(ADA, "/voice on")
    telegram.write(ADA, "what do you see?")
    await telegram.wait(lambda: bool(telegram.made("sendVoice")))
    (wish,) = files.spoken
    assert (wish["input"], wish["voice"], wish["response_format"]) == ("I see.", "nova", "opus")
    shown = await telegram.wait_shown(ADA, lambda seen: len(seen) == 3)
    assert [each.text for each in shown[:2]] == [
        "Answers here are spoken too, from the next one on.",
        "I see.",
    ]

    # A server that fails delays what is said next for a moment only.
    files.statuses[SPEECH] = 503
    telegram.write(ADA, "and now?")
    await telegram.wait(lambda: len(files.spoken) == 3)
    telegram.write(ADA, "/voice off")
    shown = await telegram.wait_shown(ADA, lambda seen: "only written" in seen[-1].text)
    assert shown[3].text == "I see."
    telegram.write(ADA, "and then?")
    await telegram.wait_shown(ADA, lambda seen: seen[-1].text == "I see.")
    assert (len(files.spoken), len(telegram.made("sendVoice"))) == (3, 1)
    _, listed = await client.call("GET", "/api/parked")
    assert [each["error"] for each in listed["parked"]] == [
        "the speech server answered with status 503"
    ]
