"""Plays a person on Matrix, with one account on one device, through the plain client-server API."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from perdure.ports.system.clock import Clock
from perdure.testkit.peers.shown import ShownMessage, wait_until

PAGE: Final = 500
MESSAGE_TYPES: Final = {"m.room.message", "m.room.encrypted"}


class MatrixPerson:
    """Plays one person. `call` is the raw API as this person; the other methods are what people do
    with it."""

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        *,
        clock: Clock,
        password: str,
        account: dict[str, str],
    ) -> None:
        self.user_id = account["user_id"]
        self.device_id = account["device_id"]
        self.token = account["access_token"]
        self.password = password
        self._url = url
        self._clock = clock
        self._session = session
        self._transactions = count(1)

    async def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Make a request, and return its status and its JSON. `path` begins with `/_matrix`."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = self._url + path
        async with self._session.request(method, url, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def room(
        self,
        *,
        invite: Sequence[str] = (),
        is_direct: bool = False,
        is_encrypted: bool = False,
        name: str = "",
    ) -> str:
        """Create a room, invite people to it, and return its id."""
        encryption = {
            "type": "m.room.encryption",
            "state_key": "",
            "content": {"algorithm": "m.megolm.v1.aes-sha2"},
        }
        body = {
            "invite": list(invite),
            "is_direct": is_direct,
            "preset": "trusted_private_chat" if is_direct else "private_chat",
            "initial_state": [encryption] if is_encrypted else [],
            **({"name": name} if name else {}),
        }
        answer = await self._done("POST", "/_matrix/client/v3/createRoom", body)
        room: str = answer["room_id"]
        return room

    async def invite(self, room: str, user_id: str) -> None:
        await self._done("POST", f"{_room(room)}/invite", {"user_id": user_id})

    async def join(self, room: str) -> None:
        await self._done("POST", f"{_room(room)}/join", {})

    async def leave(self, room: str) -> None:
        await self._done("POST", f"{_room(room)}/leave", {})

    async def write(
        self,
        room: str,
        text: str,
        *,
        thread: str = "",
        reply_to: str = "",
        mention: str = "",
        txn: str = "",
    ) -> str:
        """Send a text, and return the event's id. The same `txn` again is the same message."""
        content: dict[str, Any] = {"msgtype": "m.text", "body": text}
        if mention:
            content["m.mentions"] = {"user_ids": [mention]}
        if thread:
            content["m.relates_to"] = {
                "rel_type": "m.thread",
                "event_id": thread,
                "is_falling_back": not reply_to,
                "m.in_reply_to": {"event_id": reply_to or thread},
            }
        elif reply_to:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        return await self._send(room, "m.room.message", content, txn=txn)

    async def forward(self, room: str, text: str, *, author: str, mention: str = "") -> str:
        """Forward what somebody has written, as clients do that mark forwards (MSC2723). Returns
        the event's id."""
        content = {
            "msgtype": "m.text",
            "body": text,
            "m.mentions": {"user_ids": [mention]} if mention else {},
            "m.forwarded": {"sender": author, "room_id": "!elsewhere", "event_id": "$first"},
        }
        return await self._send(room, "m.room.message", content)

    async def edit(self, room: str, event_id: str, text: str) -> str:
        """Edit a message, and return the id of the event that does so."""
        content = {
            "msgtype": "m.text",
            "body": f"* {text}",
            "m.new_content": {"msgtype": "m.text", "body": text},
            "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
        }
        return await self._send(room, "m.room.message", content)

    async def react(self, room: str, event_id: str, key: str) -> str:
        """React to a message, and return the id of the reaction."""
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return await self._send(room, "m.reaction", {"m.relates_to": relation})

    async def delete(self, room: str, event_id: str) -> str:
        """Redact one of this person's own events, and return the id of the event that does so."""
        path = f"{_room(room)}/redact/{quote(event_id, safe='')}/t{next(self._transactions)}"
        redaction: str = (await self._done("PUT", path, {}))["event_id"]
        return redaction

    async def send_file(
        self, room: str, name: str, data: bytes, content_type: str = "application/octet-stream"
    ) -> str:
        """Upload and post a file, and return the event's id. An image type makes it an image."""
        content = {
            "msgtype": "m.image" if content_type.startswith("image/") else "m.file",
            "body": name,
            "url": await self.upload(name, data, content_type),
            "info": {"mimetype": content_type, "size": len(data)},
        }
        return await self._send(room, "m.room.message", content)

    async def upload(self, name: str, data: bytes, content_type: str) -> str:
        """Upload bytes, and return their `mxc://` address."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        url = f"{self._url}/_matrix/media/v3/upload"
        async with self._session.post(
            url, params={"filename": name}, data=data, headers=headers
        ) as response:
            answer = await response.json()
            assert response.status == 200, answer
        return str(answer["content_uri"])

    async def send_sticker(self, room: str, body: str, uri: str) -> str:
        """Send a sticker, and return the event's id."""
        content = {"body": body, "url": uri, "info": {"mimetype": "image/png"}}
        return await self._send(room, "m.sticker", content)

    async def download(self, uri: str) -> bytes:
        """Return the bytes behind an `mxc://` address."""
        url = f"{self._url}/_matrix/client/v1/media/download/{uri.removeprefix('mxc://')}"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self._session.get(url, headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.read()

    async def shown(self, room: str) -> list[ShownMessage]:
        """Return the messages of the room as this person sees them, oldest first."""
        return folded(await self._events(room))

    async def wait_shown(
        self, room: str, accept: Callable[[list[ShownMessage]], bool]
    ) -> list[ShownMessage]:
        """Wait until the messages of a room are accepted, and return them."""
        return await wait_until(lambda: self.shown(room), accept, clock=self._clock)

    async def reactions(self, room: str, event_id: str) -> list[tuple[str, str]]:
        """Return who has reacted to a message, and how."""
        relations = [
            (event["sender"], event["content"].get("m.relates_to", {}))
            for event in await self._events(room)
            if event["type"] == "m.reaction"
        ]
        return [
            (sender, each["key"])
            for sender, each in relations
            if each.get("event_id") == event_id  # a redacted reaction has no relation left
        ]

    async def typing(self, room: str) -> list[str]:
        """Return who is typing in the room now."""
        only = json.dumps({"room": {"rooms": [room], "timeline": {"limit": 1}}})
        path = f"/_matrix/client/v3/sync?timeout=0&filter={quote(only)}"
        answer = await self._done("GET", path)
        joined = answer.get("rooms", {}).get("join", {}).get(room, {})
        signals = joined.get("ephemeral", {}).get("events", [])
        return [
            user
            for event in signals
            if event["type"] == "m.typing"
            for user in event["content"]["user_ids"]
        ]

    async def _events(self, room: str) -> list[dict[str, Any]]:
        """Return all events of a room, oldest first."""
        newest_first: list[dict[str, Any]] = []
        since = ""
        while True:
            query = f"dir=b&limit={PAGE}" + (f"&from={quote(since)}" if since else "")
            answer = await self._done("GET", f"{_room(room)}/messages?{query}")
            newest_first += answer["chunk"]
            since = answer.get("end", "")
            if not since:
                return newest_first[::-1]

    async def _send(self, room: str, kind: str, content: object, *, txn: str = "") -> str:
        txn = txn or f"t{next(self._transactions)}"
        answer = await self._done("PUT", f"{_room(room)}/send/{kind}/{quote(txn)}", content)
        event_id: str = answer["event_id"]
        return event_id

    async def _done(self, method: str, path: str, body: object = None) -> Any:
        """Make a request that must succeed, and return its JSON."""
        status, answer = await self.call(method, path, body)
        assert status == 200, (path, answer)
        return answer


def _room(room: str) -> str:
    return f"/_matrix/client/v3/rooms/{quote(room, safe='')}"


def folded(events: Sequence[dict[str, Any]]) -> list[ShownMessage]:
    """Return messages with their edits applied, as clients show them. Redacted messages are left
    out, because they have no content any more."""
    shown: dict[str, ShownMessage] = {}
    for event in events:
        content, relation = event["content"], event["content"].get("m.relates_to", {})
        if event["type"] not in MESSAGE_TYPES or not content:
            continue
        original = shown.get(relation.get("event_id", ""))
        if relation.get("rel_type") != "m.replace":
            shown[event["event_id"]] = _first(event, relation)
        elif original is not None and original.author == event["sender"]:
            shown[original.id] = _edited(original, event)
    return list(shown.values())


def _first(event: dict[str, Any], relation: dict[str, Any]) -> ShownMessage:
    return ShownMessage(
        id=event["event_id"],
        author=event["sender"],
        text=event["content"].get("body", ""),
        thread=relation["event_id"] if relation.get("rel_type") == "m.thread" else "",
        raw=event,
    )


def _edited(original: ShownMessage, event: dict[str, Any]) -> ShownMessage:
    return ShownMessage(
        id=original.id,
        author=original.author,
        text=event["content"].get("m.new_content", {}).get("body", ""),
        thread=original.thread,
        is_edited=True,
        raw=event,
    )
