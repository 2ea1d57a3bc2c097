"""Runs Telegram with long polling, by `telegram-test-api`. Each test has a bot of its own, with
private chats.

The peer hands out an update once, whatever `offset` says, so a lost answer is a lost update. It
sends no `is_bot` in `getMe` and no `chat_instance` in a callback, answers an edit with `null`,
gives dates in milliseconds, reads no multipart body, and answers unknown methods with status 500
and without `ok`. It knows no media, no chat actions and no limits.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from perdure.testkit.peers.peer import Peer, Server, Site, free_port
from perdure.testkit.peers.shown import ShownMessage, wait_until


class TelegramPerson(msgspec.Struct, frozen=True):
    """Describes a person with a private chat, which has the same id."""

    id: int
    name: str

    @property
    def account(self) -> dict[str, object]:
        """Return the person as Telegram describes a user."""
        return {"id": self.id, "is_bot": False, "first_name": self.name, "username": self.name}

    @property
    def chat(self) -> dict[str, object]:
        """Return the private chat as Telegram describes it."""
        return {"id": self.id, "type": "private", "first_name": self.name, "username": self.name}


class TelegramTestApiServer(Server):
    """Runs `harness` with `node`. After a restart it remembers nothing."""

    def __init__(self, site: Site, *, node: Path, harness: Path) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.numbers = count(1)
        command = [str(node), str(harness), str(port)]
        telegram = Peer("telegram-test-api", command, site=site, ready=f"tcp:127.0.0.1:{port}")
        super().__init__(telegram, site=site)

    @asynccontextmanager
    async def control(self) -> AsyncIterator["TelegramTestApiControl"]:
        """Open a bot to which nobody has written."""
        async with aiohttp.ClientSession() as session:
            yield TelegramTestApiControl(self, session)


class TelegramTestApiControl:
    """Plays the people who write to one bot, each in a private chat."""

    def __init__(self, server: TelegramTestApiServer, session: aiohttp.ClientSession) -> None:
        number = next(server.numbers)
        self.server = server
        self.api_url = server.url
        self.bot_token = f"{7000 + number}:of-the-tests"
        self.alice = TelegramPerson(number * 1000 + 1, "alice")
        self.bob = TelegramPerson(number * 1000 + 2, "bob")
        self._session = session

    async def write(self, person: TelegramPerson, text: str) -> str:
        """Write to the bot, and return the message's id. A text that begins with a slash is a
        command, as on Telegram."""
        fields: dict[str, object] = {"text": text}
        if text.startswith("/"):
            length = len(text.split(maxsplit=1)[0])
            fields["entities"] = [{"type": "bot_command", "offset": 0, "length": length}]
        await self._post("sendMessage", from_=person, chat=person.chat, **fields)
        return (await self.history(person))[-1].id

    async def click(self, person: TelegramPerson, message: str, data: str) -> None:
        """Press the button of a bot's message that carries this data."""
        shown = {each.id: each for each in await self.shown(person)}[message]
        keyboard = shown.raw["reply_markup"]["inline_keyboard"]
        assert data in [button.get("callback_data") for row in keyboard for button in row]
        about = {"message_id": int(message), "chat": person.chat, "text": shown.text}
        await self._post("sendCallback", from_=person, message=about, data=data)

    async def shown(self, person: TelegramPerson) -> list[ShownMessage]:
        """Return the bot's messages in this chat, oldest first."""
        return [each for each in await self.history(person) if each.author == "bot"]

    async def wait_shown(
        self, person: TelegramPerson, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the bot's messages in this chat are accepted, and return them."""
        return await wait_until(lambda: self.shown(person), accept, clock=self.server.clock)

    async def history(self, person: TelegramPerson) -> list[ShownMessage]:
        """Return the messages of both sides of the chat, oldest first. The bot's author is
        `bot`."""
        entries = (await self._post("getUpdatesHistory", token=self.bot_token))["result"]
        ours = [each for each in entries if "message" in each and _chat(each) == str(person.id)]
        return [_shown(each) for each in sorted(ours, key=lambda each: int(each["messageId"]))]

    async def _post(
        self, verb: str, *, from_: TelegramPerson | None = None, **fields: object
    ) -> dict[str, Any]:
        if from_ is not None:
            date = self.server.clock.now_ms() // 1000
            fields = {"botToken": self.bot_token, "from": from_.account, "date": date, **fields}
        async with self._session.post(f"{self.api_url}/{verb}", json=fields) as response:
            answer: dict[str, Any] = await response.json()
            assert answer.get("ok"), (verb, answer)
            return answer


def _chat(entry: dict[str, Any]) -> str:
    message = entry["message"]
    return str(message["chat"]["id"] if "chat" in message else message["chat_id"])


def _shown(entry: dict[str, Any]) -> ShownMessage:
    message = entry["message"]
    return ShownMessage(
        id=str(entry["messageId"]),
        author=str(message["from"]["id"]) if "from" in message else "bot",
        text=message.get("text", ""),
        # The peer puts the fields of an edit over the message, so only an edited one has these.
        is_edited="message_id" in message and "from" not in message,
        raw=message,
    )
