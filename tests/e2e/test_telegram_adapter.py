"""Checks the Telegram adapter against servers: two imitations by others, and this project's own for
what they lack.

What none of them can check is compared with the published schema of the Bot API.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from perdure.adapters.telegram.adapter import make
from perdure.adapters.telegram.manifest import TelegramSettings
from perdure.adapters.telegram.wire import Api
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming, plan_parts, without_promise
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind
from perdure.domain.kinds import UpdateKind
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ArrivalReading,
    Delete,
    Edit,
    HookRequest,
    Platform,
    Post,
    Preview,
    React,
    Receipt,
    ThreadGone,
    Unrenderable,
    Unsupported,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.ports.records.media import FOR_SENDER
from perdure.ports.system.clock import Clock
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.shown import wait_until
from perdure.testkit.peers.telegram.bot_api import BotApi, BotApiFault
from perdure.testkit.peers.telegram.telegram_test_api import TelegramTestApiControl
from perdure.testkit.peers.telegram.telemelya import TelemelyaControl
from perdure.testkit.simulator.system import VirtualClock

pytestmark = pytest.mark.timeout(60)

CLOCK = SystemClock()
ADA = 42
CLUB = -100123
KEY = PartId("prt_1")
MARKUP = {"copy", "python", "rust", "title"}  # an entity, languages of code, a link's title
TORTURE = Path(__file__).parents[1] / "golden" / "torture.md"
TABLE = "# Prices\n\n| what | price |\n|---|--:|\n| tea | 2 |"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
SECRET = "x-telegram-bot-api-secret-token"


def words(text: str) -> set[str]:
    return set(re.findall(r"\b[a-z]{4,}\b", text))


class Inbox(Unguarded):
    """Keeps what it is handed, after it has raised each of its `failures`."""

    def __init__(self) -> None:
        self.spoilt: dict[str, str] = {}
        self.taken: list[Arrival] = []
        self.offered = 0
        self.signs = 0
        self.failures: list[Transient | Ambiguous | Rejected] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        self.offered += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken += await opened(arrival, reading)
        await self.go_on.wait()

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        self.spoilt[external_id] = why

    def alive(self) -> None:
        self.signs += 1

    async def wait(self, count: int) -> list[Arrival]:
        async def look() -> list[Arrival]:
            return self.taken

        return await wait_until(look, lambda taken: len(taken) >= count, clock=CLOCK)


MakeBot = Callable[..., Platform]


@pytest.fixture
async def bot(tmp_path: Path) -> AsyncIterator[MakeBot]:
    """Make adapters and close them: `bot(url, token, mode="webhook", hook_url="…")`."""
    made: list[Platform] = []

    def start(
        url: str, token: str, *, hook_url: str = "", clock: Clock = CLOCK, **settings: Any
    ) -> Platform:
        context = AdapterContext(
            clock=clock, entropy=SystemEntropy(), folder=tmp_path, hook_url=hook_url
        )
        chosen = TelegramSettings(token=Secret(token), api_url=url, **settings)
        made.append(make(chosen, context))
        return made[-1]

    yield start
    for platform in made:
        await platform.close()


@asynccontextmanager
async def receiving(platform: Platform, inbox: Inbox) -> AsyncIterator[None]:
    """Connect and receive as the gateway does, and begin again after a transient failure."""

    async def run() -> None:
        while True:
            try:
                await platform.receive(inbox)
            except Transient:
                await platform.connect()

    await platform.connect()
    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def receiving_on(platform: Platform, inbox: Inbox) -> AsyncIterator[None]:
    """Receive on a connection that is already made."""
    task = asyncio.create_task(platform.receive(inbox))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def at(place: int, thread: str = "") -> Address:
    return Address(adapter="telegram", account="700", place=str(place), thread=thread)


def post(text: str, place: int = ADA, **more: Any) -> Post:
    return Post(key=KEY, address=at(place, more.pop("thread", "")), text=text, **more)


def preview(text: str, streaming: Streaming, place: int = ADA, **more: Any) -> Preview:
    return Preview(key=KEY, address=at(place), text=text, streaming=streaming, **more)


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi(CLOCK) as server:
        yield server


@pytest.fixture
async def telegram(
    api: BotApi, bot: MakeBot, schema: Callable[[BotApi], None]
) -> AsyncIterator[Platform]:
    """Connect to this project's server. At the end all requests are compared with the schema."""
    platform = bot(api.url, api.token)
    assert await platform.connect() == "700"
    yield platform
    schema(api)


@pytest.fixture(scope="session")
def schema() -> Callable[[BotApi], None]:
    """Load the published models of the Bot API once, because their import takes seconds."""
    from aiogram import methods
    from aiogram.types import BufferedInputFile

    def check(api: BotApi) -> None:
        for call in api.calls:
            model = getattr(methods, call.method[0].upper() + call.method[1:])
            files = {
                field: BufferedInputFile(upload.data, upload.name)
                for field, upload in call.uploads.items()
            }
            if not call.params and call.method == "sendRichMessage":
                continue  # the call only asks whether the method is known
            checked = model.model_validate({**call.params, **files})
            assert not _extras(checked), f"{call.method} knows no {_extras(checked)}"

    return check


def _extras(model: Any) -> list[str]:
    """Return the fields that the schema does not have, at any depth."""
    found = list(model.model_extra or ())
    for name in type(model).model_fields:
        value = getattr(model, name)
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "model_extra"):
                found += _extras(each)
    return found


