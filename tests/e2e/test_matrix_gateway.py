"""Checks a whole gateway in rooms of a real homeserver: what people see there, also when it
dies."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import nio  # type: ignore[import-untyped]
import pytest
import pytest_asyncio

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.matrix.matrix_person import MatrixPerson
from perdure.testkit.peers.matrix.synapse import MatrixControl, SynapseServer
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.processes.process import GatewayProcess

pytestmark = [pytest.mark.timeout(90), pytest.mark.asyncio(loop_scope="class")]

CLOCK = SystemClock()
SLOW = "demo words=80 delay_ms=50"
PEOPLE = 12
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def section(url: str, bot: MatrixPerson, more: str, allow: list[MatrixPerson]) -> str:
    allowed = ", ".join(f'"{person.user_id}"' for person in allow)
    return (
        f'[adapters.matrix]\nhomeserver = "{url}"\nuser = "{bot.user_id}"\n'
        f'password = "{bot.password}"\nallow = [{allowed}]\ncollect_ms = 0\n{more}\n'
    )


class Town:
    """Holds one gateway, its bot, and people who have not spoken to it yet."""

    def __init__(self, control: MatrixControl, bot: MatrixPerson) -> None:
        self.control = control
        self.bot = bot
        self.people: list[MatrixPerson] = []
        self.gateway: GatewayProcess | None = None

    def somebody(self) -> MatrixPerson:
        return self.people.pop()

    @property
    def running(self) -> GatewayProcess:
        assert self.gateway is not None
        return self.gateway

    async def begin(self, home: Path, more: str) -> None:
        self.people = [await self.control.person("person") for _ in range(PEOPLE)]
        toml = section(self.control.url, self.bot, more, self.people)
        (home / "perdure.toml").write_text(toml)
        environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
        self.gateway = GatewayProcess(home, environ=environ, clock=CLOCK)
        await self.gateway.start()

    async def answers(
        self, person: MatrixPerson, room: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until what the bot says in the room is accepted."""

        async def said() -> list[ShownMessage]:
            shown = await person.shown(room)
            return [each for each in shown if each.author == self.bot.user_id]

        return await wait_until(said, accept, clock=CLOCK)


def said(word: str) -> Callable[[list[ShownMessage]], bool]:
    return lambda shown: any(word in each.text for each in shown)


def is_whole(words: int) -> Callable[[list[ShownMessage]], bool]:
    return lambda shown: bool(shown) and len(shown[-1].text.split()) == words


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def town(
    synapse_server: SynapseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Town]:
    async with synapse_server.control() as control:
        town = Town(control, await control.person("bot"))
        await town.begin(tmp_path_factory.mktemp("matrix"), 'busy = "queue"')
        yield town
        await town.running.kill()


class TestOneGateway:
    """Checks one gateway that many people talk to, each in a room of their own."""

    async def test_an_answer_grows_in_one_message(self, town: Town) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        await ada.write(room, SLOW)
        (growing,) = await town.answers(ada, room, bool)
        assert len(growing.text.split()) < 80
        (answer,) = await town.answers(ada, room, is_whole(80))
        assert answer.id == growing.id
        assert answer.raw["content"]["m.mentions"] == {}

    async def test_the_same_event_again_is_the_same_turn(self, town: Town) -> None:
        # With an old cursor the server sends every event again.
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        cursor = town.running.home / "adapters" / "matrix" / "sync.json"
        earlier = cursor.read_text()
        await ada.write(room, "hello there")
        await town.answers(ada, room, said("hello there"))
        await town.running.kill()
        kept = json.loads(earlier)
        cursor.write_text(json.dumps({**kept, "joining": [room]}))
        await town.running.start()
        await ada.write(room, "and now?")
        shown = await town.answers(ada, room, said("and now?"))
        assert [said("hello there")([each]) for each in shown] == [True, False]

    async def test_a_kill_in_the_middle_loses_nothing_and_shows_nothing_twice(
        self, town: Town
    ) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        await ada.write(room, SLOW)
        await town.answers(ada, room, bool)
        await town.running.kill()
        await ada.write(room, "said while it was dead")
        await town.running.start()
        shown = await town.answers(ada, room, said("said while it was dead"))
        assert [len(each.text.split()) >= 80 for each in shown] == [True, False]

    @pytest.mark.parametrize("word", ["/stop", "!stop"])
    async def test_a_stop_ends_the_answer(self, town: Town, word: str) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        await ada.write(room, "demo words=600 delay_ms=40")
        await town.answers(ada, room, bool)
        await ada.write(room, word)
        await town.answers(ada, room, said("topped"))
        await ada.write(room, "next")
        shown = await town.answers(ada, room, said("next"))
        assert 0 < len(shown[0].text.split()) < 600

    async def test_strangers_meet_silence(self, town: Town) -> None:
        ada, stranger = town.somebody(), await town.control.person("stranger")
        alone = await stranger.room(invite=[town.bot.user_id], is_direct=True)
        room = await ada.room(invite=[town.bot.user_id])
        await ada.invite(room, stranger.user_id)
        await stranger.join(room)
        name = town.bot.user_id
        await wait_until(lambda: _members(ada, room), lambda seen: name in seen, clock=CLOCK)
        await stranger.write(room, f"{name}: let me in", mention=name)
        await ada.write(room, f"{name}: and me", mention=name)
        await town.answers(ada, room, said("and me"))
        assert not said("let me in")(await town.answers(ada, room, bool))
        assert name not in await _members(stranger, alone)

    async def test_a_group_is_answered_where_it_asks(self, town: Town) -> None:
        ada, bob = town.somebody(), town.somebody()
        room = await ada.room(invite=[town.bot.user_id, bob.user_id], name="Club")
        await bob.join(room)
        root = await bob.write(room, "what do you think, Ada?")
        await wait_until(
            lambda: _members(ada, room), lambda seen: town.bot.user_id in seen, clock=CLOCK
        )
        await ada.write(room, "ask", mention=town.bot.user_id, thread=root)
        (answer,) = await town.answers(ada, room, said("ask"))
        assert answer.thread == root
        await bob.write(room, "and without a mention", thread=root)
        both = await town.answers(ada, room, said("without a mention"))
        assert {each.thread for each in both} == {root}

    async def test_a_long_answer_arrives_whole(self, town: Town) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        await ada.write(room, "demo words=4000 delay_ms=0")
        shown = await town.answers(
            ada, room, lambda shown: sum(len(each.text.split()) for each in shown) >= 4000
        )
        assert len(shown) > 1
        assert sum(len(each.text.split()) for each in shown) == 4000

    async def test_an_edited_message_is_asked_anew(self, town: Town) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        event = await ada.write(room, "helo")
        await town.answers(ada, room, said("helo"))
        await ada.edit(room, event, "hello again")
        await town.answers(ada, room, said("hello again"))

    async def test_a_file_comes_in(self, town: Town) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        await ada.send_file(room, "map.png", PNG, "image/png")
        (answer,) = await town.answers(ada, room, said("map.png"))
        assert "You sent" in answer.text
        kept = [path for path in (town.running.home / "media").rglob("*") if path.is_file()]
        assert PNG in [path.read_bytes() for path in kept]

    async def test_a_file_that_the_agent_makes_is_sent(self, town: Town) -> None:
        ada = town.somebody()
        room = await ada.room(invite=[town.bot.user_id], is_direct=True)
        await ada.write(room, "demo file report.txt high tide at noon")
        *_, file = await town.answers(ada, room, lambda shown: len(shown) == 2)
        content = file.raw["content"]
        assert (content["msgtype"], content["body"]) == ("m.file", "report.txt")
        assert b"high tide" in await ada.download(content["url"])

    async def test_its_health_is_told(self, town: Town) -> None:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{town.running.url}/healthz") as response,
        ):
            assert (await response.json())["adapters"] == {"matrix": "serving"}


