"""Sends requests that no client of this project would send to a real gateway, and checks the
answers and that they cost little."""

import asyncio
import json

import pytest

from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(90)
NO_TEXT = b"\xff\xfe\xed\xa0\x80"


async def raw(gateway: GatewayProcess, method: str, path: str, **headers: bytes) -> tuple[int, str]:
    """Send exactly these bytes. Returns the status, and the head of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    lines = [f"{method} {path} HTTP/1.1".encode(), f"Host: 127.0.0.1:{gateway.port}".encode()]
    given = [name.replace("_", "-").encode() + b": " + value for name, value in headers.items()]
    writer.write(b"\r\n".join([*lines, *given, b"Connection: close", b"", b""]))
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head = answer.decode("latin-1").partition("\r\n\r\n")[0]
    return int(head.split()[1]), head


@pytest.mark.shared
async def test_a_header_that_is_no_text_is_refused_and_no_failure(client: Client) -> None:
    gateway = client.gateway
    signed_in = f"Bearer {client.token}".encode()
    wrong = {"Authorization": b"Bearer " + NO_TEXT}
    before = len(gateway.output)

    assert (await raw(gateway, "GET", "/api/status", **wrong))[0] == 401
    for path, name in (
        ("/api/conversations/main/events", "Last_Event_ID"),
        ("/api/conversations/main/messages", "Idempotency_Key"),
        ("/v1/chat/completions", "X_Perdure_Conversation"),
        ("/api/media", "X_Filename"),
    ):
        method = "GET" if path.endswith("events") else "POST"
        status, _ = await raw(gateway, method, path, Authorization=signed_in, **{name: NO_TEXT})
        assert status < 500, path
    assert "Traceback" not in gateway.output[before:]


@pytest.mark.shared
@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A" * 20_000 + b": b\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_our_words(client: Client, sent: bytes) -> None:
    before = len(client.gateway.output)
    reader, writer = await asyncio.open_connection("127.0.0.1", client.gateway.port)
    writer.write(sent)
    async with asyncio.timeout(10):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()

    assert head.startswith(b"HTTP/1.0 400")
    assert b"nosniff" in head
    assert b"no-store" in head
    assert json.loads(body)["error"]["code"] == "malformed_request"
    assert "Traceback" not in client.gateway.output[before:]


@pytest.mark.shared
async def test_no_answer_is_guessed_at_kept_or_names_a_version(client: Client) -> None:
    signed_in = f"Bearer {client.token}".encode()
    for path in ("/api/status", "/api/nothing", "/v1/models", "/healthz", "/readyz", "/metrics"):
        _, head = await raw(client.gateway, "GET", path, Authorization=signed_in)
        assert "X-Content-Type-Options: nosniff" in head, path
        assert "Cache-Control: no-store" in head, path
        assert "aiohttp" not in head.lower(), path
        assert "python" not in head.lower(), path
    for method, path in (("GET", "/api/status"), ("GET", "/"), ("GÄT", "/"), ("GET", "\x01")):
        _, head = await raw(client.gateway, method, path)
        assert "aiohttp" not in head.lower(), path
        assert "python" not in head.lower(), path
