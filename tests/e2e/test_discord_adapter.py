"""Checks the Discord adapter over real sockets: its behaviour on simcord, its wire on the twin."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from simcord.backend.models import Channel
from simcord.enums import ChannelType

from perdure.adapters.discord.adapter import make
from perdure.adapters.discord.finding import PAGE, PAGES_MAX
from perdure.adapters.discord.forums import TRIED_S
from perdure.adapters.discord.manifest import DiscordSettings
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming, plan_parts
from perdure.domain.errors import Ambiguous, NotFound, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind
from perdure.domain.kinds import UpdateKind
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    ArrivalReading,
    Delete,
    Edit,
    Platform,
    Post,
    Preview,
    React,
    Sought,
    ThreadGone,
    Unrenderable,
    Unsupported,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.discord.discord_twin import DiscordTwinControl
from perdure.testkit.peers.discord.simcord_server import TOKEN, SimcordServer

DEADLINE_S = 10.0
TORTURE = Path(__file__).parents[1] / "golden" / "torture.md"


class Recorder(Unguarded):
    """Implements the `Inlet` port: takes what it is given, after it has raised each of its
    `refusals`."""

    def __init__(self) -> None:
        self.spoilt: dict[str, str] = {}
        self.taken: list[Arrival] = []
        self.refusals: list[Exception] = []
        self.signs = 0
        self._changed = asyncio.Condition()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken += await opened(arrival, reading)
        async with self._changed:
            self._changed.notify_all()

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        self.spoilt[external_id] = why

    def alive(self) -> None:
        self.signs += 1

    async def until(self, count: int) -> list[Arrival]:
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: len(self.taken) >= count)
        return self.taken


class Bot:
    """Runs an adapter and what it hears, and keeps it connected as the gateway does."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.inlet = Recorder()
        self.failures: list[Transient] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self.platform.connect()
            try:
                await self.platform.receive(self.inlet)
            except Transient as failure:
                self.failures.append(failure)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.platform.close()


@pytest.fixture
async def server() -> AsyncIterator[SimcordServer]:
    async with SimcordServer() as server:
        yield server


def settings(server: SimcordServer, **more: object) -> DiscordSettings:
    values = {"token": Secret(TOKEN), "api_url": server.api_url, **more}
    return DiscordSettings(**values)  # type: ignore[arg-type]


def platform_of(chosen: DiscordSettings, folder: Path) -> Platform:
    context = AdapterContext(clock=SystemClock(), entropy=SystemEntropy(), folder=folder)
    return make(chosen, context)


@contextlib.asynccontextmanager
async def running(server: SimcordServer, folder: Path, **more: object) -> AsyncIterator[Bot]:
    bot = Bot(platform_of(settings(server, **more), folder))
    await bot.start()
    try:
        await until(lambda: server.gateway.connected == 1)
        await until(lambda: bool(server.world.commands) or "slash_commands" in more)
        yield bot
    finally:
        await bot.stop()
        await until(lambda: server.gateway.connected == 0)


