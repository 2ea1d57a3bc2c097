"""Checks through a real gateway that files are read and pictures are seen as people have them, on
both wires: old encodings, formats and sizes that models do not take, and many pictures."""

import base64
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pillow_heif
import pytest
from PIL import Image

from perdure.testkit.models import model_script as script
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.processes.file_server import FileServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
pillow_heif.register_heif_opener()
Factory = Callable[..., Awaitable[GatewayProcess]]
WIRES = ("openai", "anthropic")
KEPT = 4


class Setting:
    """Holds a gateway with an agent on each wire, and a model that sees everything."""

    def __init__(self, client: Client, model: ModelServer, files: FileServer) -> None:
        self.client = client
        self.model = model
        self.files = files

    async def ask(self, agent: str, *attachments: dict[str, str]) -> str:
        said = await self.client.say(agent, "look", attachments=list(attachments), agent=agent)
        turn: str = said["turn"]
        await self.client.settled(turn)
        return turn

    async def upload(self, data: bytes, mime: str, name: str) -> dict[str, str]:
        status, body = await self.client.call(
            "POST", "/api/media", raw=data, **{"Content-Type": mime, "X-Filename": name}
        )
        assert status == 201, body
        return {"media": body["id"]}

    @property
    def asked(self) -> list[Any]:
        """Return the messages of the last request, without those of the system, and without the
        marks that tell a provider where to keep its cache."""
        body = json.loads(
            self.model.requests[-1].raw,
            object_hook=lambda each: {k: v for k, v in each.items() if k != "cache_control"},
        )
        return [each for each in body["messages"] if each["role"] != "system"]


@pytest.fixture
async def setting(gateway_factory: Factory) -> AsyncIterator[Setting]:
    async with (
        ModelServer(lambda request: script.say("I see.")) as model,
        FileServer({}) as files,
        aiohttp.ClientSession() as session,
    ):
        agents = "".join(
            f"""
[agents.{wire}]
kind = "chat"
api = "{wire}"
base_url = "{url}"
api_key = "k"
model = "scripted"
pictures = {KEPT}
"""
            for wire, url in zip(WIRES, (model.openai_url, model.url), strict=True)
        )
        more = "[limits]\nprivate_urls = true\n[sessions]\ntitles = false\n"
        yield Setting(Client(await gateway_factory(toml=agents + more), session), model, files)


def parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def seen(message: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Return the type and bytes of each picture in a message."""
    found = []
    for part in parts(message):
        if part["type"] == "image_url":
            head, _, data = part["image_url"]["url"].partition(",")
            found.append((head[5:].partition(";")[0], base64.b64decode(data)))
        elif part["type"] == "image":
            source = part["source"]
            found.append((source["media_type"], base64.b64decode(source["data"])))
    return found


def words(message: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in parts(message) if part["type"] == "text")


def made(form: str, size: tuple[int, int], **more: Any) -> bytes:
    data = io.BytesIO()
    Image.effect_noise(size, 80).convert("RGB").save(data, form, **more)
    return data.getvalue()


@pytest.mark.parametrize("wire", WIRES)
async def test_pictures_are_made_to_fit_once(setting: Setting, wire: str) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    setting.files.files |= {
        "/photo.heic": made("HEIF", (300, 200)),
        "/scan.tif": made("TIFF", (90, 60)),
        "/large.jpg": made("JPEG", (4_000, 3_000), quality=95),
    }
    addresses = [{"url": f"{setting.files.url}{path}"} for path in setting.files.files]
    upright = await setting.upload(made("JPEG", (90, 60), exif=turned), "image/jpeg", "turned.jpg")

    await setting.ask(wire, *addresses, upright)

    pictures = seen(setting.asked[-1])
    sizes = []
    for mime, data in pictures:
        opened = Image.open(io.BytesIO(data))
        assert opened.get_format_mimetype() == mime
        assert len(data) <= 1_000_000
        sizes.append(opened.size)
    assert sizes == [(300, 200), (90, 60), (2_000, 1_500), (60, 90)]
    await setting.ask(wire, {"url": f"{setting.files.url}/photo.heic"})
    assert seen(setting.asked[-1])[0] == pictures[0], "the same bytes, made once"
    (user, *_) = await setting.client.transcript(wire)
    assert [each["mime"] for each in user["attachments"]][:2] == ["image/heic", "image/tiff"]


async def test_a_picture_in_a_call_is_made_to_fit_too(setting: Setting) -> None:
    data = base64.b64encode(made("HEIF", (300, 200))).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/heic;base64,{data}"}}
    wide = base64.b64encode(made("PNG", (9_000, 10))).decode()
    png = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{wide}"}}

    status, _ = await setting.client.call(
        "POST",
        "/v1/chat/completions",
        body={"model": "openai", "messages": [{"role": "user", "content": [part, png]}]},
    )

    assert status == 200
    sizes = [Image.open(io.BytesIO(data)).size for _, data in seen(setting.asked[-1])]
    assert sizes == [(300, 200), (2_000, 2)]


async def test_a_response_that_goes_on_shows_the_picture_that_was_made_to_fit(
    setting: Setting,
) -> None:
    data = base64.b64encode(made("HEIF", (300, 200))).decode()
    image = {"type": "input_image", "image_url": f"data:image/heic;base64,{data}"}
    first = {"model": "openai", "input": [{"role": "user", "content": [image]}]}
    _, answer = await setting.client.call("POST", "/v1/responses", body=first)
    shown = seen(setting.asked[-1])

    more = {"model": "openai", "input": "and now?", "previous_response_id": answer["id"]}
    status, _ = await setting.client.call("POST", "/v1/responses", body=more)

    assert status == 200
    assert seen(setting.asked[0]) == shown
    assert [mime for mime, _ in shown] == ["image/jpeg"]


async def test_a_picture_that_cannot_be_read_is_named(setting: Setting) -> None:
    bomb = await setting.upload(made("HEIF", (300, 200))[:400], "image/heic", "broken.heic")

    await setting.ask("openai", bomb)

    assert seen(setting.asked[-1]) == []
    assert "[attached file: broken.heic (image/heic): the picture is damaged" in words(
        setting.asked[-1]
    )


@pytest.mark.parametrize("wire", WIRES)
async def test_old_pictures_are_not_sent_again_and_the_prefix_changes_in_steps(
    setting: Setting, wire: str
) -> None:
    picture = await setting.upload(made("PNG", (8, 8)), "image/png", "cat.png")
    before: list[Any] = []
    breaks, turn = [], ""
    for number in range(1, 11):
        turn = await setting.ask(wire, picture)
        counts = [len(seen(message)) for message in setting.asked if message["role"] == "user"]
        assert sum(counts) <= KEPT
        assert counts[-1] == 1, "the newest is sent"
        assert counts == sorted(counts), "the oldest are left out first"
        if before and json.dumps(setting.asked[: len(before)]) != json.dumps(before):
            breaks.append(number)
        before = setting.asked
        _, explained = await setting.client.call("GET", f"/api/explain/{turn}")
        assert ("pictures" in json.dumps(explained)) is (number in breaks)
    assert breaks == [5, 7, 9]
    assert "cat.png (image/png): a picture from earlier" in words(setting.asked[0])

    if wire == "anthropic":
        return  # its requests bear marks for the cache, which are not stored
    _, explained = await setting.client.call("GET", f"/api/explain/{turn}?request=true")
    encoded = json.dumps(explained["request"]["encoded"], separators=(",", ":")).encode()
    assert any(encoded[1:] in received.raw for received in setting.model.requests)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "Grüße aus München. Die Straße ist schön.\n"),
        ("cp1252", "“It’s €5” – und süß…\n"),  # noqa: RUF001 - what Windows-1252 has
        ("utf-16", "Grüße, Привет, 日本語\n"),
        ("utf-16-le", "Grüße, Привет.\n"),
        ("shift_jis", "これは日本語のテキストです。\n"),
        ("koi8-r", "Привет, как дела? Сегодня хорошая погода.\n"),
    ],
)
async def test_text_is_read_in_the_encoding_that_it_has(
    setting: Setting, encoding: str, text: str
) -> None:
    setting.files.files["/notes.txt"] = text.encode(encoding)
    page = f"<html><p>{text}</p></html>"

    file = await setting.upload(page.encode(encoding), "text/html", "page.html")
    await setting.ask("openai", {"url": f"{setting.files.url}/notes.txt"}, file)

    told = words(setting.asked[-1])
    assert f"(text/plain)]\n{text.strip()}" in told
    assert f"page.html (text/html)]\n{text.strip()}" in told
