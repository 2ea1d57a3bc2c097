"""Checks the Matrix adapter against Synapse: what people do comes in, and what the bot does is
seen."""

import asyncio
import contextlib
import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.adapters.matrix.adapter import CAPABILITIES, Matrix, make
from perdure.adapters.matrix.login.keeping import CURSOR, LOGIN
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.adapters.matrix.receive import TIMELINE_MAX
from perdure.adapters.matrix.render import TEXT_BYTES_MAX
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.delivery import Streaming, without_promise
from perdure.domain.errors import NotFound, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival, PlaceKind
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import (
    ACCOUNT_WAIT,
    ArrivalReading,
    Delete,
    Edit,
    Post,
    Preview,
    React,
    ThreadGone,
    Unrenderable,
    Unsupported,
    Upload,
)
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.gate import PeerGate
from perdure.testkit.peers.matrix.matrix_person import MatrixPerson
from perdure.testkit.peers.matrix.synapse import MatrixControl

DEADLINE_S = 20.0
TORTURE = Path(__file__).parents[1] / "golden" / "torture.md"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


class Recording(Unguarded):
    """Keeps what it was given, each arrival once, as the gateway does. It first raises its
    `failures`."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.offered: list[Arrival] = []
        self.failures: list[Transient | Rejected] = []
        self.signs_of_life = 0
        self.spoilt: dict[str, Any] = {}
        self._changed = asyncio.Condition()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        async with self._changed:
            self.offered.append(arrival)
            self._changed.notify_all()
            if self.failures:
                raise self.failures.pop(0)
            if arrival.external_id not in {each.external_id for each in self.arrivals}:
                self.arrivals += await opened(arrival, reading)

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        self.spoilt[external_id] = json.loads(payload)

    def alive(self) -> None:
        self.signs_of_life += 1

    async def until(self, accept: Callable[[list[Arrival]], bool]) -> list[Arrival]:
        try:
            async with asyncio.timeout(DEADLINE_S), self._changed:
                await self._changed.wait_for(lambda: accept(self.arrivals))
        except TimeoutError:
            pytest.fail(f"this is all that arrived: {self.arrivals}")
        return self.arrivals

    async def texts(self, *wanted: str) -> list[Arrival]:
        """Wait until exactly these texts have arrived, in this order."""
        await self.until(lambda arrivals: len(arrivals) >= len(wanted))
        assert [arrival.text for arrival in self.arrivals] == list(wanted)
        return self.arrivals


class World:
    """Holds one bot, its rooms, and the people there."""

    def __init__(self, control: MatrixControl, bot: MatrixPerson, folder: Path) -> None:
        self.control = control
        self.bot = bot
        self.folder = folder
        self.made: list[Matrix] = []

    def platform(self, **settings: object) -> Matrix:
        values: dict[str, object] = {
            "homeserver": self.control.url,
            "user": self.bot.user_id,
            "token": Secret(self.bot.token),
            "allow": ("*",),
            **settings,
        }
        configured = MatrixSettings(**values)  # type: ignore[arg-type]
        context = AdapterContext(clock=SystemClock(), entropy=SystemEntropy(), folder=self.folder)
        platform = make(configured, context)
        self.made.append(platform)
        return platform

    @contextlib.asynccontextmanager
    async def receiving(
        self, inlet: Recording, platform: Matrix | None = None
    ) -> AsyncIterator[Matrix]:
        """Connect a platform, and receive until the block ends."""
        platform = platform or self.platform()
        assert await platform.connect() == self.bot.user_id
        try:
            async with asyncio.TaskGroup() as group:
                receiver = group.create_task(platform.receive(inlet))
                await _ready(inlet, receiver)
                yield platform
                receiver.cancel()
        finally:
            await platform.close()

    def address(self, room: str, thread: str = "") -> Address:
        return Address(adapter="matrix", account=self.bot.user_id, place=room, thread=thread)


async def _ready(inlet: Recording, receiver: asyncio.Task[None]) -> None:
    before = inlet.signs_of_life
    async with asyncio.timeout(DEADLINE_S):
        while inlet.signs_of_life == before and not receiver.done():
            await asyncio.sleep(0.01)


@pytest.fixture
async def world(matrix: MatrixControl, tmp_path: Path) -> AsyncIterator[World]:
    world = World(matrix, await matrix.person("bot"), tmp_path / "matrix")
    yield world
    for platform in world.made:
        await platform.close()


@pytest.fixture
async def gate(matrix: MatrixControl) -> AsyncIterator[PeerGate]:
    """Stand before the server, which cannot be told what to refuse."""
    async with PeerGate(matrix.url) as gate:
        yield gate


@pytest.fixture
async def alice(matrix: MatrixControl) -> MatrixPerson:
    return await matrix.person("alice")


@pytest.fixture
async def bob(matrix: MatrixControl) -> MatrixPerson:
    return await matrix.person("bob")


@pytest.fixture
def inlet() -> Recording:
    return Recording()


async def _together(bot: MatrixPerson, *people: MatrixPerson, name: str = "") -> str:
    """Make a room that everybody has joined. Returns its id."""
    first, *others = people
    room = await first.room(invite=[bot.user_id, *(each.user_id for each in others)], name=name)
    for person in (bot, *others):
        await person.join(room)
    return room


def _key(name: str) -> PartId:
    return PartId(f"stp_{name}")


async def test_a_private_message_comes_in(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet):
        event = await alice.write(room, "hello there")
        (arrival,) = await inlet.texts("hello there")

    assert arrival.external_id == event
    assert arrival.place == room
    assert arrival.place_kind is PlaceKind.PRIVATE
    assert (arrival.sender.id, arrival.sender.is_bot) == (alice.user_id, False)
    assert arrival.thread == ""
    assert alice.user_id.removeprefix("@").startswith(arrival.label)


async def test_an_arrival_of_a_group_tells_who_is_meant(
    world: World, alice: MatrixPerson, bob: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice, bob, name="The office")
    name = world.bot.user_id.removeprefix("@").partition(":")[0]
    async with world.receiving(inlet) as platform:
        await alice.write(room, "lunch?")
        await alice.write(room, f"{name}: when is lunch?", mention=world.bot.user_id)
        await bob.write(room, f"{name}, and dinner?")
        shown = await platform.perform(
            Post(key=_key("1"), address=world.address(room), text="At noon.")
        )
        await bob.write(room, "thanks", reply_to=shown.external_id)
        arrivals = await inlet.texts("lunch?", "when is lunch?", "and dinner?", "thanks")

    assert [arrival.is_addressed for arrival in arrivals] == [False, True, True, True]
    assert {arrival.place_kind for arrival in arrivals} == {PlaceKind.GROUP}
    assert {arrival.label for arrival in arrivals} == {"The office"}
    assert arrivals[3].quote == "At noon."


async def test_threads_keep_apart_both_ways(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet) as platform:
        root = await alice.write(room, "a root")
        await alice.write(room, "inside", thread=root)
        arrivals = await inlet.texts("a root", "inside")
        await platform.perform(
            Post(key=_key("t"), address=world.address(room, root), text="also inside")
        )
        shown = (await alice.shown(room))[-1]

    assert [arrival.thread for arrival in arrivals] == ["", root]
    assert (shown.text, shown.thread) == ("also inside", root)
    assert shown.raw["content"]["m.relates_to"]["is_falling_back"] is True


async def test_own_messages_reactions_and_notices_are_no_words_to_us(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet) as platform:
        await platform.perform(Post(key=_key("o"), address=world.address(room), text="mine"))
        event = await alice.write(room, "first")
        await alice.react(room, event, "👍")
        await alice.call(
            "PUT",
            f"/_matrix/client/v3/rooms/{room}/send/m.room.message/notice",
            {"msgtype": "m.notice", "body": "says a bot"},
        )
        arrivals = await inlet.texts("first", "says a bot")

    assert [arrival.sender.is_bot for arrival in arrivals] == [False, True]


async def test_edits_and_deletions_name_what_they_change(
    world: World, alice: MatrixPerson, bob: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice, bob)
    async with world.receiving(inlet):
        root = await alice.write(room, "root")
        event = await alice.write(room, "teh", thread=root)
        await bob.edit(room, event, "not bob's to change")
        edit = await alice.edit(room, event, "the")
        mark = await alice.react(room, event, "👍")
        await alice.delete(room, mark)
        await inlet.texts("root", "teh", "the")
        await alice.delete(room, event)
        _, _, edited, deleted = await inlet.texts("root", "teh", "the", "")

    assert (edited.kind, edited.target, edited.external_id) == ("edit", event, edit)
    assert edited.thread == deleted.thread == root
    assert (deleted.kind, deleted.target) == ("delete", event)
    assert deleted.sender.id == alice.user_id


async def test_a_deletion_after_a_restart_still_names_its_message(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet):
        event = await alice.write(room, "soon gone")
        await inlet.texts("soon gone")
    await alice.delete(room, event)
    async with world.receiving(inlet):
        _, deleted = await inlet.texts("soon gone", "")

    assert (deleted.kind, deleted.target, deleted.sender.id) == ("delete", event, alice.user_id)


async def test_what_we_say_is_shown_as_words_and_html_and_mentions_nobody(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet) as platform:
        question = await alice.write(room, "well?")
        receipt = await platform.perform(
            Post(
                key=_key("p"),
                address=world.address(room),
                text="**Yes**, @room",
                reply_to=question,
            )
        )
        shown = (await alice.shown(room))[-1]

    content = shown.raw["content"]
    assert shown.id == receipt.external_id
    assert shown.text == "Yes, @room"
    assert "<strong>Yes</strong>" in content["formatted_body"]
    assert content["m.mentions"] == {}
    assert content["m.relates_to"] == {"m.in_reply_to": {"event_id": question}}


async def test_a_repeated_key_is_one_message_across_restarts(
    world: World, alice: MatrixPerson
) -> None:
    room = await _together(world.bot, alice)
    post = Post(key=_key("same"), address=world.address(room), text="once")
    receipts = set()
    settings = {"token": None, "password": Secret(world.bot.password)}
    for _ in range(3):
        platform = world.platform(**settings)
        await platform.connect()
        receipts.add((await platform.perform(post)).external_id)
        await platform.close()

    assert len(receipts) == 1
    assert [shown.text for shown in await alice.shown(room)] == ["once"]
    login = world.folder / LOGIN
    assert login.stat().st_mode & 0o777 == 0o600
    _, devices = await world.bot.call("GET", "/_matrix/client/v3/devices")
    names = [device["device_id"] for device in devices["devices"]]
    assert len([name for name in names if name.startswith("PERDURE")]) == 1


def test_no_key_is_repeated_once_a_homeserver_may_have_forgotten_it() -> None:
    # Synapse forgets keys after a day. Then a part of unknown fate would be shown twice.
    assert CAPABILITIES.takes_key
    assert CAPABILITIES.key_s < 24 * 3600


async def test_a_growing_answer_is_one_message(world: World, alice: MatrixPerson) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    address = world.address(room)
    preview = Preview(key=_key("b"), address=address, text="One", streaming=Streaming.EDIT)
    receipt = await platform.preview(preview)
    for text in ("One, two", "One, two, three"):
        grown = msgspec.structs.replace(preview, text=text, receipt=receipt)
        assert await platform.preview(grown) == receipt
    final = Edit(key=_key("f"), address=address, receipt=receipt, text="One, two, *three*.")
    assert (await platform.perform(final)).external_id == receipt
    await platform.perform(final)  # an edit may always be repeated

    (shown,) = await alice.shown(room)
    assert (shown.id, shown.text, shown.is_edited) == (receipt, "One, two, three.", True)
    assert shown.raw["content"]["m.new_content"]["m.mentions"] == {}
    with pytest.raises(Unsupported):
        await platform.preview(msgspec.structs.replace(preview, streaming=Streaming.DRAFT))


async def test_deletions_and_marks_may_be_repeated(world: World, alice: MatrixPerson) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    address = world.address(room)
    posted = await platform.perform(Post(key=_key("d"), address=address, text="oops"))
    for _ in range(2):  # deleting what is gone already is no failure
        await platform.perform(Delete(address=address, receipt=posted.external_id))
    assert await alice.shown(room) == []

    question = await alice.write(room, "look at this")
    for emoji in ("👀", "👀", "✅"):
        await platform.perform(React(address=address, external_id=question, emoji=emoji))
    assert await alice.reactions(room, question) == [(world.bot.user_id, "✅")]
    other = world.platform()  # another life removes the mark
    await other.connect()
    await other.perform(React(address=address, external_id=question, emoji=""))
    assert await alice.reactions(room, question) == []


async def test_an_edit_of_what_is_not_there_is_not_found(world: World, alice: MatrixPerson) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    edit = Edit(key=_key("x"), address=world.address(room), receipt="$nothing", text="x")
    with pytest.raises(NotFound):
        await platform.perform(edit)


async def test_files_go_both_ways(world: World, alice: MatrixPerson, inlet: Recording) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet) as platform:
        await alice.send_file(room, "map.png", PNG, "image/png")
        (arrival,) = await inlet.until(bool)
        (file,) = arrival.files
        fetched = b"".join([piece async for piece in platform.fetch(file.reference)])
        upload = Upload(
            key=_key("u"),
            address=world.address(room),
            name="answer.png",
            mime="image/png",
            data=PNG[::-1],
            caption="the *answer*",
        )
        receipts = {(await platform.perform(upload)).external_id for _ in range(2)}
        shown = (await alice.shown(room))[-1]
        assert await alice.download(shown.raw["content"]["url"]) == PNG[::-1]

    assert (arrival.text, fetched) == ("", PNG)
    assert (file.mime, file.name, file.size) == ("image/png", "map.png", len(PNG))
    assert receipts == {shown.id}
    assert shown.raw["content"]["msgtype"] == "m.image"
    assert (shown.text, shown.raw["content"]["filename"]) == ("the answer", "answer.png")
    with pytest.raises(Permanent, match="no file"):
        await anext(platform.fetch("https://example.org/secret"))


async def test_a_file_that_is_gone_can_never_be_fetched(world: World) -> None:
    platform = world.platform()
    await platform.connect()
    with pytest.raises(Permanent, match="gone"):
        await anext(platform.fetch("mxc://localhost/nothing"))


async def test_typing_is_seen_until_the_answer(world: World, alice: MatrixPerson) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    await platform.typing(world.address(room))
    me = world.bot.user_id
    await _signalled(alice, room, "m.typing", lambda seen: seen["user_ids"] == [me])
    await platform.perform(Post(key=_key("ty"), address=world.address(room), text="done"))
    await _signalled(alice, room, "m.typing", lambda seen: seen["user_ids"] == [])


async def test_a_wait_for_the_end_of_typing_holds_up_the_words(
    world: World, alice: MatrixPerson, gate: PeerGate
) -> None:
    # The wait is named before anything is shown, so everything may be tried again.
    room = await _together(world.bot, alice)
    platform = world.platform(homeserver=gate.url)
    await platform.connect()
    await platform.typing(world.address(room))
    gate.refuse("PUT", "*/typing/*", 429, errcode="M_LIMIT_EXCEEDED", retry_after_ms=2000)
    post = Post(key=_key("ty"), address=world.address(room), text="done")
    with pytest.raises(Transient) as told:
        await platform.perform(post)
    assert (told.value.code, told.value.retry_after_s) == (ACCOUNT_WAIT, 2)
    assert await alice.shown(room) == []

    gate.refuse("PUT", "*/typing/*", 403, errcode="M_FORBIDDEN")
    await platform.perform(post)
    assert [shown.text for shown in await alice.shown(room)] == ["done"]


async def test_a_wait_for_a_read_mark_is_passed_on_and_nothing_is_lost(
    world: World, alice: MatrixPerson, inlet: Recording, gate: PeerGate
) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform(homeserver=gate.url)
    await platform.connect()
    gate.refuse("POST", "*/receipt/*", 429, errcode="M_LIMIT_EXCEEDED", retry_after_ms=2000)
    receiving = asyncio.create_task(platform.receive(inlet))
    await _ready(inlet, receiving)
    await alice.write(room, "hello")
    with pytest.raises(Transient) as told:
        async with asyncio.timeout(DEADLINE_S):
            await receiving
    assert told.value.retry_after_s == 2
    await platform.close()
    async with world.receiving(inlet):
        await alice.write(room, "and then")
        await inlet.texts("hello", "and then")


async def test_what_a_thread_began_with_must_be_in_the_room(
    world: World, alice: MatrixPerson
) -> None:
    room = await _together(world.bot, alice)
    elsewhere = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    foreign = await alice.write(elsewhere, "in another room")
    root = await alice.write(room, "in this room")
    inside = Post(key=_key("in"), address=world.address(room, root), text="in")
    reply = await platform.perform(inside)
    for thread in ("$gone", foreign, reply.external_id):
        post = Post(key=_key(f"t{thread}"), address=world.address(room, thread), text="lost")
        with pytest.raises(ThreadGone):
            await platform.perform(post)
    outside = Post(key=_key("out"), address=world.address(room), text="out")
    await platform.perform(outside)
    shown = [each.text for each in await alice.shown(room) if each.author == world.bot.user_id]
    assert shown == ["in", "out"]


async def test_a_plain_text_has_no_html(world: World, alice: MatrixPerson, gate: PeerGate) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform(homeserver=gate.url)
    await platform.connect()
    text = "**b** <b>no tag</b> @room"
    post = Post(key=_key("p"), address=world.address(room), text=text, is_plain=True)
    receipt = (await platform.perform(post)).external_id
    (shown,) = await alice.shown(room)
    content = shown.raw["content"]
    assert (content["body"], content["m.mentions"]) == (text, {})
    assert content.keys().isdisjoint({"format", "formatted_body"})

    more = text + " and more"
    edit = Edit(
        key=_key("e"), address=world.address(room), receipt=receipt, text=more, is_plain=True
    )
    await platform.perform(edit)
    (shown,) = await alice.shown(room)
    assert shown.text == more
    # A plain text has no form, so no form can be the reason of its refusal.
    gate.refuse("PUT", "*/send/*", 400, errcode="M_BAD_JSON", error="no")
    with pytest.raises(Permanent) as refused:
        await platform.perform(edit)
    assert not isinstance(refused.value, Unrenderable)


async def test_a_caption_that_is_refused_goes_without_html(
    world: World, alice: MatrixPerson, gate: PeerGate
) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform(homeserver=gate.url)
    await platform.connect()
    gate.refuse("PUT", "*/send/*", 400, errcode="M_BAD_JSON", error="no")
    upload = Upload(
        key=_key("u"),
        address=world.address(room),
        name="a.txt",
        mime="text/plain",
        data=b"words",
        caption="a **cat**",
    )
    await platform.perform(upload)
    (shown,) = await alice.shown(room)
    assert shown.raw["content"]["body"] == "a **cat**"
    assert "formatted_body" not in shown.raw["content"]


@pytest.mark.parametrize("letter", ["a", "é", "😀", "<", '"'])
async def test_what_size_allows_always_fits(world: World, alice: MatrixPerson, letter: str) -> None:
    # The text must fit as an edit too, which holds the words twice. One more letter is over the
    # limit.
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    count = (
        bisect_right(range(TEXT_BYTES_MAX), TEXT_BYTES_MAX, key=lambda n: platform.size(letter * n))
        - 1
    )
    text = letter * count
    assert platform.size(text) <= TEXT_BYTES_MAX < platform.size(text + letter)
    receipt = await platform.perform(Post(key=_key("l"), address=world.address(room), text=text))
    edit = Edit(key=_key("e"), address=world.address(room), receipt=receipt.external_id, text=text)
    await platform.perform(edit)

    (shown,) = await alice.shown(room)
    assert (shown.text, shown.is_edited) == (text, True)


async def test_what_is_too_large_never_will_be_taken(world: World, alice: MatrixPerson) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    post = Post(key=_key("big"), address=world.address(room), text="y" * 70_000)
    with pytest.raises(Permanent, match="too large") as refused:
        await platform.perform(post)
    assert refused.value.code == "too_large"


async def test_the_torture_text_is_shown(world: World, alice: MatrixPerson) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    await platform.connect()
    text = await asyncio.to_thread(TORTURE.read_text)
    assert platform.size(text) <= TEXT_BYTES_MAX
    await platform.perform(Post(key=_key("tt"), address=world.address(room), text=text))
    (shown,) = await alice.shown(room)
    assert "@everyone" in shown.text
    assert shown.raw["content"]["m.mentions"] == {}


async def test_what_was_not_taken_is_offered_again(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform()
    inlet.failures.append(Transient("the store is away"))
    await platform.connect()
    receiver = asyncio.create_task(platform.receive(inlet))
    await _ready(inlet, receiver)
    await alice.write(room, "do not lose me")
    with pytest.raises(Transient, match="the store is away"):
        await receiver
    async with world.receiving(inlet, platform):
        await inlet.texts("do not lose me")

    assert len(inlet.offered) == 2


async def test_what_can_never_be_taken_holds_nothing_up(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    inlet.failures.append(Rejected("too long"))
    async with world.receiving(inlet):
        await alice.write(room, "refused")
        await alice.write(room, "taken")
        await inlet.texts("taken")


async def test_messages_sent_while_we_were_away_arrive_in_order(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    # These are more messages than one batch holds, so the server leaves a gap.
    room = await _together(world.bot, alice)
    await alice.write(room, "before the first start")
    async with world.receiving(inlet):
        await alice.write(room, "at work")
        await inlet.texts("at work")
    missed = [f"missed {number}" for number in range(TIMELINE_MAX + 15)]
    for text in missed:
        await alice.write(room, text)
    async with world.receiving(inlet):
        await inlet.texts("at work", *missed)


async def test_a_poisonous_event_is_put_aside_and_holds_nothing_up(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    poison: list[dict[str, object]] = [
        {"msgtype": "m.text", "body": "x", "m.relates_to": "nonsense"},
        {"msgtype": "m.text", "body": "x", "m.new_content": ["no", "text"]},
        {"msgtype": "m.image", "body": "x", "url": 7},
    ]
    path = f"/_matrix/client/v3/rooms/{room}/send/m.room.message"
    async with world.receiving(inlet):
        for number, content in enumerate(poison):
            status, answer = await alice.call("PUT", f"{path}/poison{number}", content)
            assert status == 200, answer
        await alice.write(room, "still here")
        await inlet.texts("still here")

    assert [event["content"] for event in inlet.spoilt.values()] == poison


async def test_an_invitation_of_somebody_who_may_speak_is_taken(
    world: World, alice: MatrixPerson, bob: MatrixPerson, inlet: Recording
) -> None:
    # Everything that was said since the invitation arrives too: people write before the bot has
    # joined.
    old = await alice.room()
    await alice.write(old, "before the invitation")
    await alice.invite(old, world.bot.user_id)
    await alice.write(old, "after the invitation")
    platform = world.platform(allow=(alice.user_id,))
    async with world.receiving(inlet, platform):
        await inlet.texts("after the invitation")
        new = await alice.room(invite=[world.bot.user_id], is_direct=True)
        await alice.write(new, "hello")
        await bob.room(invite=[world.bot.user_id])
        await inlet.texts("after the invitation", "hello")
        await alice.write(new, "last")
        await inlet.texts("after the invitation", "hello", "last")

    _, joined = await world.bot.call("GET", "/_matrix/client/v3/joined_rooms")
    assert sorted(joined["joined_rooms"]) == sorted([old, new])


async def test_an_invitation_is_left_alone_where_nobody_wants_it(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    known = await _together(world.bot, alice)
    await alice.room(invite=[world.bot.user_id])
    async with world.receiving(inlet, world.platform(invites="never")):
        await alice.write(known, "here")
        await inlet.texts("here")

    _, joined = await world.bot.call("GET", "/_matrix/client/v3/joined_rooms")
    assert joined["joined_rooms"] == [known]


async def test_people_see_that_it_was_read(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    room = await _together(world.bot, alice)
    async with world.receiving(inlet):
        event = await alice.write(room, "read me")
        await _signalled(
            alice, room, "m.receipt", lambda seen: world.bot.user_id in _readers(seen, event)
        )


def _readers(receipts: Any, event: str) -> Any:
    return receipts.get(event, {}).get("m.read", {})


async def _signalled(
    person: MatrixPerson, room: str, kind: str, accept: Callable[[Any], bool]
) -> None:
    """Wait until a passing signal of the room is accepted. A sync from the beginning may be
    answered from the server's cache, so later looks continue from the earlier ones."""
    query = "timeout=0"
    async with asyncio.timeout(DEADLINE_S):
        while True:
            _, sync = await person.call("GET", f"/_matrix/client/v3/sync?{query}")
            joined = sync.get("rooms", {}).get("join", {}).get(room, {})
            signals = joined.get("ephemeral", {}).get("events", [])
            if any(each["type"] == kind and accept(each["content"]) for each in signals):
                return
            query = f"timeout=1000&since={sync['next_batch']}"


