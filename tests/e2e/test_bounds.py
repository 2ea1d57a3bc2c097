"""Checks that long messages, hostile bodies and slow readers cost no more than their length, and
delay nobody else."""

import asyncio
import gzip
import io
import json
import select
import socket
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import aiohttp
import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.memory import forget_peak, peak_mb

MB = 1_000_000
LONG = 9 * MB
MESSAGES = 5


@pytest.fixture
async def client(gateway_factory: Any) -> AsyncIterator[Client]:
    gateway = await gateway_factory()
    async with aiohttp.ClientSession() as session:
        yield Client(gateway, session)


async def post(client: Client, path: str, raw: bytes, headers: dict[str, str]) -> tuple[int, Any]:
    sent = {"Authorization": f"Bearer {client.token}", **headers}
    url = client.gateway.url + path
    async with client.session.post(url, data=io.BytesIO(raw), headers=sent) as response:
        return response.status, await response.json()


async def slowest_s(client: Client, meanwhile: Awaitable[tuple[int, Any]]) -> tuple[float, Any]:
    """Return the longest time for which another caller waited while this was answered, and the
    answer."""
    asked = asyncio.ensure_future(meanwhile)
    slowest = 0.0
    while not asked.done():
        began = time.monotonic()
        assert (await client.call("GET", "/api/conversations/none"))[0] == 404
        slowest = max(slowest, time.monotonic() - began)
    return slowest, asked.result()


class TestLongMessages:
    """Checks a session of about ninety megabytes, of which one page holds nine."""

    @pytest.fixture
    async def session(self, client: Client) -> str:
        for number in range(MESSAGES):
            body = json.dumps({"text": f"needle {number} {'x' * LONG}"}).encode()
            status, said = await post(client, "/api/conversations/main/messages", body, {})
            assert status == 202, said
            await client.settled(said["turn"])
        _, conversation = await client.call("GET", "/api/conversations/main")
        session: str = conversation["session"]
        return session

    async def test_long_messages_are_read_page_by_page(self, client: Client, session: str) -> None:
        whole = f"/api/sessions/{session}/transcript"
        journal = f"/api/sessions/{session}/journal"
        for path, key, cursor, count in (
            ("/api/conversations/main/transcript?limit=1000", "messages", "before", MESSAGES * 2),
            (f"{whole}?limit=1000", "messages", "cursor", MESSAGES * 2),
            (f"{journal}?limit=1000", "events", "after", 0),
            ("/api/search?q=needle&limit=200", "hits", "before", MESSAGES * 2),
        ):
            before = forget_peak(client)
            found = await self._walk(client, path, key, cursor)
            assert len(found) == len(set(found)) >= count, path
            assert peak_mb(client) - before < 300, path

    async def _walk(self, client: Client, path: str, key: str, cursor: str) -> list[Any]:
        found: list[Any] = []
        more = ""
        while True:
            status, page = await client.call("GET", f"{path}{more}")
            assert status == 200, page
            found += [
                each.get("seq") or each.get("id") or (each["message"], each["text"][:9])
                for each in page[key]
            ]
            if page["next"] is None:
                return found
            more = f"&{cursor}={page['next']}"

    async def test_long_messages_do_not_pile_up_for_those_who_do_not_read(
        self, client: Client, session: str
    ) -> None:
        before = forget_peak(client)
        asked = (
            "GET /api/conversations/main/transcript HTTP/1.1\r\nHost: here\r\n"
            f"Authorization: Bearer {client.token}\r\n\r\n"
        )
        slow = [socket.socket() for _ in range(40)]
        try:
            for each in slow:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                each.connect(("127.0.0.1", client.gateway.port))
                each.sendall(asked.encode())
            await self._until_begun(slow)
            await client.become("bob")
            turn = (await client.say("own", "hello"))["turn"]
            assert (await client.settled(turn))["outcome"] == "done"
            assert len(await client.transcript("own")) == 2
            assert peak_mb(client) - before < 450
        finally:
            for each in slow:
                each.close()

    async def _until_begun(self, slow: list[socket.socket]) -> None:
        """Wait until as many of these connections are served as will be at once."""
        async with asyncio.timeout(30):
            while sum(bool(select.select([each], [], [], 0)[0]) for each in slow) < 8:
                await asyncio.sleep(0.05)