class TestComingIn:
    async def test_messages_of_people_arrive(self, api: BotApi, telegram: Platform) -> None:
        inbox = Inbox()
        async with receiving(telegram, inbox):
            number = api.write(ADA, "hello")
            api.write(CLUB, "among ourselves")
            mention = {"type": "mention", "offset": 0, "length": 12}
            api.write(CLUB, "@perdure_bot help", entities=[mention])
            api.write(CLUB, "in a topic", message_thread_id=7, is_topic_message=True)
            private, aside, said, topic = await inbox.wait(4)

        assert (private.external_id, private.text) == (f"{ADA}/{number}", "hello")
        assert private.place_kind is PlaceKind.PRIVATE
        assert (aside.is_addressed, said.is_addressed, said.text) == (False, True, "help")
        assert (topic.thread, topic.label) == ("7", "Club")

    async def test_edits_replies_clicks_and_the_stop_button_arrive(
        self, api: BotApi, telegram: Platform
    ) -> None:
        inbox = Inbox()
        ours = await telegram.perform(post("Shall I?", choices=("continue", "drop")))
        number = int(ours.external_id.split("/")[1])
        await telegram.preview(preview("half", Streaming.DRAFT))
        async with receiving(telegram, inbox):
            first = api.write(ADA, "helo")
            api.edit(ADA, first, "hello")
            api.write(ADA, "yes", reply_to_message=api.chats.message(ADA, number))
            query = api.click(ADA, number, "drop")
            api.press_stop(ADA)
            _, edited, reply, click, stop = await inbox.wait(5)
            await api.wait(lambda: api.chats.answered == [query])

        assert (edited.kind, edited.target, edited.text) == (
            UpdateKind.EDIT,
            f"{ADA}/{first}",
            "hello",
        )
        assert (reply.is_addressed, reply.quote) == (True, "Shall I?")
        assert (click.text, click.sender.id) == ("drop", str(ADA))
        assert (stop.text, stop.place) == ("/stop", str(ADA))

    async def test_an_update_is_offered_until_it_is_taken_and_none_is_skipped(
        self, api: BotApi, telegram: Platform
    ) -> None:
        inbox = Inbox()
        inbox.failures = [Transient("full"), Ambiguous("perhaps"), Transient("full")]
        for number in range(5):
            api.write(ADA, f"message {number}")
        async with receiving(telegram, inbox):
            taken = await inbox.wait(5)
            await api.wait(lambda: not api.updates)

        assert [each.text for each in taken] == [f"message {number}" for number in range(5)]
        assert inbox.offered == 8

    async def test_what_was_taken_and_not_acknowledged_is_offered_to_the_next_life(
        self, api: BotApi, telegram: Platform, bot: MakeBot
    ) -> None:
        api.write(ADA, "hello")
        first, second = Inbox(), Inbox()
        first.go_on.clear()
        async with receiving(telegram, first):
            await first.wait(1)
        again = bot(api.url, api.token)
        async with receiving(again, second):
            await second.wait(1)
            await api.wait(lambda: not api.updates)
        assert first.taken == second.taken

    async def test_what_can_never_be_taken_is_acknowledged(
        self, api: BotApi, telegram: Platform
    ) -> None:
        inbox = Inbox()
        inbox.failures = [Rejected("too long")]
        async with receiving(telegram, inbox):
            api.write(ADA, "x")
            await api.wait(lambda: inbox.offered == 1 and not api.updates)
            assert inbox.taken == []

    async def test_an_update_that_cannot_be_read_does_not_stand_in_the_way(
        self, api: BotApi, telegram: Platform
    ) -> None:
        inbox = Inbox()
        async with receiving(telegram, inbox):
            api.push(message={"message_id": "seven"})
            api.write(ADA, "next")
            (taken,) = await inbox.wait(1)
            await api.wait(lambda: not api.updates)
        assert taken.text == "next"

    async def test_a_second_poller_is_named(
        self, api: BotApi, telegram: Platform, bot: MakeBot
    ) -> None:
        other = bot(api.url, api.token)
        await other.connect()
        first = asyncio.create_task(telegram.receive(Inbox()))
        await api.wait(lambda: len(api.made("getUpdates")) == 1)
        second = asyncio.create_task(other.receive(Inbox()))
        with pytest.raises(Transient, match="another program receives this bot's messages"):
            await first
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    async def test_the_menu_lists_the_commands(self, api: BotApi, telegram: Platform) -> None:
        names = [command["command"] for command in api.chats.commands]
        assert {"new", "stop", "help"} <= set(names)
        assert "restart" not in names

    async def test_files_are_fetched(self, api: BotApi, telegram: Platform) -> None:
        data = bytes(range(256)) * 1000
        name = api.chats.add_file(data, name="a b?.bin")
        assert b"".join([chunk async for chunk in telegram.fetch(name)]) == data

        with pytest.raises(Permanent, match="at most 20 MB") as told:
            await anext(telegram.fetch(api.chats.add_file(bytes(21 * 1024 * 1024))))
        assert told.value.code == FOR_SENDER
        with pytest.raises(Permanent, match="invalid file_id"):
            await anext(telegram.fetch("nothing"))