async def test_a_wrong_token_says_which_key_to_set(world: World) -> None:
    with pytest.raises(Permanent, match=r"Set a valid token.*\[adapters.matrix\]"):
        await world.platform(token=Secret("wrong")).connect()
    with pytest.raises(Permanent, match="user and password"):
        await world.platform(token=None, password=Secret("wrong")).connect()
    with pytest.raises(Permanent, match="Set token, or password"):
        await world.platform(token=None).connect()
    with pytest.raises(Permanent, match="belongs to"):
        await world.platform(user="@somebody:else").connect()
    with pytest.raises(Permanent, match="no Matrix homeserver"):
        await world.platform(homeserver=f"{world.control.url}/elsewhere").connect()


async def test_a_lost_sign_in_is_made_again_with_a_password(
    world: World, alice: MatrixPerson
) -> None:
    room = await _together(world.bot, alice)
    platform = world.platform(token=None, password=Secret(world.bot.password))
    await platform.connect()
    login = json.loads((world.folder / LOGIN).read_text())
    path = f"/_matrix/client/v3/devices/{login['device_id']}"
    await world.bot.call(
        "DELETE",
        path,
        {
            "auth": {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": world.bot.user_id},
                "password": world.bot.password,
            }
        },
    )
    post = Post(key=_key("s"), address=world.address(room), text="back")
    with pytest.raises(Transient, match="signed in again") as caught:
        await platform.perform(post)
    assert "again" not in without_promise(caught.value.message), "once it is parked, it is not"
    await platform.connect()
    await platform.perform(post)

    assert json.loads((world.folder / LOGIN).read_text())["device_id"] == login["device_id"]
    assert [shown.text for shown in await alice.shown(room)] == ["back"]


