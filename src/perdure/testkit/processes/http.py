"""Calls the native API of a real gateway, as a person with curl does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from perdure.testkit.processes.process import GatewayProcess

DEADLINE_S = 20.0
POLL_S = 0.02


class Client:
    """Calls one gateway as the person whose `token` it has."""

    def __init__(self, gateway: GatewayProcess, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.session = session
        self.token = gateway.token

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        raw: bytes | None = None,
        **headers: str,
    ) -> tuple[int, Any]:
        """Make a request, and return its status and its JSON."""
        data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
        sent = {"Authorization": f"Bearer {self.token}", **headers}
        async with self.session.request(
            method, self.gateway.url + path, data=data, headers=sent
        ) as response:
            return response.status, await response.json(content_type=None)

    async def become(self, name: str) -> None:
        """Continue as a new member with this name."""
        status, granted = await self.call("POST", "/api/tokens", body={"name": name})
        assert status == 201, granted
        self.token = granted["token"]

    async def say(self, name: str, text: str, **more: object) -> dict[str, Any]:
        """Send a message to a conversation, and return the acceptance."""
        status, body = await self.call(
            "POST", f"/api/conversations/{name}/messages", body={"text": text, **more}
        )
        assert status == 202, body
        result: dict[str, Any] = body
        return result

    async def settled(self, turn: str) -> dict[str, Any]:
        """Wait until a turn is settled, and return it."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                _, body = await self.call("GET", f"/api/turns/{turn}")
                if body["state"] == "settled":
                    result: dict[str, Any] = body
                    return result
                await self.gateway.pause(POLL_S)

    async def transcript(self, name: str, query: str = "") -> list[dict[str, Any]]:
        """Return the messages of a conversation."""
        _, body = await self.call("GET", f"/api/conversations/{name}/transcript{query}")
        messages: list[dict[str, Any]] = body["messages"]
        return messages

    @asynccontextmanager
    async def events(
        self, name: str, last: str | None = None
    ) -> AsyncIterator[AsyncIterator[tuple[str, str, dict[str, Any]]]]:
        """Watch a conversation, from an event on if `last` names one. Yields an iterator over the
        id, the name and the data of each event."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if last:
            headers["Last-Event-ID"] = last
        url = f"{self.gateway.url}/api/conversations/{name}/events"
        async with self.session.get(url, headers=headers) as response:
            assert response.status == 200
            yield _parsed(response)


async def _parsed(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, Any]]:
    """Yield the id, the name and the data of each server-sent event."""
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if not line and "data" in fields:
            yield fields["id"], fields["event"], json.loads(fields["data"])
            fields = {}
        elif line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            fields[key] = value
