"""Checks encrypted rooms, between the adapter and another client, through Synapse.

The other client is the same library, used as its authors intend. What it cannot read, nobody can.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from copy import copy
from pathlib import Path
from typing import Any

import aiohttp
import nio  # type: ignore[import-untyped]
import pytest
from aiohttp import web
from nio.crypto.attachments import decrypt_attachment  # type: ignore[import-untyped]

from perdure.adapters.matrix.adapter import Matrix, make
from perdure.adapters.matrix.login.keeping import CURSOR
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.adapters.matrix.render import TEXT_BYTES_MAX
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.errors import Transient
from perdure.domain.ids import PartId
from perdure.domain.inbound.arrivals import Arrival
from perdure.domain.secret import Secret
from perdure.ports.platform.adapter import ArrivalReading, Delete, Edit, Post, React, Upload
from perdure.ports.platform.manifest import AdapterContext
from perdure.testkit.contract.adapter_case import Unguarded, opened
from perdure.testkit.peers.matrix.matrix_person import MatrixPerson
from perdure.testkit.peers.matrix.synapse import MatrixControl

DEADLINE_S = 30.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4


class Recording(Unguarded):
    """Keeps each arrival once, as the gateway does."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.spoilt: dict[str, str] = {}
        self.is_alive = asyncio.Event()
        self._changed = asyncio.Condition()

    async def take(self, arrival: Arrival, reading: ArrivalReading | None = None) -> None:
        async with self._changed:
            if arrival.external_id not in {each.external_id for each in self.arrivals}:
                self.arrivals += await opened(arrival, reading)
            self._changed.notify_all()

    async def spoil(self, external_id: str, payload: str, why: str) -> None:
        self.spoilt[external_id] = why

    def alive(self) -> None:
        self.is_alive.set()

    async def texts(self, *wanted: str) -> list[Arrival]:
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: len(self.arrivals) >= len(wanted))
        assert [arrival.text for arrival in self.arrivals] == list(wanted)
        return self.arrivals