@pytest.fixture
async def bot(server: SimcordServer, tmp_path: Path) -> AsyncIterator[Bot]:
    async with running(server, tmp_path) as bot:
        yield bot


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def until_async(look: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await look():
            await asyncio.sleep(0.01)


def in_general(server: SimcordServer) -> Address:
    return Address(adapter="discord", account=server.bot, place=str(server.general.id))


def post(address: Address, text: str, key: str = "prt_1", **more: object) -> Post:
    return Post(key=PartId(key), address=address, text=text, **more)  # type: ignore[arg-type]


class TestIn:
    async def test_the_account_is_the_bots_id(self, server: SimcordServer, tmp_path: Path) -> None:
        platform = platform_of(settings(server), tmp_path)
        try:
            assert await platform.connect() == server.bot
        finally:
            await platform.close()

    async def test_a_direct_message_is_private(self, server: SimcordServer, bot: Bot) -> None:
        channel = server.direct(server.alice)
        message = server.write(server.alice, channel, "hello")

        (arrival,) = await bot.inlet.until(1)

        assert arrival.kind == UpdateKind.MESSAGE
        assert arrival.external_id == f"{channel.id}/{message}"
        assert arrival.place == str(channel.id)
        assert arrival.place_kind is PlaceKind.PRIVATE
        assert (arrival.sender.id, arrival.sender.name) == (str(server.alice.id), "alice")
        assert arrival.text == "hello"
        assert bot.inlet.signs > 2

    async def test_in_a_channel_a_mention_addresses_the_bot(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.write(server.alice, server.general, "among ourselves")
        server.write(
            server.alice, server.general, f"<@{server.bot}> what time is it, <@{server.bob.id}>?"
        )

        aside, addressed = await bot.inlet.until(2)

        assert aside.place_kind is PlaceKind.GROUP
        assert not aside.is_addressed
        assert addressed.is_addressed
        assert addressed.text == "what time is it, @bob?"
        assert addressed.label == "#general (Harbour)"

    async def test_everyone_is_not_the_bot(self, server: SimcordServer, bot: Bot) -> None:
        server.write(server.alice, server.general, "@everyone lunch")

        (arrival,) = await bot.inlet.until(1)

        assert not arrival.is_addressed

    async def test_a_thread_belongs_to_its_channel(self, server: SimcordServer, bot: Bot) -> None:
        thread = server.thread(server.general, "boats")
        server.write(server.alice, thread, "in here")

        (arrival,) = await bot.inlet.until(1)

        assert arrival.place == str(server.general.id)
        assert arrival.thread == str(thread.id)
        assert arrival.label == "#general / boats (Harbour)"

    async def test_a_reply_to_the_bot_addresses_it_and_quotes(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        receipt = await bot.platform.perform(post(in_general(server), "I am here"))
        server.write(
            server.alice, server.general, "good", reply_to=receipt.external_id.partition("/")[2]
        )

        (arrival,) = await bot.inlet.until(1)

        assert arrival.is_addressed
        assert arrival.quote == "I am here"

    async def test_roles_come_by_id_and_by_name(self, server: SimcordServer, bot: Bot) -> None:
        carol = server.person("carol", roles=["harbour master"])
        server.write(carol, server.general, "hello")

        (arrival,) = await bot.inlet.until(1)

        (role,) = server.guild.members[carol.id].role_ids
        assert arrival.sender.roles == (str(role), "harbour master")

    async def test_other_bots_are_bots_and_our_own_words_no_arrivals(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        robot = server.person("robot", is_bot=True)
        await bot.platform.perform(post(in_general(server), "mine"))
        server.write(robot, server.general, "beep")

        (arrival,) = await bot.inlet.until(1)

        assert arrival.text == "beep"
        assert arrival.sender.is_bot

    async def test_edits_and_deletions_name_their_message(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        message = server.write(server.alice, server.general, "frist")
        server.edit(server.general, message, "first")
        server.edit(server.general, message, "First!")
        server.delete(server.general, message)

        said, *edits, deleted = await bot.inlet.until(4)

        assert [edit.kind for edit in edits] == [UpdateKind.EDIT, UpdateKind.EDIT]
        assert [edit.text for edit in edits] == ["first", "First!"]
        assert {edit.target for edit in edits} == {said.external_id}
        assert len({each.external_id for each in bot.inlet.taken}) == 4
        assert (deleted.kind, deleted.target) == (UpdateKind.DELETE, said.external_id)
        assert deleted.sender.id == str(server.alice.id)

    async def test_a_file_is_fetched_through_its_message(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        data = bytes(range(256)) * 1000
        channel = server.direct(server.alice)
        message = server.write(server.alice, channel, "look", files=[("chart.png", data)])
        voice = server.write(
            server.alice, channel, "", files=[("voice-message.ogg", b"OggS")], flags=1 << 13
        )

        pictured, spoken = await bot.inlet.until(2)

        (file,) = pictured.files
        assert (file.name, file.mime, file.size) == ("chart.png", "image/png", len(data))
        assert file.reference.startswith(f"{channel.id}/{message}/")
        assert not file.is_voice
        assert spoken.files[0].is_voice
        assert b"".join([chunk async for chunk in bot.platform.fetch(file.reference)]) == data
        server.delete(channel, voice)
        with pytest.raises(Permanent, match="gone"):
            _ = [chunk async for chunk in bot.platform.fetch(spoken.files[0].reference)]


class TestMenu:
    async def test_our_commands_are_on_the_menu_and_arrive_as_text(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        offered = {name for name, _ in server.world.commands[None]}
        assert {"stop", "undo", "help"} <= offered
        assert "restart" not in offered

        stop = server.command(server.alice, server.general, "stop", text="all")
        server.command(server.alice, server.direct(server.bob), "undo", count=2)

        first, second = await bot.inlet.until(2)

        assert (first.text, second.text) == ("/stop all", "/undo 2")
        assert first.is_addressed
        assert first.place == str(server.general.id)
        assert second.place_kind is PlaceKind.PRIVATE
        assert first.sender.id == str(server.alice.id)
        # Only the person sees the acknowledgement, and it is deleted.
        record = server.world.interactions[stop]
        await until(lambda: record.responded and server.requests("DELETE", "/webhooks/*") != [])
        assert record.ephemeral
        assert server.shown(server.general) == []

    async def test_it_is_left_alone_where_it_is_not_wanted(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        async with running(server, tmp_path, slash_commands=False) as bot:
            server.write(server.alice, server.general, "hello")
            await bot.inlet.until(1)

        assert server.world.commands == {}

    async def test_a_click_says_the_word_of_its_button(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        choices = ("allow", "deny", *(f"choice {number}" for number in range(5)))
        receipt = await bot.platform.perform(post(in_general(server), "May I?", choices=choices))
        message = receipt.external_id.partition("/")[2]
        clicked = server.click(server.alice, server.general, message, "deny")

        (arrival,) = await bot.inlet.until(1)

        assert arrival.text == "deny"
        assert arrival.is_addressed
        await until(lambda: server.world.interactions[clicked].responded)
        rows = server.shown(server.general)[0].raw["components"]
        assert [len(row["components"]) for row in rows] == [5, 2]
        await bot.platform.perform(
            Edit(
                key=PartId("prt_1"),
                address=in_general(server),
                receipt=receipt.external_id,
                text="Denied.",
            )
        )
        assert server.shown(server.general)[0].raw["components"] == []

    async def test_an_acknowledgement_that_fails_loses_nothing(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.fail("POST", "/interactions/*", 500)
        server.command(server.alice, server.general, "status")
        server.write(server.alice, server.general, "and then")

        taken = await bot.inlet.until(2)

        assert [arrival.text for arrival in taken] == ["/status", "and then"]
        assert bot.failures == []


class TestOut:
    async def test_a_post_is_shown_once_however_often_its_key_is_tried(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        effect = post(in_general(server), "**Hello**, _you_")

        first = await bot.platform.perform(effect)
        second = await bot.platform.perform(effect)

        assert first == second
        (shown,) = server.shown(server.general)
        assert shown.text == "**Hello**, *you*"
        assert first.external_id == f"{server.general.id}/{shown.id}"
        nonces = {body["nonce"] for body in server.requests("POST", "/channels/*/messages")}
        assert len(nonces) == 1
        assert all(len(nonce) <= 25 for nonce in nonces)

    async def test_a_lost_answer_is_unknown_and_the_same_key_settles_it(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.fail("POST", "/channels/*/messages", 0)

        with pytest.raises(Ambiguous):
            await bot.platform.perform(post(in_general(server), "once"))
        receipt = await bot.platform.perform(post(in_general(server), "once"))

        (shown,) = server.shown(server.general)
        assert receipt.external_id.endswith(shown.id)

    async def test_a_key_that_showed_less_text_shows_all_of_it_in_the_end(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        await bot.platform.perform(post(in_general(server), "beginning"))
        await bot.platform.perform(post(in_general(server), "beginning and end"))

        assert [shown.text for shown in server.shown(server.general)] == ["beginning and end"]

    async def test_a_reply_names_its_message_and_calls_nobody(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        asked = server.write(server.alice, server.general, "?")
        (arrival,) = await bot.inlet.until(1)

        await bot.platform.perform(
            post(
                in_general(server), f"@everyone <@{server.alice.id}>", reply_to=arrival.external_id
            )
        )

        shown = server.shown(server.general)[-1]
        assert shown.raw["message_reference"]["message_id"] == asked
        stored = server.world.get_message(server.general.id, int(shown.id))
        assert not stored.mention_everyone
        assert (stored.ping_user_ids, stored.ping_role_ids) == ([], [])

    async def test_a_thread_is_written_to_and_replies_stay_in_their_channel(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        thread = server.thread(server.general, "boats")
        elsewhere = server.write(server.alice, server.general, "?")
        address = Address(
            adapter="discord",
            account=server.bot,
            place=str(server.general.id),
            thread=str(thread.id),
        )

        await bot.platform.perform(
            post(address, "in here", reply_to=f"{server.general.id}/{elsewhere}")
        )
        await bot.platform.perform(
            post(address, "too", "prt_2", reply_to=f"{server.general.id}/i123")
        )

        assert [shown.text for shown in server.shown(thread)] == ["in here", "too"]

    async def test_edits_and_deletions_may_be_repeated(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        address = in_general(server)
        receipt = (await bot.platform.perform(post(address, "frist"))).external_id
        edit = Edit(key=PartId("prt_1"), address=address, receipt=receipt, text="first")

        assert (await bot.platform.perform(edit)).external_id == receipt
        assert (await bot.platform.perform(edit)).external_id == receipt
        assert [shown.text for shown in server.shown(server.general)] == ["first"]
        await bot.platform.perform(Delete(address=address, receipt=receipt))
        await bot.platform.perform(Delete(address=address, receipt=receipt))
        assert server.shown(server.general) == []
        with pytest.raises(NotFound):
            await bot.platform.perform(edit)

    async def test_our_own_deletion_is_no_arrival(self, server: SimcordServer, bot: Bot) -> None:
        address = in_general(server)
        receipt = (await bot.platform.perform(post(address, "oops"))).external_id
        await bot.platform.perform(Delete(address=address, receipt=receipt))
        server.write(server.alice, server.general, "what was that?")

        assert [each.text for each in await bot.inlet.until(1)] == ["what was that?"]

    async def test_a_message_carries_one_mark_of_ours(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        message = server.write(server.alice, server.general, "work")
        stored = server.world.get_message(server.general.id, int(message))

        async def react(emoji: str) -> list[str]:
            await bot.platform.perform(
                React(
                    address=in_general(server),
                    external_id=f"{server.general.id}/{message}",
                    emoji=emoji,
                )
            )
            return [reaction.emoji for reaction in stored.reactions if reaction.user_ids]

        assert await react("👀") == ["👀"]
        assert await react("👀") == ["👀"]
        assert await react("✅") == ["✅"]
        assert await react("") == []
        assert await react("") == []
        server.delete(server.general, message)
        assert await react("👀") == []

    async def test_a_command_bears_no_mark(self, server: SimcordServer, bot: Bot) -> None:
        await bot.platform.perform(
            React(address=in_general(server), external_id=f"{server.general.id}/i1", emoji="👀")
        )
        assert server.requests("GET", "/channels/*/messages/*") == []

    async def test_a_file_goes_up_whole_with_its_caption(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        data = bytes(range(256)) * 1000
        upload = Upload(
            key=PartId("prt_9"),
            address=in_general(server),
            name='te"st\r\n\u00fc.bin',
            mime="application/octet-stream",
            data=data,
            caption="the *file*",
        )

        first = await bot.platform.perform(upload)
        second = await bot.platform.perform(upload)

        assert first == second
        (shown,) = server.shown(server.general)
        (attachment,) = shown.raw["attachments"]
        assert shown.text == "the *file*"
        assert attachment["size"] == len(data)
        reference = f"{first.external_id}/{attachment['id']}"
        assert b"".join([chunk async for chunk in bot.platform.fetch(reference)]) == data

    async def test_a_growing_answer_is_one_message_that_is_edited(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        def preview(text: str, **more: str) -> Preview:
            return Preview(
                key=PartId("prt_5"),
                address=in_general(server),
                text=text,
                streaming=Streaming.EDIT,
                **more,
            )

        receipt = await bot.platform.preview(preview("Once"))
        assert await bot.platform.preview(preview("Once upon", receipt=receipt)) == receipt
        await bot.platform.perform(
            Edit(
                key=PartId("prt_6"),
                address=in_general(server),
                receipt=receipt,
                text="Once upon a time.",
                shown="Once upon",
            )
        )

        assert [shown.text for shown in server.shown(server.general)] == ["Once upon a time."]
        with pytest.raises(Unsupported):
            await bot.platform.preview(
                Preview(
                    key=PartId("prt_7"),
                    address=in_general(server),
                    text="x",
                    streaming=Streaming.DRAFT,
                )
            )

    async def test_typing_is_shown(self, server: SimcordServer, bot: Bot) -> None:
        await bot.platform.typing(in_general(server))

        assert len(server.requests("POST", "/channels/*/typing")) == 1

    @pytest.mark.parametrize(
        "character", ["x", "\N{GRINNING FACE}", "\N{LATIN SMALL LETTER E WITH ACUTE}"]
    )
    async def test_the_limit_is_counted_in_code_points(
        self, server: SimcordServer, bot: Bot, character: str
    ) -> None:
        limit = bot.platform.capabilities(in_general(server)).text_max

        for length in (limit - 1, limit):
            assert bot.platform.size(character * length) == length
            await bot.platform.perform(
                post(in_general(server), character * length, f"prt_{length}")
            )
        with pytest.raises(Permanent, match="50035"):
            await bot.platform.perform(post(in_general(server), character * (limit + 1), "prt_x"))

        assert [len(shown.text) for shown in server.shown(server.general)] == [limit - 1, limit]

    async def test_torture_is_taken(self, server: SimcordServer, bot: Bot) -> None:
        address = in_general(server)
        capabilities = bot.platform.capabilities(address)
        parts = plan_parts(TORTURE.read_text(), capabilities, size=bot.platform.size)

        for index, part in enumerate(parts):
            await bot.platform.perform(post(address, part, f"prt_{index}"))

        shown = server.shown(server.general)
        assert len(shown) == len(parts) > 1
        for each in shown:
            assert len(each.text) <= 2000
            assert not each.raw["mention_everyone"]


class TestForum:
    """Checks that a message to a forum opens a post there."""

    @pytest.fixture
    def forum(self, server: SimcordServer) -> Channel:
        # A post's id tells its age, so simcord must use the real time.
        server.keep_our_time(SystemClock())
        return server.channel("questions", type=ChannelType.FORUM)

    def into(self, server: SimcordServer, forum: Channel) -> Address:
        return Address(adapter="discord", account=server.bot, place=str(forum.id))

    def posts(self, server: SimcordServer, forum: Channel) -> list[tuple[str, list[str]]]:
        """Return the name of each post and the words in it."""
        threads = [each for each in server.world.channels.values() if each.parent_id == forum.id]
        return [(str(each.name), [shown.text for shown in server.shown(each)]) for each in threads]

    async def test_a_text_opens_a_post_and_what_follows_goes_into_it(
        self, server: SimcordServer, bot: Bot, forum: Channel
    ) -> None:
        into = self.into(server, forum)
        first = await bot.platform.perform(post(into, "## Tides\n\nHigh at **noon**.", "p1"))
        more = post(into, "Low at six.", "p2", after=first.external_id)
        second = await bot.platform.perform(more)
        again = await bot.platform.perform(more)
        file = Upload(
            key=PartId("p3"),
            address=into,
            name="chart.txt",
            mime="text/plain",
            data=b"tide",
            after=second.external_id,
        )
        await bot.platform.perform(file)

        assert again == second
        assert self.posts(server, forum) == [
            ("Tides", ["## Tides\nHigh at **noon**.", "Low at six.", ""])
        ]

    async def test_a_receipt_of_a_post_can_be_changed(
        self, server: SimcordServer, bot: Bot, forum: Channel
    ) -> None:
        into = self.into(server, forum)
        receipt = (await bot.platform.perform(post(into, "Tides"))).external_id
        edit = Edit(key=PartId("e1"), address=into, receipt=receipt, text="High tide")
        await bot.platform.perform(edit)
        assert self.posts(server, forum) == [("Tides", ["High tide"])]

    async def test_every_send_is_a_post_of_its_own(
        self, server: SimcordServer, bot: Bot, forum: Channel
    ) -> None:
        into = self.into(server, forum)
        receipts = {
            (await bot.platform.perform(post(into, "Stand-up", f"p{n}"))).external_id
            for n in range(3)
        }
        assert len(receipts) == 3

    async def test_a_file_opens_a_post_too(
        self, server: SimcordServer, bot: Bot, forum: Channel
    ) -> None:
        file = Upload(
            key=PartId("p1"),
            address=self.into(server, forum),
            name="chart.txt",
            mime="text/plain",
            data=b"tide",
        )
        await bot.platform.perform(file)
        assert self.posts(server, forum) == [("chart.txt", [""])]

    async def test_a_post_whose_answer_was_lost_is_found_again(
        self, server: SimcordServer, bot: Bot, forum: Channel, tmp_path: Path
    ) -> None:
        # Discord takes no nonce for a post, and another process may be the one that looks for it.
        into = self.into(server, forum)
        await bot.platform.perform(post(into, "Other", "p0"))
        server.fail("POST", f"/channels/{forum.id}/threads", 0)
        with pytest.raises(Ambiguous):
            await bot.platform.perform(post(into, "Tides\nHigh at noon.", "p1"))
        other = platform_of(settings(server), tmp_path / "other")
        await other.connect()
        try:
            repeat = post(into, "Tides\nHigh at noon.", "p1", is_repeat=True)
            receipt = await other.perform(repeat)
        finally:
            await other.close()

        assert self.posts(server, forum) == [
            ("Other", ["Other"]),
            ("Tides", ["Tides\nHigh at noon."]),
        ]
        thread, _, message = receipt.external_id.partition("/")
        assert server.world.get_message(int(thread), int(message)).content.startswith("Tides")

    async def test_an_old_post_with_the_same_words_is_another_one(
        self, server: SimcordServer, bot: Bot, forum: Channel
    ) -> None:
        into = self.into(server, forum)
        first = await bot.platform.perform(post(into, "Stand-up", "p0"))
        server.world.advance_clock(-2 * TRIED_S)
        old = await bot.platform.perform(post(into, "Sit-down", "p1"))
        server.world.advance_clock(2 * TRIED_S)
        recent = await bot.platform.perform(post(into, "Stand-up", "p0", is_repeat=True))
        fresh = await bot.platform.perform(post(into, "Sit-down", "p2", is_repeat=True))
        assert recent == first
        assert fresh != old

    async def test_what_people_say_in_a_post_of_ours_is_said_to_us(
        self, server: SimcordServer, bot: Bot, forum: Channel
    ) -> None:
        receipt = await bot.platform.perform(post(self.into(server, forum), "Which day?"))
        thread = int(receipt.external_id.partition("/")[0])
        server.write(server.alice, server.world.channels[thread], "Monday")

        (arrival,) = await bot.inlet.until(1)

        assert (arrival.place, arrival.thread) == (str(forum.id), str(thread))
        assert arrival.is_addressed
        answer = post(
            Address(
                adapter="discord",
                account=server.bot,
                place=arrival.place,
                thread=arrival.thread,
            ),
            "Monday it is.",
            "p2",
            reply_to=arrival.external_id,
        )
        await bot.platform.perform(answer)
        assert self.posts(server, forum) == [
            ("Which day?", ["Which day?", "Monday", "Monday it is."])
        ]


class TestFailures:
    async def test_a_wrong_token_says_which_key_to_set(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        platform = platform_of(settings(server, token=Secret("guessed")), tmp_path)
        try:
            with pytest.raises(Permanent, match=r"\[adapters.discord\] token"):
                await platform.connect()
        finally:
            await platform.close()

    @pytest.mark.parametrize(
        ("code", "advice"),
        [(4004, r"\[adapters.discord\] token"), (4014, "Message Content Intent")],
    )
    async def test_a_refusal_by_the_gateway_says_what_to_do(
        self, server: SimcordServer, tmp_path: Path, code: int, advice: str
    ) -> None:
        server.gateway.close_code = code
        platform = platform_of(settings(server), tmp_path)
        try:
            await platform.connect()
            with pytest.raises(Permanent, match=advice):
                await platform.receive(Recorder())
        finally:
            await platform.close()

    async def test_a_missing_intent_is_told(self, server: SimcordServer, tmp_path: Path) -> None:
        server.gateway.has_message_content = False
        platform = platform_of(settings(server), tmp_path)
        try:
            await platform.connect()
            with pytest.raises(Permanent, match="Message Content Intent"):
                await platform.receive(Recorder())
        finally:
            await platform.close()

    async def test_a_server_that_is_away_is_tried_again(self, tmp_path: Path) -> None:
        async with SimcordServer() as server:
            platform = platform_of(settings(server), tmp_path)
            await platform.connect()
            address = in_general(server)
        try:
            with pytest.raises(Transient):
                await platform.connect()
            with pytest.raises(Transient):
                await platform.receive(Recorder())
            with pytest.raises(Transient):
                await platform.perform(post(address, "not sent"))
        finally:
            await platform.close()

    async def test_a_rate_limit_is_not_waited_out_but_told(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.fail("POST", "/channels/*/messages", 429, retry_after_s=64.5)

        with pytest.raises(Transient) as caught:
            await bot.platform.perform(post(in_general(server), "too much"))

        assert caught.value.retry_after_s == 64.5
        assert server.shown(server.general) == []

    @pytest.mark.parametrize(
        ("status", "code", "failure"),
        [
            (403, 50013, Permanent),
            (400, 50035, Permanent),
            (404, 10003, Permanent),
            (413, 40005, Permanent),
            (401, 0, Permanent),
            (500, 0, Ambiguous),
            (502, 0, Ambiguous),
        ],
    )
    async def test_refusals_are_sorted(
        self,
        server: SimcordServer,
        bot: Bot,
        status: int,
        code: int,
        failure: type[Exception],
    ) -> None:
        server.fail("POST", "/channels/*/messages", status, code=code)

        with pytest.raises(failure):
            await bot.platform.perform(post(in_general(server), "?"))
        # Nothing was tried a second time.
        assert server.faults[0].times == 0
        assert server.shown(server.general) == []

    async def test_what_may_be_repeated_is_transient_when_it_fails(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.fail("PATCH", "/channels/*", 500)
        server.fail("PATCH", "/channels/*", 0)
        receipt = (await bot.platform.perform(post(in_general(server), "a"))).external_id
        edit = Edit(key=PartId("p"), address=in_general(server), receipt=receipt, text="b")

        with pytest.raises(Transient):
            await bot.platform.perform(edit)
        with pytest.raises(Transient):
            await bot.platform.perform(edit)
        await bot.platform.perform(edit)

    @pytest.mark.parametrize("is_global", [False, True])
    async def test_a_wait_for_typing_names_its_seconds_and_whom_it_is_for(
        self, server: SimcordServer, bot: Bot, is_global: bool
    ) -> None:
        server.fail("POST", "*/typing", 429, retry_after_s=3, is_global=is_global)
        with pytest.raises(Transient) as caught:
            await bot.platform.typing(in_general(server))
        assert caught.value.retry_after_s == 3
        assert (caught.value.code == ACCOUNT_WAIT) == is_global

    async def test_a_wait_is_told_by_a_server_that_may_have_done_it(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.fail("POST", "/channels/*/messages", 503, retry_after_s=30)
        with pytest.raises(Ambiguous) as caught:
            await bot.platform.perform(post(in_general(server), "hello"))
        assert caught.value.retry_after_s == 30

    async def test_a_wait_for_the_whole_account_ends_the_catching_up(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        async with running(server, tmp_path) as bot:
            server.write(server.alice, server.general, "before")
            await bot.inlet.until(1)
        server.write(server.alice, server.general, "meanwhile")
        server.fail("GET", "*/messages", 429, retry_after_s=3, is_global=True)
        async with running(server, tmp_path) as bot:
            (arrival,) = await bot.inlet.until(1)
        assert arrival.text == "meanwhile"
        assert [each.retry_after_s for each in bot.failures] == [3]

    async def test_a_thread_that_is_gone_is_named_and_its_channel_takes_the_words(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        thread = server.thread(server.general, "boats")
        inside = msgspec.structs.replace(in_general(server), thread=str(thread.id))
        server.world.delete_channel(thread.id)
        with pytest.raises(ThreadGone):
            await bot.platform.perform(post(inside, "hello"))
        await bot.platform.perform(post(in_general(server), "hello"))
        assert server.shown(server.general)[-1].text == "hello"

    @pytest.mark.parametrize(
        ("status", "code", "failure"), [(404, 10003, ThreadGone), (400, 50083, ThreadGone)]
    )
    async def test_a_thread_that_is_closed_is_as_good_as_gone(
        self,
        server: SimcordServer,
        bot: Bot,
        status: int,
        code: int,
        failure: type[Exception],
    ) -> None:
        inside = msgspec.structs.replace(in_general(server), thread="1" * 18)
        server.fail("POST", "*/messages", status, code=code, times=2)
        with pytest.raises(failure):
            await bot.platform.perform(post(inside, "hello"))
        with pytest.raises(Permanent) as caught:
            await bot.platform.perform(post(in_general(server), "hello"))
        assert not isinstance(caught.value, ThreadGone), "there is no thread to leave"

    @pytest.mark.parametrize(
        ("code", "errors", "is_about_it"),
        [
            (50035, {"content": {"_errors": []}}, True),
            (50035, {"message": {"content": {"_errors": []}}}, True),
            (50035, {"embeds": {"0": {}}}, True),
            (50006, {}, True),
            (50035, {"components": {"0": {}}}, False),
            (50013, {}, False),
        ],
    )
    async def test_a_refused_form_is_named(
        self,
        server: SimcordServer,
        bot: Bot,
        code: int,
        errors: dict[str, object],
        is_about_it: bool,
    ) -> None:
        server.fail("POST", "*/messages", 400, code=code, errors=errors, times=2)
        with pytest.raises(Permanent) as caught:
            await bot.platform.perform(post(in_general(server), "**hello**"))
        assert isinstance(caught.value, Unrenderable) == is_about_it
        with pytest.raises(Permanent) as caught:
            await bot.platform.perform(post(in_general(server), "**hello**", is_plain=True))
        assert not isinstance(caught.value, Unrenderable), "it has no simpler form"

    async def test_a_caption_that_is_refused_goes_letter_by_letter(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.fail("POST", "*/messages", 400, code=50035, errors={"content": {}})
        upload = Upload(
            key=PartId("prt_9"),
            address=in_general(server),
            name="a.txt",
            mime="text/plain",
            data=b"words",
            caption="the *file*",
        )
        await bot.platform.perform(upload)
        (shown,) = server.shown(server.general)
        assert shown.text == r"the \*file\*"


class TestFinding:
    """Checks how a message whose answer was lost is found after its key was forgotten."""

    TEXT = "**High** at noon"

    @pytest.fixture(autouse=True)
    def same_time(self, server: SimcordServer) -> None:
        server.keep_our_time(SystemClock())

    def sought(self, server: SimcordServer, **more: object) -> Sought:
        values: dict[str, object] = {
            "key": PartId("prt_9"),
            "address": in_general(server),
            "text": self.TEXT,
            "tried_at": SystemClock().now_ms(),
            **more,
        }
        return Sought(**values)  # type: ignore[arg-type]

    async def test_it_is_found_by_its_words_and_its_time(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        await bot.platform.perform(post(in_general(server), "something else", "prt_0"))
        receipt = await bot.platform.perform(post(in_general(server), self.TEXT))
        assert await bot.platform.find(self.sought(server)) == receipt
        assert await bot.platform.find(self.sought(server, text="never sent")) is None

    async def test_a_text_that_was_sent_plain_is_found(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        receipt = await bot.platform.perform(post(in_general(server), self.TEXT, is_plain=True))
        assert await bot.platform.find(self.sought(server)) == receipt

    async def test_what_others_say_or_other_parts_own_is_not_it(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        robot = server.person("robot", is_bot=True)
        for other in (robot, server.alice):
            server.write(other, server.general, self.TEXT)
        taken = await bot.platform.perform(post(in_general(server), self.TEXT))
        owned = frozenset({taken.external_id})
        assert await bot.platform.find(self.sought(server, owned=owned)) is None

    @pytest.mark.parametrize("minutes", [-30, 30])
    async def test_the_same_words_at_another_time_are_a_doubt(
        self, server: SimcordServer, bot: Bot, minutes: int
    ) -> None:
        await bot.platform.perform(post(in_general(server), self.TEXT))
        tried_at = SystemClock().now_ms() + minutes * 60_000
        with pytest.raises(Ambiguous):
            await bot.platform.find(self.sought(server, tried_at=tried_at))

    async def test_two_that_say_the_same_are_a_doubt(self, server: SimcordServer, bot: Bot) -> None:
        for key in ("prt_1", "prt_2"):
            await bot.platform.perform(post(in_general(server), self.TEXT, key))
        with pytest.raises(Ambiguous):
            await bot.platform.find(self.sought(server))

    async def test_a_file_is_found_by_its_name_and_another_one_is_a_doubt(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        upload = Upload(
            key=PartId("prt_3"),
            address=in_general(server),
            name="chart.txt",
            mime="text/plain",
            data=b"tide",
            caption=self.TEXT,
        )
        receipt = await bot.platform.perform(upload)
        assert await bot.platform.find(self.sought(server, name="chart.txt")) == receipt
        assert await bot.platform.find(self.sought(server)) is None, "that one had no file"
        with pytest.raises(Ambiguous):
            await bot.platform.find(self.sought(server, name="another.txt"))

    async def test_where_nothing_can_be_read_nobody_can_tell(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        with pytest.raises(Ambiguous, match="no history"):
            await bot.platform.find(self.sought(server))
        server.fail("GET", "*/messages", 403, code=50001)
        with pytest.raises(Ambiguous, match="50001"):
            await bot.platform.find(self.sought(server))
        forum = server.channel("questions", type=ChannelType.FORUM)
        into = Address(adapter="discord", account=server.bot, place=str(forum.id))
        with pytest.raises(Ambiguous):
            await bot.platform.find(self.sought(server, address=into))

    @pytest.mark.parametrize("more", [{"text": ""}, {"tried_at": 0}])
    async def test_what_is_not_known_cannot_be_looked_for(
        self, server: SimcordServer, bot: Bot, more: dict[str, object]
    ) -> None:
        await bot.platform.perform(post(in_general(server), self.TEXT))
        with pytest.raises(Ambiguous):
            await bot.platform.find(self.sought(server, **more))

    async def test_a_deleted_thread_shows_nothing(self, server: SimcordServer, bot: Bot) -> None:
        gone = msgspec.structs.replace(in_general(server), thread="1" * 18)
        assert await bot.platform.find(self.sought(server, address=gone)) is None

    async def test_far_back_is_looked_only_so_far(self, server: SimcordServer, bot: Bot) -> None:
        receipt = await bot.platform.perform(post(in_general(server), self.TEXT))
        sought = self.sought(server)
        for number in range(PAGE * 2):
            server.write(server.alice, server.general, str(number))
        assert await bot.platform.find(sought) == receipt
        for number in range(PAGE * PAGES_MAX):
            server.write(server.alice, server.general, str(number))
        with pytest.raises(Ambiguous, match="too much"):
            await bot.platform.find(sought)
        assert len(server.requests("GET", "*/messages")) <= 3 + PAGES_MAX

    @pytest.mark.parametrize(("status", "wait_s"), [(429, 7), (503, None), (503, 7)])
    async def test_what_cannot_be_told_now_is_asked_again(
        self, server: SimcordServer, bot: Bot, status: int, wait_s: float | None
    ) -> None:
        server.fail("GET", "*/messages", status, retry_after_s=wait_s)
        with pytest.raises(Transient) as caught:
            await bot.platform.find(self.sought(server))
        assert caught.value.retry_after_s == wait_s


class TestConnection:
    async def test_a_cut_connection_is_resumed_with_all_that_was_missed(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        message = server.write(server.alice, server.general, "before")
        await bot.inlet.until(1)
        await server.gateway.cut()
        await until(lambda: server.gateway.connected == 0)
        server.edit(server.general, message, "changed meanwhile")
        server.write(server.alice, server.general, "after")

        taken = await bot.inlet.until(3)

        assert [arrival.text for arrival in taken] == ["before", "changed meanwhile", "after"]
        assert server.gateway.resumed == 1
        assert server.gateway.identified == 1
        assert bot.failures == []

    @pytest.mark.parametrize(("times", "resumed", "identified"), [(2, 1, 1), (3, 0, 2)])
    async def test_a_session_outlives_a_gateway_that_is_away_for_a_moment(
        self, server: SimcordServer, bot: Bot, times: int, resumed: int, identified: int
    ) -> None:
        server.write(server.alice, server.general, "before")
        await bot.inlet.until(1)
        server.gateway.turn_away(times)
        await server.gateway.cut()
        await until(lambda: server.gateway.connected == 0)
        server.write(server.alice, server.general, "after")

        taken = await bot.inlet.until(2)

        assert [arrival.text for arrival in taken] == ["before", "after"]
        assert len(bot.failures) == times
        assert (server.gateway.resumed, server.gateway.identified) == (resumed, identified)

    async def test_a_session_that_is_over_begins_anew_and_catches_up(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        server.write(server.alice, server.general, "before")
        await bot.inlet.until(1)
        server.gateway.forget()
        await server.gateway.cut()
        server.write(server.alice, server.general, "between")
        await until(lambda: server.gateway.identified == 2)

        taken = await bot.inlet.until(2)

        assert [arrival.text for arrival in taken] == ["before", "between"]
        assert bot.failures == []

    async def test_what_the_store_could_not_take_is_offered_again_in_order(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        bot.inlet.refusals = [Transient("busy"), Ambiguous("who knows"), Transient("busy")]
        for number in range(3):
            server.write(server.alice, server.general, f"message {number}")

        taken = await bot.inlet.until(3)

        assert [arrival.text for arrival in taken] == ["message 0", "message 1", "message 2"]
        assert len(bot.failures) == 3

    async def test_what_can_never_be_taken_is_passed_over(
        self, server: SimcordServer, bot: Bot
    ) -> None:
        bot.inlet.refusals = [Rejected("too long")]
        server.write(server.alice, server.general, "endless")
        server.write(server.alice, server.general, "short")

        (arrival,) = await bot.inlet.until(1)

        assert arrival.text == "short"
        assert bot.failures == []


class TestCatchingUp:
    async def test_what_was_written_while_we_were_away_comes_in_order(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        direct, thread = server.direct(server.alice), server.thread(server.general, "boats")
        async with running(server, tmp_path) as bot:
            for channel in (server.general, direct, thread):
                server.write(server.alice, channel, "before")
            await bot.inlet.until(3)
        for number in range(3):
            server.write(server.alice, server.general, f"general {number}")
        server.write(server.alice, direct, "direct")
        server.write(server.alice, thread, "thread")

        async with running(server, tmp_path) as bot:
            taken = await bot.inlet.until(5)
            server.write(server.alice, server.general, "live")
            await bot.inlet.until(6)

        said = [arrival.text for arrival in taken]
        assert sorted(said[:-1]) == sorted(
            ["direct", "thread", "general 0", "general 1", "general 2"]
        )
        assert [text for text in said if text.startswith("general")] == [
            "general 0",
            "general 1",
            "general 2",
        ]
        assert said[-1] == "live"
        (private,) = [arrival for arrival in taken if arrival.text == "direct"]
        assert private.place_kind is PlaceKind.PRIVATE
        (threaded,) = [arrival for arrival in taken if arrival.text == "thread"]
        assert threaded.thread == str(thread.id)

    async def test_the_first_start_does_not_dig_up_the_past(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        server.write(server.alice, server.general, f"<@{server.bot}> long ago")
        async with running(server, tmp_path) as bot:
            server.write(server.alice, server.general, "now")
            (arrival,) = await bot.inlet.until(1)

        assert arrival.text == "now"

    async def test_of_a_channel_never_heard_only_what_is_for_the_bot_counts(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        async with running(server, tmp_path) as bot:
            server.write(server.alice, server.general, "before")
            await bot.inlet.until(1)
        fresh = server.channel("fresh")
        server.write(server.alice, fresh, "among ourselves")
        server.write(server.alice, fresh, f"<@{server.bot}> hello")

        async with running(server, tmp_path) as bot:
            (arrival,) = await bot.inlet.until(1)

        assert arrival.text == "hello"

    async def test_too_much_is_cut_to_the_newest(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        async with running(server, tmp_path) as bot:
            server.write(server.alice, server.general, "before")
            await bot.inlet.until(1)
        for number in range(230):
            server.write(server.alice, server.general, str(number))

        async with running(server, tmp_path) as bot:
            taken = await bot.inlet.until(200)

        assert [int(arrival.text) for arrival in taken] == list(range(30, 230))

    async def test_roles_are_asked_for_where_they_decide(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        carol = server.person("carol", roles=["harbour master"])
        async with running(server, tmp_path) as bot:
            server.write(carol, server.general, "before")
            await bot.inlet.until(1)
        server.write(carol, server.general, "meanwhile")

        async with running(server, tmp_path, allow_roles=("harbour master",)) as bot:
            (arrival,) = await bot.inlet.until(1)

        assert "harbour master" in arrival.sender.roles

    async def test_a_channel_that_is_closed_to_us_holds_nobody_up(
        self, server: SimcordServer, tmp_path: Path
    ) -> None:
        direct = server.direct(server.alice)
        async with running(server, tmp_path) as bot:
            server.write(server.alice, server.general, "before")
            server.write(server.alice, direct, "before")
            await bot.inlet.until(2)
        server.write(server.alice, direct, "unreadable")
        server.write(server.alice, server.general, "readable")
        server.fail("GET", f"/channels/{direct.id}/messages", 403, code=50001)

        async with running(server, tmp_path) as bot:
            (arrival,) = await bot.inlet.until(1)

        assert arrival.text == "readable"

    async def test_a_rate_limit_is_waited_out(self, server: SimcordServer, tmp_path: Path) -> None:
        async with running(server, tmp_path) as bot:
            server.write(server.alice, server.general, "before")
            await bot.inlet.until(1)
        server.write(server.alice, server.general, "meanwhile")
        server.fail("GET", "/channels/*/messages", 429, retry_after_s=0.05, times=2)

        async with running(server, tmp_path) as bot:
            (arrival,) = await bot.inlet.until(1)
            assert bot.failures == []

        assert arrival.text == "meanwhile"


@pytest.fixture
async def twin_bot(discord_twin: DiscordTwinControl, tmp_path: Path) -> AsyncIterator[Bot]:
    chosen = DiscordSettings(
        token=Secret(discord_twin.bot_token),
        api_url=discord_twin.rest_url,
        gateway_url=discord_twin.gateway_url,
    )
    bot = Bot(platform_of(chosen, tmp_path))
    await bot.start()
    try:
        await discord_twin.wait_connected()
        yield bot
    finally:
        await bot.stop()


class TestTwin:
    """Checks the same on a server that other people wrote."""

    async def test_words_go_both_ways(
        self, discord_twin: DiscordTwinControl, twin_bot: Bot
    ) -> None:
        twin, bot = discord_twin, twin_bot
        asked = await twin.write(twin.general, f"<@{twin.bot_user}> hello")
        (arrival,) = await bot.inlet.until(1)
        address = Address(adapter="discord", account=twin.bot_user, place=arrival.place)
        assert arrival.text == "hello"
        assert arrival.is_addressed
        assert arrival.external_id == f"{twin.general}/{asked}"
        assert arrival.label.startswith("#general (")

        await bot.platform.typing(address)
        receipt = await bot.platform.preview(
            Preview(
                key=PartId("prt_1"),
                address=address,
                text="Hel",
                streaming=Streaming.EDIT,
                reply_to=arrival.external_id,
            )
        )
        await bot.platform.perform(
            Edit(key=PartId("prt_1"), address=address, receipt=receipt, text="Hello, **Alice**")
        )

        _, answer = await twin.shown(twin.general)
        assert (answer.text, answer.author) == ("Hello, **Alice**", twin.bot_user)
        assert answer.is_edited
        assert answer.raw["message_reference"]["message_id"] == asked
        assert await twin.typing(twin.general) == 1
        await bot.platform.perform(Delete(address=address, receipt=receipt))
        await bot.platform.perform(Delete(address=address, receipt=receipt))
        assert len(await twin.shown(twin.general)) == 1

    async def test_changes_and_deletions_arrive(
        self, discord_twin: DiscordTwinControl, twin_bot: Bot
    ) -> None:
        twin = discord_twin
        message = await twin.write(twin.general, "frist")
        await twin.edit(twin.general, message, "first")
        await twin.delete(twin.general, message)

        said, edit, deleted = await twin_bot.inlet.until(3)

        assert (edit.kind, edit.target, edit.text) == (UpdateKind.EDIT, said.external_id, "first")
        assert (deleted.kind, deleted.target) == (UpdateKind.DELETE, said.external_id)

    async def test_buttons_and_commands_are_acknowledged(
        self, discord_twin: DiscordTwinControl, twin_bot: Bot
    ) -> None:
        twin, bot = discord_twin, twin_bot
        address = Address(adapter="discord", account=twin.bot_user, place=twin.general)
        receipt = await bot.platform.perform(post(address, "May I?", choices=("allow", "deny")))
        message = receipt.external_id.partition("/")[2]
        clicked = await twin.click(twin.general, message, "0:allow")
        given = await twin.command(
            twin.general, "stop", [{"name": "text", "type": 3, "value": "all"}]
        )

        click, command = await bot.inlet.until(2)

        assert (click.text, command.text) == ("allow", "/stop all")
        assert click.sender.id == twin.users["alice"]
        await until_async(lambda: twin.answer(twin.general, clicked))
        await until_async(lambda: twin.answer(twin.general, given))

    async def test_a_session_that_is_never_resumed_begins_anew(
        self,
        discord_twin: DiscordTwinControl,
        twin_bot: Bot,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("perdure.adapters.discord.gateway.HANDSHAKE_TIMEOUT_S", 0.5)
        twin = discord_twin
        await twin.write(twin.general, "before")
        await twin_bot.inlet.until(1)
        await twin.cut()
        await twin.write(twin.general, "meanwhile")
        await until(lambda: len(twin_bot.failures) == 1)
        await twin.wait_connected()
        await twin.write(twin.general, "after")

        taken = await twin_bot.inlet.until(3)

        assert [arrival.text for arrival in taken[:2]] == ["before", "meanwhile"]
        assert taken[-1].text == "after"

    async def test_a_wrong_token_is_refused_by_the_gateway(
        self, discord_twin: DiscordTwinControl, tmp_path: Path
    ) -> None:
        platform = platform_of(
            DiscordSettings(token=Secret("guessed"), api_url=discord_twin.rest_url), tmp_path
        )
        try:
            await platform.connect()
            with pytest.raises(Permanent, match=r"\[adapters.discord\] token"):
                await platform.receive(Recorder())
        finally:
            await platform.close()