class TestBodies:
    async def test_no_body_holds_up_anybody_else(self, client: Client) -> None:
        head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n\r\n'
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        bomb = gzip.compress(bytes(400 * MB), 1)
        text = b'{"text":"' + b"\\n" * (LONG // 2) + b'\\ud800"}'
        said, called = "/api/conversations/main/messages", "/v1/chat/completions"
        tried: list[tuple[str, bytes, dict[str, str], int]] = [
            ("/api/media", head * 120_000 + b"--b--\r\n", form, 400),
            ("/api/media", b"\r\n" * (LONG // 2), form, 400),
            (said, text, {}, 202),
            (said, bomb, {"Content-Encoding": "gzip"}, 413),
            ("/api/media", bomb, {"Content-Encoding": "gzip"}, 413),
            (said, bomb, {"Content-Encoding": "br"}, 415),
            (called, _answered_backwards(), {}, 400),
            (called, b'{"messages":[],"metadata":{"a":[%s1]}}' % (b"[]," * (LONG // 3)), {}, 400),
        ]
        await client.call("POST", said, raw=b'{"text":"\\ud800 warm up"}')
        before = forget_peak(client)
        for path, raw, headers, status in tried:
            waited, (got, body) = await slowest_s(client, post(client, path, raw, headers))
            assert got == status, (path, body)
            assert waited < 1.5, (path, raw[:20])
        assert peak_mb(client) - before < 250

    async def test_what_is_packed_is_unpacked(self, client: Client) -> None:
        headers = {"Content-Encoding": "gzip"}
        raw = gzip.compress(json.dumps({"text": "packed"}).encode())
        path = "/api/conversations/main/messages"
        status, body = await client.call("POST", path, raw=raw, **headers)
        assert status == 202, body
        await client.settled(body["turn"])
        assert (await client.transcript("main"))[0]["text"] == "packed"

    async def test_what_is_nested_too_deeply_is_refused(self, client: Client) -> None:
        for levels in (200, 900, 5_000, 100_000):
            deep = "[" * levels + "]" * levels
            for path, raw in (
                ("/v1/chat/completions", f'{{"messages":[{SAID}],"metadata":{{"a":{deep}}}}}'),
                ("/v1/chat/completions", f'{{"messages":[{SAID}],"tools":{deep}}}'),
                ("/v1/chat/completions", f'{{"messages":[{SAID}],"tools":[{TOOL % deep}]}}'),
                ("/v1/responses", f'{{"input":"hi","metadata":{{"a":{deep}}}}}'),
                ("/v1/responses", f'{{"input":{deep}}}'),
                ("/api/conversations/main/messages", f'{{"text":"hi","more":{deep}}}'),
            ):
                status, body = await client.call("POST", path, raw=raw.encode())
                assert status == 400, (path, levels, body)
        assert "Traceback" not in client.gateway.output


def _answered_backwards() -> bytes:
    """Return a call whose last message is not a person's, so that it is refused after it was
    read."""
    ids = [f"call_{number}" for number in range(LONG // 150)]
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    calls = [{**call, "id": each} for each in ids]
    answers = [{"role": "tool", "tool_call_id": each, "content": ""} for each in reversed(ids)]
    said = [{"role": "assistant", "content": None, "tool_calls": calls}, *answers]
    return json.dumps({"messages": [*said, {"role": "assistant", "content": "x"}]}).encode()


SAID = '{"role":"user","content":"hi"}'
TOOL = '{"type":"function","function":{"name":"f","parameters":{"a":%s}}}'