class Friend:
    """Plays a person whose client encrypts."""

    def __init__(self, person: MatrixPerson, url: str, folder: Path) -> None:
        folder.mkdir()
        config = nio.AsyncClientConfig(encryption_enabled=True)
        self.client = nio.AsyncClient(url, person.user_id, person.device_id, str(folder), config)
        self.client.restore_login(person.user_id, person.device_id, person.token)
        self.person = person
        self.events: list[Any] = []

    async def sync(self) -> None:
        answer = await self.client.sync(timeout=200, full_state=True)
        assert isinstance(answer, nio.SyncResponse), answer
        for room in answer.rooms.join.values():
            self.events.extend(room.timeline.events)
        for needed, errand in (
            (self.client.should_upload_keys, self.client.keys_upload),
            (self.client.should_query_keys, self.client.keys_query),
        ):
            if needed:
                await errand()
        await self.client.send_to_device_messages()

    async def say(self, room: str, content: dict[str, Any]) -> str:
        sent = await self.client.room_send(
            room, "m.room.message", content, ignore_unverified_devices=True
        )
        assert isinstance(sent, nio.RoomSendResponse), sent
        event_id: str = sent.event_id
        return event_id

    async def until(self, accept: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for event in self.events:
                    if accept(event):
                        return event
                await self.sync()

    async def reads(self, text: str) -> Any:
        """Wait for an event with this text that was decrypted."""
        return await self.until(
            lambda event: getattr(event, "decrypted", False) and getattr(event, "body", "") == text
        )


class World:
    def __init__(self, control: MatrixControl, bot: MatrixPerson, folder: Path) -> None:
        self.url = control.url
        self.bot = bot
        self.folder = folder

    @contextlib.asynccontextmanager
    async def receiving(self, inlet: Recording) -> AsyncIterator[Matrix]:
        settings = MatrixSettings(
            homeserver=self.url,
            user=self.bot.user_id,
            token=Secret(self.bot.token),
            allow=("*",),
            encryption=True,
        )
        context = AdapterContext(clock=SystemClock(), entropy=SystemEntropy(), folder=self.folder)
        platform = make(settings, context)
        await platform.connect()
        try:
            async with asyncio.TaskGroup() as group:
                inlet.is_alive.clear()
                receiver = group.create_task(platform.receive(inlet))
                async with asyncio.timeout(DEADLINE_S):
                    await inlet.is_alive.wait()
                yield platform
                receiver.cancel()
        finally:
            await platform.close()

    def address(self, room: str) -> Address:
        return Address(adapter="matrix", account=self.bot.user_id, place=room)


@pytest.fixture
async def world(matrix: MatrixControl, tmp_path: Path) -> World:
    return World(matrix, await matrix.person("bot"), tmp_path / "matrix")


@pytest.fixture
async def alice(matrix: MatrixControl, tmp_path: Path) -> AsyncIterator[Friend]:
    friend = Friend(await matrix.person("alice"), matrix.url, tmp_path / "alice")
    await friend.sync()
    yield friend
    await friend.client.close()
    friend.client.store.database.close()


@pytest.fixture
def inlet() -> Recording:
    return Recording()


async def _sealed_room(world: World, alice: Friend) -> str:
    """Make an encrypted room to which the bot is invited. Returns its id."""
    return await alice.person.room(invite=[world.bot.user_id], is_encrypted=True)


async def _both_in(world: World, alice: Friend, room: str) -> None:
    """Wait until the other client knows the bot and its device."""
    bot = world.bot.user_id

    def is_there(_: Any) -> bool:
        known = alice.client.rooms.get(room)
        if known is None or bot not in known.users or bot in known.invited_users:
            return False
        return any(True for _ in alice.client.device_store.active_user_devices(bot))

    alice.events.append(None)
    await alice.until(is_there)


async def test_words_go_both_ways_and_nobody_else_reads_them(
    world: World, alice: Friend, inlet: Recording
) -> None:
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet) as platform:
        await _both_in(world, alice, room)
        event = await alice.say(room, {"msgtype": "m.text", "body": "a secret question"})
        (arrival,) = await inlet.texts("a secret question")
        receipt = await platform.perform(
            Post(
                key=PartId("stp_a"),
                address=world.address(room),
                text="a **secret** answer",
                reply_to=event,
            )
        )
        answer = await alice.reads("a secret answer")
        edit = Edit(
            key=PartId("stp_a"),
            address=world.address(room),
            receipt=receipt.external_id,
            text="a better answer",
        )
        await platform.perform(edit)
        edited = await alice.reads("* a better answer")

    assert arrival.external_id == event
    assert answer.event_id == receipt.external_id
    content = edited.source["content"]
    assert content["m.new_content"]["body"] == "a better answer"
    assert content["m.relates_to"]["event_id"] == receipt.external_id
    on_server = await alice.person.shown(room)
    assert {shown.raw["type"] for shown in on_server} == {"m.room.encrypted"}
    assert "secret" not in str([shown.raw for shown in on_server])


async def test_edits_threads_and_deletions_come_in(
    world: World, alice: Friend, inlet: Recording
) -> None:
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet) as platform:
        await _both_in(world, alice, room)
        root = await alice.say(room, {"msgtype": "m.text", "body": "root"})
        thread = {"rel_type": "m.thread", "event_id": root}
        event = await alice.say(room, {"msgtype": "m.text", "body": "teh", "m.relates_to": thread})
        await alice.say(
            room,
            {
                "msgtype": "m.text",
                "body": "* the",
                "m.new_content": {"msgtype": "m.text", "body": "the"},
                "m.relates_to": {"rel_type": "m.replace", "event_id": event},
            },
        )
        await inlet.texts("root", "teh", "the")
        await alice.person.delete(room, event)
        _, said, edited, deleted = await inlet.texts("root", "teh", "the", "")
        await platform.perform(React(address=world.address(room), external_id=root, emoji="👀"))
        marks = await alice.person.reactions(room, root)

    assert (edited.kind, deleted.kind) == ("edit", "delete")
    assert said.thread == edited.thread == deleted.thread == root
    assert edited.target == deleted.target == event
    assert marks == [(world.bot.user_id, "👀")]