async def _members(person: MatrixPerson, room: str) -> set[str]:
    _, answer = await person.call("GET", f"/_matrix/client/v3/rooms/{room}/joined_members")
    return set(answer["joined"])


@pytest.mark.slow
async def test_every_answer_is_delivered_under_the_servers_own_limits(
    strict_synapse_server: SynapseServer, tmp_path: Path
) -> None:
    # Previews give way, and no request is made while the server refuses requests.
    async with strict_synapse_server.control() as control:
        town = Town(control, await control.person("bot"))
        ada = await control.person("ada")
        toml = section(control.url, town.bot, "", [ada])
        (tmp_path / "perdure.toml").write_text(toml)
        environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
        town.gateway = GatewayProcess(tmp_path, environ=environ, clock=CLOCK)
        await town.gateway.start()
        try:
            room = await ada.room(invite=[town.bot.user_id], is_direct=True)
            await ada.write(room, "demo words=24 delay_ms=350")
            (answer,) = await town.answers(ada, room, is_whole(24))
            assert answer.is_edited
        finally:
            await town.gateway.kill()


async def test_a_sealed_room_is_answered_after_a_kill(
    synapse_server: SynapseServer, tmp_path: Path
) -> None:
    # The keys are in the folder, so a message that came while the gateway was dead can be read.
    async with synapse_server.control() as control:
        bot, ada = await control.person("bot"), await control.person("ada")
        home, keys = tmp_path / "home", tmp_path / "keys"
        home.mkdir()
        keys.mkdir()
        (home / "perdure.toml").write_text(section(control.url, bot, "encryption = true", [ada]))
        environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
        gateway = GatewayProcess(home, environ=environ, clock=CLOCK)
        await gateway.start()
        config = nio.AsyncClientConfig(encryption_enabled=True)
        client = nio.AsyncClient(control.url, ada.user_id, ada.device_id, str(keys), config)
        client.restore_login(ada.user_id, ada.device_id, ada.token)
        try:
            await _talk_in_secret(gateway, client, ada, bot.user_id)
        finally:
            await gateway.kill()
            await client.close()
            client.store.database.close()


async def _talk_in_secret(
    gateway: GatewayProcess, client: nio.AsyncClient, ada: MatrixPerson, bot: str
) -> None:
    room = await ada.room(invite=[bot], is_encrypted=True)
    heard: list[str] = []

    async def until(accept: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not accept():
                sync = await client.sync(timeout=200, full_state=True)
                events = [e for each in sync.rooms.join.values() for e in each.timeline.events]
                heard.extend(e.body for e in events if e.sender == bot and hasattr(e, "body"))
                if client.should_upload_keys:
                    await client.keys_upload()
                if client.should_query_keys:
                    await client.keys_query()

    async def say(text: str) -> None:
        content = {"msgtype": "m.text", "body": text}
        await client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)

    await until(
        lambda: (
            room in client.rooms
            and bot in client.rooms[room].users
            and bot not in client.rooms[room].invited_users
            and any(True for _ in client.device_store.active_user_devices(bot))
        )
    )
    await say("first secret")
    await until(lambda: any("first secret" in text for text in heard))
    await gateway.kill()
    await say("second secret")
    await gateway.start()
    await until(lambda: any("second secret" in text for text in heard))
