"""Runs Telegram with webhooks and media, by `telemelya`, which keeps its state in a Redis and an
S3.

The peer refuses an edit of a message that it does not know. It has no `getUpdates`, sends no secret
token with an update, and knows no documents, reactions, drafts or limits. The ids of its updates
are the last digits of a clock's milliseconds: their order does not hold for ever, and two updates
in one millisecond have the same id.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from perdure.testkit.peers.peer import Peer, Server, Site, free_port
from perdure.testkit.peers.shown import ShownMessage, wait_until

_SENDS: Final = {"sendMessage", "sendPhoto"}
_EDITS: Final = {"editMessageText", "editMessageCaption", "editMessageReplyMarkup"}


class Programs(msgspec.Struct, frozen=True):
    """Holds the paths of the programs that the peer consists of: itself, a Redis, and Node with the
    harness of an S3."""

    telemelya: Path
    redis: Path
    node: Path
    s3: Path


class TelemelyaServer(Server):
    """Runs telemelya with its Redis and its S3."""

    def __init__(self, site: Site, *, programs: Programs) -> None:
        port, redis_port, s3_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.numbers = count(1)
        nothing_kept = ["--save", "", "--appendonly", "no"]
        redis_command = [str(programs.redis), "--port", str(redis_port), "--bind", "127.0.0.1"]
        environ = {
            "MOCK_SERVER_HOST": "127.0.0.1",
            "MOCK_SERVER_PORT": str(port),
            "MOCK_SERVER_URL": self.url,
            "REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
            "MINIO_ENDPOINT": f"127.0.0.1:{s3_port}",
            "STRICT_EDIT": "true",
        }
        super().__init__(
            Peer(
                "redis",
                [*redis_command, *nothing_kept],
                site=site,
                ready=f"tcp:127.0.0.1:{redis_port}",
            ),
            Peer(
                "s3",
                [str(programs.node), str(programs.s3), str(s3_port)],
                site=site,
                ready=f"tcp:127.0.0.1:{s3_port}",
            ),
            Peer(
                "telemelya",
                [str(programs.telemelya)],
                site=site,
                ready=f"{self.url}/",
                environ=environ,
            ),
            site=site,
        )

    @asynccontextmanager
    async def control(self) -> AsyncIterator["TelemelyaControl"]:
        """Open a bot with a private chat in which nothing has happened."""
        async with aiohttp.ClientSession() as session:
            yield TelemelyaControl(self, session)


class TelemelyaControl:
    """Plays one person in a private chat with the bot. The bot must have set its webhook before."""

    def __init__(self, server: TelemelyaServer, session: aiohttp.ClientSession) -> None:
        number = next(server.numbers)
        self.server = server
        self.api_url = server.url
        self.bot_token = f"{8000 + number}:of-the-tests"
        self.chat = 500_000 + number
        self._scope = {"bot_token": self.bot_token, "session_id": f"test-{number}"}
        self._session = session

    async def write(self, text: str) -> str:
        """Write to the bot, and return the message's id when the webhook has answered."""
        update = await self._update(text=text)
        return str(update["message"]["message_id"])

    async def send_photo(
        self, data: bytes, *, caption: str = "", name: str = "photo.jpg", kind: str = "image/jpeg"
    ) -> str:
        """Send a photo, and return its file id, which the bot can give to `getFile`."""
        form = aiohttp.FormData()
        form.add_field("file", data, filename=name, content_type=kind)
        stored = await self._call("POST", "upload_media", data=form)
        await self._update(photo_file_id=stored["file_id"], photo_caption=caption or None)
        file_id: str = stored["file_id"]
        return file_id

    async def click(self, message: str, data: str) -> None:
        """Press the button of a bot's message that carries this data."""
        await self._update(callback_data=data, callback_message_id=int(message))

    async def calls(self, method: str = "") -> list[dict[str, Any]]:
        """Return the calls that the bot has made about this chat, or those of one method, oldest
        first."""
        made = (await self._call("GET", "responses"))["responses"]
        return [each for each in made if method in ("", each["method"])]

    async def wait_calls(self, method: str, number: int = 1) -> list[dict[str, Any]]:
        """Wait until there are this many calls of a method, and return them."""
        return await wait_until(
            lambda: self.calls(method),
            lambda calls: len(calls) >= number,
            clock=self.server.clock,
        )

    async def shown(self) -> list[ShownMessage]:
        """Return the bot's messages, oldest first."""
        return folded(await self.calls())

    async def wait_shown(self, accept: Callable[[list[ShownMessage]], bool]) -> list[ShownMessage]:
        """Wait until the bot's messages are accepted, and return them."""
        return await wait_until(self.shown, accept, clock=self.server.clock)

    async def media(self, file_id: str) -> bytes:
        """Return what the bot has uploaded under this id."""
        url = f"{self.server.url}/api/v1/test/media/{file_id}"
        async with self._session.get(url, params=self._scope, headers=_KEY) as response:
            assert response.content_type == "application/octet-stream", await response.text()
            return await response.read()

    async def _update(self, **fields: object) -> dict[str, Any]:
        """Have an update sent to the webhook, which must accept it."""
        person = {"id": self.chat, "first_name": "Alice", "username": "alice"}
        body = {"chat_id": self.chat, "from_user": person, **fields}
        answer = await self._call("POST", "send_update", json=body)
        status = answer["delivery"]["status_code"]
        assert status < 300, f"the webhook answered {status}: {answer['delivery']}"
        update: dict[str, Any] = answer["update"]
        return update

    async def _call(self, method: str, verb: str, **more: Any) -> dict[str, Any]:
        url = f"{self.server.url}/api/v1/test/{verb}"
        async with self._session.request(
            method, url, params=self._scope, headers=_KEY, **more
        ) as response:
            answer: dict[str, Any] = await response.json()
            assert response.status == 200, (verb, answer)
            return answer


_KEY: Final = {"Authorization": "Bearer anybody"}


def folded(calls: list[dict[str, Any]]) -> list[ShownMessage]:
    """Return the bot's messages in a chat after these calls."""
    shown: dict[str, ShownMessage] = {}
    for call in calls:
        message = str(call.get("message_id"))
        if call["method"] in _SENDS or (call["method"] in _EDITS and message in shown):
            shown[message] = ShownMessage(
                id=message,
                author="bot",
                text=call.get("text") or call.get("caption") or "",
                is_edited=call["method"] in _EDITS,
                raw=call,
            )
        elif call["method"] == "deleteMessage":
            shown.pop(message, None)
    return list(shown.values())