async def test_files_are_sealed_both_ways(world: World, alice: Friend, inlet: Recording) -> None:
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet) as platform:
        await _both_in(world, alice, room)
        stored, keys = await alice.client.upload(
            lambda _a, _b: PNG, content_type="image/png", encrypt=True, filesize=len(PNG)
        )
        await alice.say(
            room,
            {
                "msgtype": "m.image",
                "body": "map.png",
                "file": {**keys, "url": stored.content_uri},
                "info": {"mimetype": "image/png", "size": len(PNG)},
            },
        )
        (arrival,) = await inlet.texts("")
        (file,) = arrival.files
        fetched = b"".join([piece async for piece in platform.fetch(file.reference)])
        upload = Upload(
            key=PartId("stp_u"),
            address=world.address(room),
            name="answer.png",
            mime="image/png",
            data=PNG[::-1],
        )
        await platform.perform(upload)
        shown = await alice.reads("answer.png")
        sent = shown.source["content"]["file"]
        sealed = await alice.person.download(sent["url"])

    assert fetched == PNG
    opened = decrypt_attachment(sealed, sent["key"]["k"], sent["hashes"]["sha256"], sent["iv"])
    assert opened == PNG[::-1]
    assert PNG[::-1] not in sealed


async def test_the_keys_outlive_the_process(world: World, alice: Friend, inlet: Recording) -> None:
    # The message is written while the gateway is down, under a key that an earlier life was given.
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet):
        await _both_in(world, alice, room)
        await alice.say(room, {"msgtype": "m.text", "body": "first"})
        await inlet.texts("first")
    await alice.say(room, {"msgtype": "m.text", "body": "second"})
    async with world.receiving(inlet) as platform:
        await inlet.texts("first", "second")
        post = Post(key=PartId("stp_r"), address=world.address(room), text="both read")
        receipts = {(await platform.perform(post)).external_id for _ in range(2)}
        await alice.reads("both read")
        (receipt,) = receipts
        await platform.perform(Delete(address=world.address(room), receipt=receipt))

    assert receipt not in {shown.id for shown in await alice.person.shown(room)}


async def test_a_message_waits_for_its_key(world: World, alice: Friend, inlet: Recording) -> None:
    # Keys travel by another way than messages. Here the key comes after the message and after a
    # restart.
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet):
        await _both_in(world, alice, room)
        withheld = await _withholding_keys(alice, room, {"msgtype": "m.text", "body": "patience"})
        plain = await alice.person.write(room, "in the open")
        await inlet.texts("in the open")
        await _kept(world.folder / CURSOR, waiting=1)
    async with world.receiving(inlet):
        await withheld()
        arrivals = await inlet.texts("in the open", "patience")

    assert arrivals[0].external_id == plain


async def test_a_message_whose_key_never_came_is_put_aside(
    world: World, alice: Friend, inlet: Recording
) -> None:
    room, other = await _sealed_room(world, alice), await _sealed_room(world, alice)
    async with world.receiving(inlet):
        await _both_in(world, alice, room)
        await _both_in(world, alice, other)
        await _withholding_keys(alice, room, {"msgtype": "m.text", "body": "never read"})
        await alice.person.write(room, "in the open")
        await inlet.texts("in the open")
        cursor = world.folder / CURSOR
        kept = await _kept(cursor, waiting=1)
    (waiting,) = kept["waiting"]
    waiting["since_ms"] = 1  # as if it had waited for a long time
    cursor.write_text(json.dumps(kept))
    async with world.receiving(inlet):
        await alice.say(other, {"msgtype": "m.text", "body": "read"})  # this brings another key
        await inlet.texts("in the open", "read")
        await _kept(cursor, waiting=0)

    assert inlet.spoilt == {waiting["event"]["event_id"]: "its key never came"}


