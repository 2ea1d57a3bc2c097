"""Checks approvals with real buttons on Telegram, Slack and Discord: who may press them, also when
two press at once and the gateway dies in between. What is allowed changes a file on the disk, once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
from simcord.backend.models import User
from tests.e2e.approving import files, toml

from perdure.app.wiring.system import SystemClock
from perdure.domain.tools.asking import ALLOW_CALL, ALLOW_SESSION, DENY_CALL
from perdure.testkit.peers.discord.simcord_server import TOKEN, SimcordServer
from perdure.testkit.peers.shown import ShownMessage, wait_until
from perdure.testkit.peers.slack.local_slack import (
    ALICE,
    APP_TOKEN,
    BOB,
    BOT,
    BOT_TOKEN,
    GENERAL,
    LocalSlackControl,
)
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
Start = Callable[..., Awaitable[GatewayProcess]]
CLOCK = SystemClock()
CHANGE = files("edit", "note.txt", old="one", new="two")
NOT_YOURS = "this question is for somebody else"
ON_TELEGRAM = {"ada": 42, "bob": 43}
ON_SLACK = {"ada": ALICE, "bob": BOB}
CLUB = -7


class Room(Protocol):
    """Plays a place on a platform where Ada asks the agent for something, Bob may speak too, and
    one of both is an operator."""

    def section(self, *, operator: str) -> str:
        """Return the configuration of the adapter, with this person as its operator."""

    async def ready(self) -> None:
        """Wait until the gateway is connected."""

    async def ada_says(self, text: str) -> None:
        """Let Ada write to the bot."""

    async def shown(self) -> list[ShownMessage]:
        """Return what the bot shows there now, oldest first."""

    def buttons(self, message: ShownMessage) -> list[str]:
        """Return the words on the buttons under a message."""

    async def press(self, who: str, message: ShownMessage, label: str) -> None:
        """Let somebody press a button that they have seen, also if it is gone by now."""


class OnTelegram:
    """Plays a group on Telegram."""

    def __init__(self, api: BotApi) -> None:
        self._api = api

    def section(self, *, operator: str) -> str:
        allowed = ", ".join(f'"{person}"' for person in ON_TELEGRAM.values())
        return (
            f'[adapters.telegram]\ntoken = "{self._api.token}"\napi_url = "{self._api.url}"\n'
            f'allow = [{allowed}]\noperators = ["{ON_TELEGRAM[operator]}"]\ngroups = "person"\n'
            "collect_ms = 0\n"
        )

    async def ready(self) -> None:
        return

    async def ada_says(self, text: str) -> None:
        person = {"id": ON_TELEGRAM["ada"], "is_bot": False, "first_name": "Ada"}
        mention = {"type": "mention", "offset": 0, "length": 12}
        self._api.write(CLUB, f"@perdure_bot {text}", entities=[mention], **{"from": person})

    async def shown(self) -> list[ShownMessage]:
        return self._api.chats.shown(CLUB)

    def buttons(self, message: ShownMessage) -> list[str]:
        rows = message.raw.get("reply_markup", {}).get("inline_keyboard", [])
        return [button["text"] for row in rows for button in row]

    async def press(self, who: str, message: ShownMessage, label: str) -> None:
        rows = message.raw["reply_markup"]["inline_keyboard"]
        data = next(b["callback_data"] for row in rows for b in row if b["text"] == label)
        self._api.press(CLUB, int(message.id), data, user=ON_TELEGRAM[who])


class OnSlack:
    """Plays a channel on Slack."""

    def __init__(self, slack: LocalSlackControl) -> None:
        self._slack = slack
        self._thread = ""

    def section(self, *, operator: str) -> str:
        return (
            f'[adapters.slack]\ntoken = "{BOT_TOKEN}"\napi_url = "{self._slack.api_url}"\n'
            f'app_token = "{APP_TOKEN}"\nallow = ["{ALICE}", "{BOB}"]\n'
            f'operators = ["{ON_SLACK[operator]}"]\ngroups = "person"\ncollect_ms = 0\n'
        )

    async def ready(self) -> None:
        await self._slack.wait_connected()

    async def ada_says(self, text: str) -> None:
        self._thread = await self._slack.mention(GENERAL, text)

    async def shown(self) -> list[ShownMessage]:
        shown = await self._slack.shown(GENERAL)
        return [each for each in shown if each.author == BOT and each.thread == self._thread]

    def buttons(self, message: ShownMessage) -> list[str]:
        return [each["text"]["text"] for each in self._elements(message)]

    async def press(self, who: str, message: ShownMessage, label: str) -> None:
        pressed = next(e for e in self._elements(message) if e["text"]["text"] == label)
        await self._slack.press(GENERAL, message.id, pressed, user=ON_SLACK[who])

    def _elements(self, message: ShownMessage) -> list[dict[str, dict[str, str]]]:
        blocks = message.raw.get("blocks") or []
        return [
            element
            for block in blocks
            if block["type"] == "actions"
            for element in block["elements"]
        ]


class OnDiscord:
    """Plays a channel on Discord."""

    def __init__(self, server: SimcordServer) -> None:
        self._server = server
        self._room = server.channel("room")
        self._people: dict[str, User] = {"ada": server.person("ada"), "bob": server.bob}

    def section(self, *, operator: str) -> str:
        allowed = ", ".join(f'"{person.id}"' for person in self._people.values())
        return (
            f'[adapters.discord]\ntoken = "{TOKEN}"\napi_url = "{self._server.api_url}"\n'
            f'allow = [{allowed}]\noperators = ["{self._people[operator].id}"]\n'
            'groups = "person"\ncollect_ms = 0\n'
        )

    async def ready(self) -> None:
        async with asyncio.timeout(20):
            while self._server.gateway.connected != 1:
                await asyncio.sleep(0.02)

    async def ada_says(self, text: str) -> None:
        self._server.write(self._people["ada"], self._room, f"<@{self._server.bot}> {text}")

    async def shown(self) -> list[ShownMessage]:
        shown = self._server.shown(self._room)
        return [each for each in shown if each.author == self._server.bot]

    def buttons(self, message: ShownMessage) -> list[str]:
        rows = message.raw.get("components") or []
        return [button["label"] for row in rows for button in row["components"]]

    async def press(self, who: str, message: ShownMessage, label: str) -> None:
        rows = message.raw["components"]
        pressed = next(b for row in rows for b in row["components"] if b["label"] == label)
        self._server.press(self._people[who], self._room, message.id, pressed["custom_id"])


@pytest.fixture
async def on_telegram() -> AsyncIterator[Room]:
    async with BotApi(CLOCK) as api:
        yield OnTelegram(api)


@pytest.fixture
def on_slack(local_slack: LocalSlackControl) -> Room:
    return OnSlack(local_slack)


@pytest.fixture
async def on_discord() -> AsyncIterator[Room]:
    async with SimcordServer() as server:
        yield OnDiscord(server)


@pytest.fixture(params=["on_telegram", "on_slack", "on_discord"])
def room(request: pytest.FixtureRequest) -> Room:
    found: Room = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """Make the file that the agent wants to change. A second change of it would fail."""
    folder = tmp_path / "work"
    folder.mkdir()
    file = folder / "note.txt"
    file.write_text("one")
    return file


async def begin(start: Start, room: Room, note: Path, *, operator: str) -> GatewayProcess:
    section = room.section(operator=operator)
    gateway = await start(toml=f"{toml(note.parent)}\n{section}")
    await room.ready()
    return gateway


async def asked(room: Room) -> ShownMessage:
    """Let the agent ask whether it may change the file, and return the message with the buttons."""
    await room.ada_says(CHANGE)
    found = await wait_until(
        room.shown, lambda shown: any(room.buttons(each) for each in shown), clock=CLOCK
    )
    (question,) = [each for each in found if room.buttons(each)]
    assert room.buttons(question) == [ALLOW_CALL, ALLOW_SESSION, DENY_CALL]
    assert '"old": "one"' in question.text
    return question


async def says(room: Room, words: str) -> list[ShownMessage]:
    """Wait until the bot shows these words, and return all that it shows."""
    return await wait_until(
        room.shown, lambda shown: any(words in each.text for each in shown), clock=CLOCK
    )


def is_closed(room: Room, question: ShownMessage) -> Callable[[list[ShownMessage]], bool]:
    """Return whether a question has lost its buttons."""
    return lambda shown: not any(room.buttons(each) for each in shown if each.id == question.id)


async def test_only_the_person_who_is_asked_allows_a_call_and_it_runs_once_across_a_kill(
    gateway_factory: Start, room: Room, note: Path
) -> None:
    gateway = await begin(gateway_factory, room, note, operator="ada")
    question = await asked(room)

    await room.press("bob", question, ALLOW_CALL)
    shown = await says(room, NOT_YOURS)
    assert any(room.buttons(each) for each in shown if each.id == question.id)
    assert note.read_text() == "one"
    await gateway.restart()
    await room.ready()
    await room.press("ada", question, ALLOW_CALL)
    await room.press("ada", question, ALLOW_CALL)

    await says(room, "The tool files answered")
    shown = await wait_until(room.shown, is_closed(room, question), clock=CLOCK)
    (closed,) = [each for each in shown if each.id == question.id]
    assert "Allowed by" in closed.text
    assert note.read_text() == "two"
    assert sum("The tool files answered" in each.text for each in shown) == 1


async def test_of_two_who_press_at_once_one_is_heard_and_the_other_is_told(
    gateway_factory: Start, room: Room, note: Path
) -> None:
    await begin(gateway_factory, room, note, operator="bob")
    question = await asked(room)

    await asyncio.gather(
        room.press("ada", question, DENY_CALL), room.press("bob", question, ALLOW_CALL)
    )

    shown = await says(room, "lready answered")
    shown = await wait_until(room.shown, is_closed(room, question), clock=CLOCK)
    await says(room, "The tool files answered")
    (closed,) = [each for each in shown if each.id == question.id]
    is_allowed = "Allowed by" in closed.text
    assert is_allowed is not ("Denied by" in closed.text)
    assert note.read_text() == ("two" if is_allowed else "one")