async def test_a_room_that_the_bot_is_not_in_is_refused_with_advice(
    world: World, alice: MatrixPerson
) -> None:
    platform = world.platform()
    await platform.connect()
    room = await alice.room()
    with pytest.raises(Permanent, match="Invite the bot"):
        await platform.perform(Post(key=_key("no"), address=world.address(room), text="hi"))


async def test_an_encrypted_room_is_never_spoken_to_in_the_open(
    world: World, alice: MatrixPerson, inlet: Recording
) -> None:
    sealed = await alice.room(invite=[world.bot.user_id], is_encrypted=True)
    await world.bot.join(sealed)
    unknown = world.platform()  # it has not read its rooms yet
    await unknown.connect()
    async with world.receiving(inlet) as known:
        for platform in (unknown, known):
            with pytest.raises(Permanent, match="encryption = true"):
                await platform.perform(
                    Post(key=_key("e"), address=world.address(sealed), text="secret")
                )
    assert await alice.shown(sealed) == []


async def test_a_server_that_goes_away_is_waited_for(new_peer: NewPeer, tmp_path: Path) -> None:
    async with new_peer.synapse() as server, server.control() as control:
        bot, alice = await control.person("bot"), await control.person("alice")
        world = World(control, bot, tmp_path / "matrix")
        room = await _together(bot, alice)
        inlet = Recording()
        platform = world.platform()
        await platform.connect()
        receiver = asyncio.create_task(platform.receive(inlet))
        await _ready(inlet, receiver)
        await server.kill()
        with pytest.raises(Transient):
            await receiver
        post = Post(key=_key("gone"), address=world.address(room), text="late")
        with pytest.raises(Transient, match="cannot be reached"):
            await platform.perform(post)
        with pytest.raises(Transient):
            await platform.connect()

        await server.start()
        await alice.write(room, "are you back?")
        async with world.receiving(inlet, platform):
            await inlet.texts("are you back?")
            await platform.perform(post)
        assert [shown.text for shown in await alice.shown(room)] == ["are you back?", "late"]


