"""Telegram with webhooks and media, by `telemelya`, which keeps its state in a Redis and an S3.

It refuses an edit of a message that it does not know. It has no `getUpdates`, sends no secret token
with an update, and knows no documents, reactions, drafts or limits. The ids of its updates are a
clock's milliseconds, cut short: they are not in order for ever, and two in one millisecond meet.
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
    """What the peer is made of: itself, a Redis, and Node with the harness of an S3."""

    telemelya: Path
    redis: Path
    node: Path
    s3: Path


class TelemelyaServer(Server):
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
        """A bot with a private chat that nothing has happened in."""
        async with aiohttp.ClientSession() as session:
            yield TelemelyaControl(self, session)


class TelemelyaControl:
    """Plays one person in a private chat with the bot, which must have set its webhook before."""

    def __init__(self, server: TelemelyaServer, session: aiohttp.ClientSession) -> None:
        number = next(server.numbers)
        self.server = server
        self.api_url = server.url
        self.bot_token = f"{8000 + number}:of-the-tests"
        self.chat = 500_000 + number
        self._scope = {"bot_token": self.bot_token, "session_id": f"test-{number}"}
        self._session = session

    async def write(self, text: str) -> str:
        """Write to the bot: the message's id. Returns after the webhook has answered."""
        update = await self._update(text=text)
        return str(update["message"]["message_id"])

    async def send_photo(
        self, data: bytes, *, caption: str = "", name: str = "photo.jpg", kind: str = "image/jpeg"
    ) -> str:
        """Send a photo: its file id, which the bot can give to `getFile`."""
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
        """The calls the bot has made about this chat, or those of one method, oldest first."""
        made = (await self._call("GET", "responses"))["responses"]
        return [each for each in made if method in ("", each["method"])]

    async def wait_calls(self, method: str, number: int = 1) -> list[dict[str, Any]]:
        """The calls of one method, once there are so many."""
        return await wait_until(
            lambda: self.calls(method),
            lambda calls: len(calls) >= number,
            clock=self.server.clock,
        )

    async def shown(self) -> list[ShownMessage]:
        """The bot's messages, oldest first."""
        return folded(await self.calls())

    async def wait_shown(self, accept: Callable[[list[ShownMessage]], bool]) -> list[ShownMessage]:
        return await wait_until(self.shown, accept, clock=self.server.clock)

    async def media(self, file_id: str) -> bytes:
        """What the bot has uploaded under this id."""
        url = f"{self.server.url}/api/v1/test/media/{file_id}"
        async with self._session.get(url, params=self._scope, headers=_KEY) as response:
            assert response.content_type == "application/octet-stream", await response.text()
            return await response.read()

    async def _update(self, **fields: object) -> dict[str, Any]:
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
    """What a chat looks like after these calls."""
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