class TestGoingOut:
    async def test_a_message_is_posted_edited_marked_and_deleted(
        self, api: BotApi, telegram: Platform
    ) -> None:
        asked = api.write(ADA, "hello")
        receipt = await telegram.perform(
            post("**hi** 🙂 `x`", reply_to=f"{ADA}/{asked}", choices=("yes", "no"))
        )
        (shown,) = await api.shown(ADA)
        assert receipt == Receipt(external_id=f"{ADA}/{shown.id}")
        assert (shown.text, shown.raw["reply_to_message"]["message_id"]) == ("hi 🙂 x", asked)
        assert [mark["type"] for mark in shown.raw["entities"]] == ["bold", "code"]
        assert len(shown.raw["reply_markup"]["inline_keyboard"]) == 2
        assert api.made("sendMessage")[0]["link_preview_options"] == {"is_disabled": True}

        change = Edit(key=KEY, address=at(ADA), receipt=receipt.external_id, text="*bye*")
        assert await telegram.perform(change) == receipt
        assert await telegram.perform(change) == receipt, "the same again is no failure"
        (shown,) = await api.shown(ADA)
        assert (shown.text, "reply_markup" in shown.raw) == ("bye", False)

        react = React(address=at(ADA), external_id=f"{ADA}/{asked}", emoji="👀")
        await telegram.perform(react)
        assert api.chats.reactions[ADA, asked] == [{"type": "emoji", "emoji": "👀"}]

        delete = Delete(address=at(ADA), receipt=receipt.external_id)
        await telegram.perform(delete)
        await telegram.perform(delete)
        assert await api.shown(ADA) == []
        with pytest.raises(NotFound):
            await telegram.perform(change)

    async def test_a_reply_to_what_is_gone_is_shown_all_the_same(
        self, api: BotApi, telegram: Platform
    ) -> None:
        await telegram.perform(post("hi", reply_to=f"{ADA}/999"))
        await telegram.perform(post("hi", reply_to=f"{ADA}/click/3"))
        assert len(await api.shown(ADA)) == 2

    async def test_an_answer_goes_to_its_topic(self, api: BotApi, telegram: Platform) -> None:
        await telegram.perform(post("hi", CLUB, thread="7"))
        await telegram.typing(at(CLUB, "7"))
        (shown,) = await api.shown(CLUB)
        assert shown.thread == "7"
        assert api.made("sendChatAction")[0]["message_thread_id"] == 7

    async def test_files_go_out_by_their_kind(self, api: BotApi, telegram: Platform) -> None:
        def upload(name: str, mime: str, data: bytes, caption: str = "") -> Upload:
            return Upload(
                key=KEY, address=at(ADA), name=name, mime=mime, data=data, caption=caption
            )

        await telegram.perform(upload("a.png", "image/png", PNG, "a *cat*"))
        await telegram.perform(upload("ä b.txt", "text/plain", b"words"))
        await telegram.perform(upload("odd.png", "image/png", b"not an image"))
        await telegram.perform(upload('../"a"\r\nX: y', "text/plain\r\nX: y", b"words"))
        photo, document, odd, sly = await api.shown(ADA)
        assert (photo.text, len(photo.raw["photo"])) == ("a cat", 1)
        assert api.chats.files[photo.raw["photo"][0]["file_id"]] == PNG
        assert document.raw["document"]["file_name"] == "ä b.txt"
        assert odd.raw["document"]["file_name"] == "odd.png", "no photo, so a file"
        assert sly.raw["document"]["file_name"] == "..__a___X: y"

        api.fail("sendDocument", BotApiFault(status=413, description="Request Entity Too Large"))
        with pytest.raises(Permanent, match="too large"):
            await telegram.perform(upload("big", "a/b", bytes(2 * 1024 * 1024)))

    @pytest.mark.parametrize("letter", ["x", "🙂"])
    async def test_texts_around_the_limit_are_taken_whole_or_divided(
        self, api: BotApi, telegram: Platform, letter: str
    ) -> None:
        units = len(letter.encode("utf-16-le")) // 2
        capabilities = telegram.capabilities(at(ADA))
        for text in (letter * (4096 // units - 1), letter * (4096 // units)):
            assert plan_parts(text, capabilities, size=telegram.size) == (text,)
            await telegram.perform(post(text))
        over = letter * (4096 // units + 1)
        parts = plan_parts(over, capabilities, size=telegram.size)
        assert len(parts) == 2
        for part in parts:
            await telegram.perform(post(part))
        with pytest.raises(Permanent, match="too long"):
            await telegram.perform(post(over))
        assert "".join(each.text for each in (await api.shown(ADA))[2:]) == over

    async def test_the_torture_text_is_taken_whole_and_in_pieces(
        self, api: BotApi, telegram: Platform, bot: MakeBot
    ) -> None:
        plain = bot(api.url, api.token, rich=False)
        await plain.connect()
        text = TORTURE.read_text()
        parts = plan_parts(text, telegram.capabilities(at(ADA)), size=telegram.size)
        for part in parts:
            await telegram.perform(post(part))
            await plain.perform(post(part))

        shown = [each.text for each in await api.shown(ADA)]
        assert len(shown) == 2 * len(parts)
        for part, *seen in zip(parts, shown[::2], shown[1::2], strict=True):
            for each in seen:
                assert words(part) - words(each) <= MARKUP

    async def test_a_group_that_moved_is_followed(self, api: BotApi, telegram: Platform) -> None:
        words = "Bad Request: group chat was upgraded to a supergroup chat"
        api.fail("sendMessage", BotApiFault(status=400, description=words, moved_to=CLUB))
        receipt = await telegram.perform(post("hi", -55))
        assert receipt.external_id.startswith(f"{CLUB}/")
        await telegram.perform(post("again", -55))
        assert [each.text for each in await api.shown(CLUB)] == ["hi", "again"]
        assert [call["chat_id"] for call in api.made("sendMessage")] == [-55, CLUB, CLUB]


class TestMoved:
    """Checks a group that becomes a supergroup, and has another number from then on."""

    OLD = -55

    async def bubble(self, telegram: Platform) -> str:
        return await telegram.preview(preview("half", Streaming.EDIT, self.OLD))

    def final(self, receipt: str, text: str = "half and half") -> Edit:
        return Edit(key=KEY, address=at(self.OLD), receipt=receipt, text=text)

    async def test_edits_follow(self, api: BotApi, telegram: Platform) -> None:
        receipt = await self.bubble(telegram)
        api.chats.migrate(self.OLD, CLUB, keeps_messages=True)

        more = preview("half and", Streaming.EDIT, self.OLD, receipt=receipt, shown="half")
        assert await telegram.preview(more) == receipt
        assert (await telegram.perform(self.final(receipt))).external_id == receipt

        assert [each.text for each in await api.shown(CLUB)] == ["half and half"]
        chats = [call["chat_id"] for call in api.made("editMessageText")]
        assert chats == [self.OLD, CLUB, CLUB], "the move is remembered"

    async def test_another_process_learns_of_the_move_from_the_refusal(
        self, api: BotApi, telegram: Platform, bot: MakeBot
    ) -> None:
        receipt = await self.bubble(telegram)
        api.chats.migrate(self.OLD, CLUB, keeps_messages=True)
        await telegram.perform(self.final(receipt))

        successor = bot(api.url, api.token)
        await successor.connect()
        await successor.perform(self.final(receipt, "replayed"))

        assert [each.text for each in await api.shown(CLUB)] == ["replayed"]

    async def test_a_message_that_did_not_come_along_is_posted_anew(
        self, api: BotApi, telegram: Platform
    ) -> None:
        receipt = await self.bubble(telegram)
        api.chats.migrate(self.OLD, CLUB, keeps_messages=False)
        with pytest.raises(NotFound):
            await telegram.perform(self.final(receipt))
        await telegram.perform(post("half and half", self.OLD))
        assert [each.text for each in await api.shown(CLUB)] == ["half and half"]

    async def test_what_now_has_its_number_and_is_not_ours_is_left_alone(
        self, api: BotApi, telegram: Platform
    ) -> None:
        receipt = await self.bubble(telegram)
        api.chats.migrate(self.OLD, CLUB, keeps_messages=False)
        fixed = "Bad Request: message can't be edited"
        api.fail("editMessageText", BotApiFault(status=400, description=fixed))
        with pytest.raises(NotFound):
            await telegram.perform(self.final(receipt))

    async def test_everything_else_follows_too(self, api: BotApi, telegram: Platform) -> None:
        receipt = await self.bubble(telegram)
        asked = api.write(self.OLD, "well?")
        api.chats.migrate(self.OLD, CLUB, keeps_messages=True)

        mark = React(address=at(self.OLD), external_id=f"{self.OLD}/{asked}", emoji="👀")
        await telegram.perform(mark)
        await telegram.typing(at(self.OLD))
        file = Upload(key=KEY, address=at(self.OLD), name="a.txt", mime="text/plain", data=b"words")
        await telegram.perform(file)
        await telegram.perform(Delete(address=at(self.OLD), receipt=receipt))

        assert api.chats.reactions[CLUB, asked] == [{"type": "emoji", "emoji": "👀"}]
        assert api.chats.actions == [(CLUB, "typing")]
        (left,) = await api.shown(CLUB)
        assert left.raw["document"]["file_name"] == "a.txt"

    async def test_a_message_that_is_gone_bears_no_mark(
        self, api: BotApi, telegram: Platform
    ) -> None:
        asked = api.write(self.OLD, "well?")
        api.chats.migrate(self.OLD, CLUB, keeps_messages=False)
        mark = React(address=at(self.OLD), external_id=f"{self.OLD}/{asked}", emoji="👀")
        await telegram.perform(mark)
        assert api.chats.reactions == {}


class TestRefused:
    """Checks refusals that another form of the same words, or another place for them, can heal."""

    @pytest.mark.parametrize(
        "words",
        ["message thread not found", "TOPIC_DELETED", "TOPIC_CLOSED", "TOPIC_ID_INVALID"],
    )
    @pytest.mark.parametrize("text", ["hi", TABLE])
    async def test_a_topic_that_is_gone_is_named(
        self, api: BotApi, telegram: Platform, words: str, text: str
    ) -> None:
        for method in ("sendMessage", "sendRichMessage"):
            api.fail(method, BotApiFault(status=400, description=f"Bad Request: {words}"))
        before = len(api.calls)
        with pytest.raises(ThreadGone):
            await telegram.perform(post(text, CLUB, thread="7"))
        assert len(api.calls) == before + 1, "nothing else is tried"

    async def test_without_a_topic_there_is_none_to_leave(
        self, api: BotApi, telegram: Platform
    ) -> None:
        closed = BotApiFault(status=400, description="Bad Request: TOPIC_CLOSED")
        api.fail("sendMessage", closed)
        with pytest.raises(Permanent) as refused:
            await telegram.perform(post("hi", CLUB))
        assert not isinstance(refused.value, ThreadGone)

    @pytest.mark.parametrize(
        "words",
        [
            "can't parse entities: unsupported start tag",
            "ENTITY_BOUNDS_INVALID",
            "message text is empty",
        ],
    )
    async def test_marks_that_are_refused_are_named(
        self, api: BotApi, telegram: Platform, words: str
    ) -> None:
        receipt = await telegram.perform(post("before"))
        edit = Edit(key=KEY, address=at(ADA), receipt=receipt.external_id, text="*hi*")
        fault = BotApiFault(status=400, description=f"Bad Request: {words}")
        for method in ("sendMessage", "editMessageText", "sendMessageDraft"):
            api.fail(method, fault)
        with pytest.raises(Unrenderable):
            await telegram.perform(post("*hi*"))
        with pytest.raises(Unrenderable):
            await telegram.perform(edit)
        with pytest.raises(Unrenderable):
            await telegram.preview(preview("*hi*", Streaming.DRAFT))

    async def test_a_plain_text_has_neither_marks_nor_form(
        self, api: BotApi, telegram: Platform
    ) -> None:
        api.chats.refuses_marks = True
        receipt = await telegram.perform(post(TABLE, is_plain=True, choices=("yes",)))
        (shown,) = await api.shown(ADA)
        assert shown.text == TABLE
        assert len(shown.raw["reply_markup"]["inline_keyboard"]) == 1
        edit = Edit(
            key=KEY, address=at(ADA), receipt=receipt.external_id, text="**b** @all", is_plain=True
        )
        await telegram.perform(edit)
        (shown,) = await api.shown(ADA)
        assert shown.text == "**b** @\u2060all"
        assert all("entities" not in call.params for call in api.calls[-2:])

    async def test_a_plain_text_that_its_signs_make_too_long_goes_without_them(
        self, api: BotApi, telegram: Platform
    ) -> None:
        text = " ".join(["**ten words**"] * 340)
        assert telegram.size(text) <= 4096 < len(text)
        await telegram.perform(post(text, is_plain=True))
        (shown,) = await api.shown(ADA)
        assert shown.text == text.replace("*", "")

    async def test_a_plain_text_that_is_refused_is_refused_for_good(
        self, api: BotApi, telegram: Platform
    ) -> None:
        api.fail(
            "sendMessage", BotApiFault(status=400, description="Bad Request: too many entities")
        )
        with pytest.raises(Permanent) as refused:
            await telegram.perform(post("hi", is_plain=True))
        assert not isinstance(refused.value, Unrenderable)

    @pytest.mark.parametrize("mime", ["image/png", "text/plain"])
    async def test_a_caption_that_is_refused_goes_without_marks(
        self, api: BotApi, telegram: Platform, mime: str
    ) -> None:
        api.chats.refuses_marks = True
        file = Upload(
            key=KEY, address=at(ADA), name="a.png", mime=mime, data=PNG, caption="a **cat**"
        )
        await telegram.perform(file)
        (shown,) = await api.shown(ADA)
        assert shown.text == "a **cat**"
        assert ("photo" in shown.raw) == (mime == "image/png")


class TestStreaming:
    async def test_drafts_in_private_end_with_the_message(
        self, api: BotApi, telegram: Platform
    ) -> None:
        assert telegram.capabilities(at(ADA)).streaming is Streaming.DRAFT
        for text in ("a", "a **b**", "a **b** c"):
            assert await telegram.preview(preview(text, Streaming.DRAFT)) == ""
        assert [draft.text for draft in api.chats.drafted] == ["a", "a b", "a b c"]
        assert len({draft.id for draft in api.chats.drafted}) == 1
        assert all(draft.can_stop for draft in api.chats.drafted)
        assert await api.shown(ADA) == []

        await telegram.perform(post("a **b** c."))
        assert [each.text for each in await api.shown(ADA)] == ["a b c."]
        assert api.chats.drafts == {}

    async def test_a_table_is_streamed_and_sent_as_a_rich_message(
        self, api: BotApi, telegram: Platform
    ) -> None:
        await telegram.preview(preview("Well", Streaming.DRAFT))
        await telegram.preview(preview(TABLE, Streaming.DRAFT))
        assert [draft.is_rich for draft in api.chats.drafted] == [False, True]
        receipt = await telegram.perform(post(TABLE))
        (shown,) = await api.shown(ADA)
        assert shown.raw["rich_message"] == {"markdown": TABLE}

        more = Edit(
            key=KEY, address=at(ADA), receipt=receipt.external_id, text=TABLE + "\n| a | 1 |"
        )
        await telegram.perform(more)
        await telegram.perform(more)
        (shown,) = await api.shown(ADA)
        assert shown.raw["rich_message"]["markdown"].endswith("| a | 1 |")

    async def test_a_rich_message_that_is_refused_goes_out_plain_once(
        self, api: BotApi, telegram: Platform
    ) -> None:
        invalid = BotApiFault(status=400, description="Bad Request: RICH_MESSAGE_EMAIL_INVALID")
        api.fail("sendRichMessage", invalid)
        await telegram.perform(post(TABLE))
        (shown,) = await api.shown(ADA)
        assert shown.text.startswith("Prices")
        await telegram.perform(post(TABLE))
        assert "rich_message" in (await api.shown(ADA))[1].raw, "the next one is tried again"

    async def test_a_rich_message_whose_fate_is_unknown_is_not_sent_again(
        self, api: BotApi, telegram: Platform
    ) -> None:
        api.fail("sendRichMessage", BotApiFault(is_lost=True))
        with pytest.raises(Ambiguous):
            await telegram.perform(post(TABLE))
        assert len(await api.shown(ADA)) == 1

    async def test_a_bubble_is_edited_in_groups(self, api: BotApi, telegram: Platform) -> None:
        assert telegram.capabilities(at(CLUB)).streaming is Streaming.EDIT
        receipt = await telegram.preview(preview("a", Streaming.EDIT, CLUB))
        for text in ("a b", "a b", TABLE):
            more = preview(text, Streaming.EDIT, CLUB, receipt=receipt, shown="a")
            assert await telegram.preview(more) == receipt
        await telegram.perform(Edit(key=KEY, address=at(CLUB), receipt=receipt, text="a b c"))
        assert [each.text for each in await api.shown(CLUB)] == ["a b c"]

    async def test_an_older_server_gets_what_it_knows(self, bot: MakeBot) -> None:
        newer = {"sendRichMessage", "sendRichMessageDraft", "sendMessageDraft"}
        async with BotApi(CLOCK, unknown=frozenset(newer)) as api:
            platform = bot(api.url, api.token)
            await platform.connect()
            with pytest.raises(Unsupported):
                await platform.preview(preview("a", Streaming.DRAFT))
            await platform.perform(post(TABLE))
            (shown,) = await api.shown(ADA)
        assert shown.text.startswith("Prices")
        assert len(api.made("sendRichMessage")) == 1, "asked once, whether it is known"

    async def test_drafts_that_a_place_refuses_are_unsupported(
        self, api: BotApi, telegram: Platform
    ) -> None:
        with pytest.raises(Unsupported):
            await telegram.preview(preview("a", Streaming.DRAFT, CLUB))


class TestGoingWrong:
    async def test_a_wrong_token_says_what_to_do(self, api: BotApi, bot: MakeBot) -> None:
        platform = bot(api.url, "700:WRONG")
        with pytest.raises(Permanent, match=r"@BotFather.*token of \[adapters.telegram\]") as error:
            await platform.connect()
        assert "WRONG" not in str(error.value)

    async def test_a_server_that_is_gone_is_tried_again(self, bot: MakeBot) -> None:
        async with BotApi(CLOCK) as api:
            platform = bot(api.url, api.token)
            await platform.connect()
            inbox = Inbox()
            task = asyncio.create_task(platform.receive(inbox))
            await api.wait(lambda: bool(api.made("getUpdates")))
        with pytest.raises(Transient):
            await task
        with pytest.raises(Transient, match="cannot be reached"):
            await platform.connect()
        with pytest.raises(Transient):
            await platform.perform(post("hi"))
        with pytest.raises(Transient):
            await anext(platform.fetch("x"))

    async def test_a_wait_is_passed_on_and_nothing_is_tried_again(
        self, api: BotApi, telegram: Platform
    ) -> None:
        api.fail("sendMessage", BotApiFault(status=429, retry_after=17))
        with pytest.raises(Transient) as error:
            await telegram.perform(post("hi"))
        assert error.value.retry_after_s == 17
        assert len(api.made("sendMessage")) == 1
        assert api.impatient == 0

    @pytest.mark.parametrize(
        "method", ["getMe", "setMyCommands", "deleteWebhook", "sendRichMessage"]
    )
    async def test_a_connect_that_is_told_to_wait_asks_nothing_more(
        self, api: BotApi, bot: MakeBot, method: str
    ) -> None:
        platform = bot(api.url, api.token)
        api.fail(method, BotApiFault(status=429, retry_after=17))
        with pytest.raises(Transient) as error:
            await platform.connect()
        assert error.value.retry_after_s == 17
        assert api.calls[-1].method == method
        assert api.impatient == 0

    async def test_commands_that_always_have_to_wait_do_not_keep_the_bot_away(
        self, bot: MakeBot
    ) -> None:
        async with BotApi(CLOCK) as api:
            platform = bot(api.url, api.token)
            for _ in range(2):
                api.fail("setMyCommands", BotApiFault(status=429))
            with pytest.raises(Transient):
                await platform.connect()
            assert await platform.connect() == "700"

    async def test_a_wait_for_the_answer_to_a_press_is_passed_on_and_nothing_is_lost(
        self, api: BotApi, telegram: Platform
    ) -> None:
        inbox = Inbox()
        shown = await telegram.perform(post("Shall I?", choices=("yes",)))
        api.click(ADA, int(shown.external_id.split("/")[1]), "yes")
        api.write(ADA, "and then")
        api.fail("answerCallbackQuery", BotApiFault(status=429, retry_after=17))
        with pytest.raises(Transient) as error:
            async with asyncio.timeout(10):
                await telegram.receive(inbox)
        assert error.value.retry_after_s == 17
        assert [each.text for each in inbox.taken] == ["yes"]
        async with receiving_on(telegram, inbox):
            await inbox.wait(2)
        assert [each.text for each in inbox.taken] == ["yes", "and then"]

    @pytest.mark.parametrize("fault", [BotApiFault(is_lost=True), BotApiFault(status=502)])
    async def test_an_unanswered_post_may_have_arrived_and_an_edit_may_be_repeated(
        self, api: BotApi, telegram: Platform, fault: BotApiFault
    ) -> None:
        receipt = await telegram.perform(post("hi"))
        api.fail("sendMessage", fault)
        api.fail("editMessageText", fault)
        with pytest.raises(Ambiguous):
            await telegram.perform(post("again"))
        with pytest.raises(Transient) as caught:
            await telegram.perform(
                Edit(key=KEY, address=at(ADA), receipt=receipt.external_id, text="ho")
            )
        assert "again" not in without_promise(caught.value.message), "once it is parked, it is not"

    async def test_a_wait_is_told_by_a_server_that_may_have_done_it(
        self, api: BotApi, telegram: Platform
    ) -> None:
        api.fail("sendMessage", BotApiFault(status=503, retry_after=30))
        with pytest.raises(Ambiguous) as raised:
            await telegram.perform(post("hi"))
        assert raised.value.retry_after_s == 30

    async def test_a_server_that_never_answers_leaves_the_fate_unknown(self, api: BotApi) -> None:
        wire = Api(api.url, Secret(api.token), patience_s=0.2)
        api.fail("sendMessage", BotApiFault(is_hung=True))
        api.fail("getMe", BotApiFault(is_hung=True))
        with pytest.raises(Ambiguous, match="look into the chat"):
            await wire.send("sendMessage", {"chat_id": ADA, "text": "hi"})
        with pytest.raises(Transient):
            await wire.ask("getMe")
        await wire.close()
        assert len(await api.shown(ADA)) == 1

    async def test_a_person_who_blocked_the_bot_is_told_apart(
        self, api: BotApi, telegram: Platform
    ) -> None:
        words = "Forbidden: bot was blocked by the user"
        api.fail("sendMessage", BotApiFault(status=403, description=words))
        with pytest.raises(Permanent, match="unblock"):
            await telegram.perform(post("hi"))

    async def test_no_error_tells_the_token(self, bot: MakeBot) -> None:
        platform = bot("http://127.0.0.1:1", "700:CANARY\n")
        for call in (platform.connect(), platform.perform(post("hi"))):
            with pytest.raises((Transient, Permanent)) as error:
                await call
            assert "CANARY" not in f"{error.value!r} {error.value.__cause__!r}"


class Hook:
    """Plays a program's public address: it hands what arrives to the adapter, as the gateway
    does."""

    def __init__(self) -> None:
        self.url = ""
        self.platform: Platform | None = None
        self.inbox = Inbox()
        self.headers: Mapping[str, str] = {}
        self.answers: list[int] = []

    async def serve(self, request: web.Request) -> web.Response:
        assert self.platform is not None
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = await self.platform.answer(
            HookRequest(
                method=request.method,
                path="",
                headers={**headers, **self.headers},
                query={},
                body=await request.read(),
            ),
            self.inbox,
        )
        self.answers.append(answer.status)
        return web.Response(status=answer.status, body=answer.body)


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application()
    app.router.add_post("/hooks/telegram/{path:.*}", hook.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    hook.url = f"http://{host}:{port}/hooks/telegram"
    yield hook
    await runner.cleanup()


class TestHook:
    @pytest.fixture
    async def platform(self, api: BotApi, hook: Hook, bot: MakeBot) -> Platform:
        platform = bot(api.url, api.token, mode="webhook", hook_url=hook.url)
        hook.platform = platform
        return platform

    async def test_updates_are_sent_until_they_are_taken(
        self, api: BotApi, hook: Hook, platform: Platform, schema: Callable[[BotApi], None]
    ) -> None:
        hook.inbox.failures = [Transient("full"), Ambiguous("perhaps")]
        await platform.connect()
        api.write(ADA, "one")
        api.write(ADA, "two")
        taken = await hook.inbox.wait(2)
        await api.wait(lambda: not api.updates)
        assert [each.text for each in taken] == ["one", "two"]
        assert hook.answers == [503, 503, 200, 200]
        schema(api)

    async def test_nobody_else_is_heard(self, api: BotApi, hook: Hook, platform: Platform) -> None:
        await platform.connect()
        update = b'{"update_id":1,"message":{"message_id":1,"chat":{"id":1},"text":"x"}}'
        for secret in ("", "wrong", "ünrecht", "\udcff"):
            request = HookRequest(
                method="POST", path="", headers={SECRET: secret}, query={}, body=update
            )
            assert (await platform.answer(request, hook.inbox)).status == 401
        assert hook.inbox.offered == hook.inbox.signs == 0

    async def test_who_polls_has_no_hook(self, telegram: Platform) -> None:
        inbox = Inbox()
        request = HookRequest(method="POST", path="", headers={}, query={}, body=b"{}")
        assert (await telegram.answer(request, inbox)).status == 404

    async def test_a_hook_needs_an_address(self, api: BotApi, bot: MakeBot) -> None:
        platform = bot(api.url, api.token, mode="webhook")
        with pytest.raises(Permanent, match=r"base_url of \[server\]"):
            await platform.connect()

    async def test_a_hook_that_another_took_is_noticed(
        self, api: BotApi, hook: Hook, platform: Platform, bot: MakeBot
    ) -> None:
        clock = VirtualClock()
        other = bot(api.url, api.token, clock=clock, mode="webhook", hook_url="http://127.0.0.1:1/")
        await platform.connect()
        await other.connect()
        with pytest.raises(Transient, match="another program has taken over"):
            await platform.receive(hook.inbox)
        task = asyncio.create_task(other.receive(hook.inbox))
        await api.wait(lambda: hook.inbox.signs == 1)
        clock.advance(61)
        await api.wait(lambda: hook.inbox.signs == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_polling_takes_what_waited_for_the_hook(
        self, api: BotApi, hook: Hook, platform: Platform, telegram: Platform
    ) -> None:
        hook.inbox.failures = [Transient("full")] * 1000
        await platform.connect()
        api.write(ADA, "hello")
        await api.wait(lambda: hook.inbox.offered > 0)
        inbox = Inbox()
        async with receiving(telegram, inbox):
            assert [each.text for each in await inbox.wait(1)] == ["hello"]


class TestOthers:
    """Checks the adapter on servers that other people wrote."""

    async def test_a_server_of_others_is_served_by_polling(
        self, telegram_polling: TelegramTestApiControl, bot: MakeBot
    ) -> None:
        peer, inbox = telegram_polling, Inbox()
        ada, place = peer.alice, peer.alice.id
        platform = bot(peer.api_url, peer.bot_token)
        async with receiving(platform, inbox):
            await peer.write(ada, "hello")
            await peer.write(ada, "/stop")
            assert [each.text for each in await inbox.wait(2)] == ["hello", "/stop"]

            receipt = await platform.perform(post("**hi** 🙂", place, choices=("yes", "no")))
            (shown,) = await peer.shown(ada)
            assert (shown.text, receipt.external_id) == ("hi 🙂", f"{place}/{shown.id}")

            await peer.click(ada, shown.id, "yes")
            assert (await inbox.wait(3))[2].text == "yes"

            with pytest.raises(Unsupported):
                await platform.preview(preview("h", Streaming.DRAFT, place))
            bubble = await platform.preview(preview("h", Streaming.EDIT, place))
            more = preview("hello", Streaming.EDIT, place, receipt=bubble, shown="h")
            assert await platform.preview(more) == bubble
            await platform.perform(Edit(key=KEY, address=at(place), receipt=bubble, text="hello!"))
            assert [each.text for each in await peer.shown(ada)] == ["hi 🙂", "hello!"]

            delete = Delete(address=at(place), receipt=bubble)
            await platform.perform(delete)
            await platform.perform(delete)
            assert [each.text for each in await peer.shown(ada)] == ["hi 🙂"]

            parts = plan_parts(
                TORTURE.read_text(), platform.capabilities(at(place)), size=platform.size
            )
            for part in parts:
                await platform.perform(post(part, place))
            assert len(await peer.shown(ada)) == 1 + len(parts)

    async def test_a_server_of_others_is_served_by_webhook(
        self, telegram_webhook: TelemelyaControl, hook: Hook, bot: MakeBot
    ) -> None:
        peer = telegram_webhook
        chat = peer.chat
        platform = bot(
            peer.api_url,
            peer.bot_token,
            mode="webhook",
            hook_url=hook.url,
            webhook_secret=Secret("s3"),
        )
        hook.platform = platform
        # This server sends no secret, so the hook adds it, as Telegram would.
        hook.headers = {SECRET: "s3"}
        await platform.connect()

        await peer.write("hello")
        file = await peer.send_photo(PNG, caption="look")
        first, photo = await hook.inbox.wait(2)
        assert (first.text, photo.files[0].reference) == ("hello", file)
        fetched = [chunk async for chunk in platform.fetch(photo.files[0].reference)]
        assert b"".join(fetched) == PNG

        receipt = await platform.perform(post("**hi**", chat, choices=("yes",)))
        change = Edit(key=KEY, address=at(chat), receipt=receipt.external_id, text="ho")
        await platform.perform(change)
        await platform.typing(at(chat))
        await platform.perform(
            Upload(key=KEY, address=at(chat), name="a.png", mime="image/png", data=PNG)
        )
        shown = await peer.shown()
        assert [each.text for each in shown] == ["ho", ""]
        (sent,) = await peer.calls("sendPhoto")
        assert await peer.media(sent["file_id"]) == PNG
        assert len(await peer.calls("sendChatAction")) == 1

        await peer.click(shown[0].id, "yes")
        assert (await hook.inbox.wait(3))[2].text == "yes"
        assert len(await peer.calls("answerCallbackQuery")) == 1

        with pytest.raises(NotFound):
            await platform.perform(
                Edit(key=KEY, address=at(chat), receipt=f"{chat}/99999", text="ho")
            )
        with pytest.raises(Unsupported):
            await platform.preview(preview("h", Streaming.DRAFT, chat))

    async def test_a_server_that_answers_polls_at_once_is_not_asked_without_end(
        self, telegram_polling: TelegramTestApiControl, bot: MakeBot
    ) -> None:
        peer, inbox, clock = telegram_polling, Inbox(), VirtualClock()
        platform = bot(peer.api_url, peer.bot_token, clock=clock)
        await platform.connect()
        task = asyncio.create_task(platform.receive(inbox))

        async def sleepers() -> int:
            return clock.sleepers

        await wait_until(sleepers, bool, clock=CLOCK)
        assert inbox.signs == 1
        clock.advance(1)
        await wait_until(sleepers, bool, clock=CLOCK)
        assert inbox.signs == 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