async def test_the_servers_own_limit_is_passed_on(
    strict_matrix: MatrixControl, tmp_path: Path
) -> None:
    # Synapse runs with its default limits. The adapter must not wait or try again by itself.
    bot, alice = await strict_matrix.person("bot"), await strict_matrix.person("alice")
    world = World(strict_matrix, bot, tmp_path / "matrix")
    room = await _together(bot, alice)
    platform = world.platform()
    await platform.connect()
    address = world.address(room)
    posted = await platform.perform(Post(key=_key("r"), address=address, text="0"))
    first = Edit(key=_key("r"), address=address, receipt=posted.external_id, text="0")
    sent = 0

    async def edit_on() -> None:
        nonlocal sent
        while sent < 40:
            edit = msgspec.structs.replace(first, text=str(sent + 1))
            await platform.perform(edit)
            sent += 1

    with pytest.raises(Transient) as refused:
        await edit_on()
    await platform.close()

    wait_s = refused.value.retry_after_s
    assert refused.value.code == ACCOUNT_WAIT
    assert wait_s is not None
    assert wait_s > 0
    (shown,) = await alice.shown(room)
    assert shown.text == str(sent)


async def test_the_cursor_moves_after_the_message_was_taken(
    world: World, alice: MatrixPerson
) -> None:
    room = await _together(world.bot, alice)
    cursor = world.folder / CURSOR
    seen: list[str] = []

    class Looking(Recording):
        async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
            seen.append(_point(cursor))
            await super().take(arrival, reading)

    looking = Looking()
    async with world.receiving(looking):
        began = await _kept(cursor)
        await alice.write(room, "one")
        await looking.texts("one")
        async with asyncio.timeout(DEADLINE_S):
            while _point(cursor) == began:
                await asyncio.sleep(0.01)

    assert seen == [began]


async def _kept(cursor: Path) -> str:
    async with asyncio.timeout(DEADLINE_S):
        while not cursor.exists():
            await asyncio.sleep(0.01)
    return _point(cursor)


def _point(cursor: Path) -> str:
    point: str = json.loads(cursor.read_text())["next_batch"]
    return point