async def _kept(cursor: Path, *, waiting: int) -> Any:
    """Return the stored cursor once it holds this many waiting messages."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            kept = json.loads(cursor.read_text())
            if len(kept["waiting"]) == waiting:
                return kept
            await asyncio.sleep(0.01)


async def _withholding_keys(alice: Friend, room: str, content: dict[str, Any]) -> Callable[[], Any]:
    """Say something, but keep its key back until the returned function is called."""
    held: list[tuple[Any, ...]] = []
    send = alice.client.send

    async def holding(method: str, path: str, *rest: Any, **more: Any) -> Any:
        if "/sendToDevice/" not in path:
            return await send(method, path, *rest, **more)
        held.append((method, path, *rest))
        raise nio.exceptions.LocalProtocolError("held back")

    alice.client.send = holding
    await alice.say(room, content)
    alice.client.send = send

    async def let_go() -> None:
        assert held, "the message needed no new key"
        for call in held:
            response = await send(*call)
            assert response.status == 200

    return let_go


async def test_what_is_sealed_can_only_be_something_said(
    world: World, alice: Friend, inlet: Recording
) -> None:
    # The server has not checked an encrypted deletion, so it must not delete anything.
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet):
        await _both_in(world, alice, room)
        event = await alice.say(room, {"msgtype": "m.text", "body": "stays"})
        await alice.client.room_send(
            room, "m.room.redaction", {"redacts": event}, ignore_unverified_devices=True
        )
        await alice.say(room, {"msgtype": "m.text", "body": "last"})
        await inlet.texts("stays", "last")


async def test_a_new_device_reads_what_is_said_after_it_came(
    world: World, alice: Friend, inlet: Recording, tmp_path: Path
) -> None:
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet) as platform:
        await _both_in(world, alice, room)
        address = world.address(room)
        await platform.perform(Post(key=PartId("stp_1"), address=address, text="to one device"))
        await alice.reads("to one device")
        async with _another_device(alice, world.url, tmp_path / "second") as second:
            await second.say(room, {"msgtype": "m.text", "body": "I have a new telephone"})
            await inlet.texts("I have a new telephone")
            await platform.perform(Post(key=PartId("stp_2"), address=address, text="to both"))
            await second.reads("to both")
            await alice.reads("to both")


@contextlib.asynccontextmanager
async def _another_device(alice: Friend, url: str, folder: Path) -> AsyncIterator[Friend]:
    """Sign the same person in on another device, which the server announces to everybody."""
    _, login = await alice.person.call(
        "POST",
        "/_matrix/client/v3/login",
        {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": alice.person.user_id},
            "password": alice.person.password,
        },
    )
    person = copy(alice.person)
    person.device_id, person.token = login["device_id"], login["access_token"]
    friend = Friend(person, url, folder)
    try:
        await friend.sync()
        yield friend
    finally:
        await friend.client.close()
        friend.client.store.database.close()


class Front:
    """Stands before the server, and refuses every request to the path `refused`: a single refusal
    could meet a request of the connection itself, which asks for the same things."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.url = ""
        self.refused = ""
        self.refusals = 0

    async def serve(self, request: web.Request) -> web.Response:
        if self.refused and self.refused in request.path:
            self.refusals += 1
            return web.json_response({"retry_after_ms": 10}, status=429)
        async with (
            aiohttp.ClientSession(auto_decompress=False) as http,
            http.request(
                request.method,
                self.behind + request.raw_path,
                data=await request.read(),
                headers={k: v for k, v in request.headers.items() if k != "Host"},
            ) as response,
        ):
            return web.Response(
                status=response.status,
                body=await response.read(),
                content_type=response.content_type,
            )


@pytest.fixture
async def front(world: World) -> AsyncIterator[Front]:
    front = Front(world.url)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", front.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    world.url = front.url = f"http://{host}:{port}"
    yield front
    await runner.cleanup()


async def test_nothing_is_said_under_a_key_that_somebody_lacks(
    world: World, alice: Friend, inlet: Recording, front: Front
) -> None:
    # This holds however often sharing the key fails, and it does not delay later messages.
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet) as platform:
        await _both_in(world, alice, room)
        post = Post(key=PartId("stp_k"), address=world.address(room), text="for all of you")
        for path in ("/joined_members", "/keys/claim", "/sendToDevice/"):
            front.refused, front.refusals = path, 0
            with pytest.raises(Transient) as refused:
                await platform.perform(post)
            assert refused.value.retry_after_s == 0.01
            assert front.refusals
        front.refused = ""
        assert await alice.person.shown(room) == []
        await platform.perform(post)
        await alice.reads("for all of you")


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
async def test_what_size_allows_fits_when_sealed(
    world: World, alice: Friend, inlet: Recording, letter: str
) -> None:
    # The text must fit as an edit too: an edit holds the words twice, and encryption adds a third.
    room = await _sealed_room(world, alice)
    async with world.receiving(inlet) as platform:
        await _both_in(world, alice, room)
        text = letter * next(
            n for n in range(TEXT_BYTES_MAX, 0, -20) if platform.size(letter * n) <= TEXT_BYTES_MAX
        )
        address = world.address(room)
        receipt = await platform.perform(Post(key=PartId("stp_s"), address=address, text=text))
        await platform.perform(
            Edit(key=PartId("stp_s"), address=address, receipt=receipt.external_id, text=text)
        )
        await alice.reads(f"* {text}")
