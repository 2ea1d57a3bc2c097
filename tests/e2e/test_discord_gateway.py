"""Checks a whole gateway with a bot on Discord: what people see there, also when it dies."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from itertools import count

import aiohttp
import pytest
import pytest_asyncio
from simcord.backend.models import Channel, User
from simcord.enums import ChannelType

from perdure.app.wiring.system import SystemClock
from perdure.testkit.peers.discord.simcord_server import TOKEN, SimcordServer
from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.processes.process import GatewayProcess

DEADLINE_S = 30.0
NUMBERS = count()
NAMES = [f"ada{number}" for number in range(10)]

# One gateway serves all tests, each with a person and a channel of its own.
pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[SimcordServer]:
    async with SimcordServer() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    server: SimcordServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("discord")
    allowed = ", ".join(f'"{server.person(name).id}"' for name in NAMES)
    (home / "perdure.toml").write_text(
        f'[adapters.discord]\ntoken = "{TOKEN}"\napi_url = "{server.api_url}"\n'
        f'allow = [{allowed}]\nallow_roles = ["crew"]\nbusy = "queue"\ngroups = "person"\n'
        "collect_ms = 0\n"
    )
    environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
    gateway = GatewayProcess(home, environ=environ, clock=SystemClock())
    await gateway.start()
    try:
        await until(lambda: server.gateway.connected == 1 and bool(server.world.commands))
        yield gateway
    finally:
        await gateway.kill()


@pytest.fixture
def ada(server: SimcordServer, gateway: GatewayProcess) -> User:
    """Return a person who may speak and has not spoken yet."""
    name = NAMES[next(NUMBERS)]
    return next(user for user in server.world.users.values() if user.name == name)


@pytest.fixture
def room(server: SimcordServer, gateway: GatewayProcess) -> Channel:
    """Return a channel without a message."""
    return server.channel("room")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.02)


def answers(server: SimcordServer, channel: Channel) -> list[ShownMessage]:
    return [shown for shown in server.shown(channel) if shown.author == server.bot]


def says(server: SimcordServer, channel: Channel, *words: str) -> Callable[[], bool]:
    """Return a check whether the answers have these words, in this order, and there are no
    others."""
    return lambda: (
        len(answers(server, channel)) == len(words)
        and all(
            word in shown.text for word, shown in zip(words, answers(server, channel), strict=True)
        )
    )


def is_whole(server: SimcordServer, channel: Channel, words: int) -> Callable[[], bool]:
    return lambda: sum(len(each.text.split()) for each in answers(server, channel)) == words


async def test_an_answer_is_typed_and_grows_in_one_message(
    server: SimcordServer, ada: User, room: Channel
) -> None:
    asked = server.write(ada, room, f"<@{server.bot}> demo words=40 delay_ms=50")

    await until(lambda: len(answers(server, room)) == 1)
    (growing,) = answers(server, room)
    await until(is_whole(server, room, 40))

    (answer,) = answers(server, room)
    assert len(growing.text.split()) < 40
    assert answer.id == growing.id
    assert answer.is_edited
    assert answer.raw["message_reference"]["message_id"] == asked
    assert server.requests("POST", f"/channels/{room.id}/typing") != []


async def test_what_is_sent_into_a_forum_is_one_post_that_people_can_answer(
    server: SimcordServer, gateway: GatewayProcess, ada: User
) -> None:
    forum = server.channel("questions", type=ChannelType.FORUM)
    text = "Which day?\n\n" + "\n\n".join(f"Reason {number}. " + "x" * 90 for number in range(30))
    async with aiohttp.ClientSession() as http:
        body = {"to": f"discord:{forum.id}", "text": text, "id": "f1"}
        headers = {"Authorization": f"Bearer {gateway.token}"}
        async with http.post(f"{gateway.url}/api/send", json=body, headers=headers) as answer:
            assert answer.status == 202, await answer.text()

    def posts() -> list[Channel]:
        return [each for each in server.world.channels.values() if each.parent_id == forum.id]

    await until(lambda: bool(posts()) and len(server.shown(posts()[0])) == 2)
    (post,) = posts()
    assert post.name == "Which day?"
    shown = server.shown(post)
    assert all(f"Reason {number}." in shown[0].text + shown[1].text for number in range(30))

    server.write(ada, post, "Monday")

    await until(lambda: "Monday" in server.shown(post)[-1].text and len(answers(server, post)) == 3)
    assert posts() == [post]


async def test_a_message_that_comes_again_is_one_turn(server: SimcordServer, ada: User) -> None:
    direct = server.direct(ada)
    message = server.write(ada, direct, "only once")
    for _ in range(3):
        server.world.announce_message_create(server.world.get_message(direct.id, int(message)))
    await until(says(server, direct, "only once"))
    server.write(ada, direct, "and another")  # it would end an unfinished answer

    await until(says(server, direct, "only once", "and another"))


async def test_a_stop_from_the_menu_ends_the_answer(server: SimcordServer, ada: User) -> None:
    direct = server.direct(ada)
    server.write(ada, direct, "demo words=400 delay_ms=50")
    await until(lambda: len(answers(server, direct)) == 1)

    stop = server.command(ada, direct, "stop")
    await until(lambda: "topped" in answers(server, direct)[-1].text)

    await until(lambda: server.world.interactions[stop].responded)
    server.write(ada, direct, "go on")
    await until(lambda: "go on" in answers(server, direct)[-1].text)
    assert len(answers(server, direct)[0].text.split()) < 400


async def test_strangers_and_side_talk_meet_silence(
    server: SimcordServer, ada: User, room: Channel
) -> None:
    hers, his = server.direct(ada), server.direct(server.bob)
    server.write(server.bob, his, "let me in")
    server.write(server.bob, room, f"<@{server.bot}> let me in")
    server.write(ada, room, "not for the bot")
    command = server.command(server.bob, room, "status")
    server.write(ada, room, f"<@{server.bot}> hello")

    await until(says(server, room, "hello"))

    assert answers(server, his) == answers(server, hers) == []
    # Discord is told that the command arrived, which does not tell who may speak.
    assert server.world.interactions[command].responded


async def test_a_role_opens_the_door_and_a_thread_is_answered_in_the_thread(
    server: SimcordServer, room: Channel
) -> None:
    sailor = server.person("sailor", roles=["crew"])
    thread = server.thread(room, "boats")
    server.write(sailor, thread, f"<@{server.bot}> in the thread")

    await until(says(server, thread, "in the thread"))

    assert answers(server, room) == []


async def test_a_long_answer_arrives_whole_in_pieces(
    server: SimcordServer, ada: User, room: Channel
) -> None:
    server.write(ada, room, f"<@{server.bot}> demo words=700 delay_ms=0")

    await until(is_whole(server, room, 700))

    shown = answers(server, room)
    assert len(shown) > 1
    assert all(len(each.text) <= 2000 for each in shown)


async def test_a_file_comes_with_its_message(server: SimcordServer, ada: User) -> None:
    direct = server.direct(ada)
    message = server.write(ada, direct, "what is this?", files=[("notes.txt", b"tide tables")])

    await until(says(server, direct, "notes.txt"))

    assert len(server.requests("GET", f"/channels/{direct.id}/messages/{message}")) == 1


async def test_a_file_that_the_agent_makes_is_sent(server: SimcordServer, ada: User) -> None:
    direct = server.direct(ada)
    server.write(ada, direct, "demo file report.txt high tide at noon")

    await until(lambda: len(answers(server, direct)) == 2)

    attached = answers(server, direct)[-1].raw["attachments"]
    assert [each["filename"] for each in attached] == ["report.txt"]


async def test_a_lost_answer_and_a_rate_limit_show_nothing_twice(
    server: SimcordServer, ada: User, room: Channel
) -> None:
    server.fail("POST", f"/channels/{room.id}/messages", 429, retry_after_s=0.5)
    server.fail("POST", f"/channels/{room.id}/messages", 0)
    server.write(ada, room, f"<@{server.bot}> delivered once")

    await until(lambda: all(fault.times == 0 for fault in server.faults))
    server.write(ada, room, f"<@{server.bot}> and then")
    await until(lambda: "and then" in "".join(each.text for each in answers(server, room)))

    assert says(server, room, "delivered once", "and then")()


async def test_a_kill_loses_nothing_and_shows_nothing_twice(
    server: SimcordServer, gateway: GatewayProcess, ada: User, room: Channel
) -> None:
    direct = server.direct(ada)
    server.write(ada, direct, "demo words=40 delay_ms=80")
    await until(lambda: len(answers(server, direct)) == 1)
    cursors = gateway.home / "adapters" / "discord" / "cursors.json"
    await until(lambda: str(direct.id) in cursors.read_text())

    await gateway.kill()
    await until(lambda: server.gateway.connected == 0)
    server.write(ada, direct, "written in the meantime")
    server.write(ada, room, f"<@{server.bot}> mentioned in the meantime")
    await gateway.start()

    await until(lambda: "in the meantime" in answers(server, direct)[-1].text)
    await until(says(server, room, "in the meantime"))
    first, second = answers(server, direct)
    assert len(first.text.split()) >= 40
    assert "written in the meantime" in second.text
