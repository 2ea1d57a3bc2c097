"""Checks what a link over HTTP makes of servers and proxies that answer strangely."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.mcp_links import said, unheard, until

from perdure.app.network.outgoing import RoutedOutgoing
from perdure.app.network.proxies import Proxies, proxy_of
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.ports.system.outgoing import DIRECT
from perdure.testkit.peers.fixtures import NewPeer
from perdure.tools.mcp.connecting import connect_address
from perdure.tools.mcp.link import InputGiven, InputNeeded, LinkTerms, ServerLink

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
ABOUT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "resources": {}},
    "serverInfo": {"name": "strange", "version": "1"},
}


class StrangeServer:
    """Serves a handshake. What comes then, `answer` answers."""

    def __init__(self, answer: Answer, *, listens: bool) -> None:
        self.heard: list[dict[str, Any]] = []
        self.listened = 0
        self._answer = answer
        self._listens = listens

    async def take(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and self._listens:
            self.listened += 1
            return await self._answer(request, {})
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        self.heard.append(message)
        method = message.get("method")
        if method == "server/discover":
            return web.Response(status=400, text="no session")
        if method == "initialize":
            result = {"jsonrpc": "2.0", "id": message["id"], "result": ABOUT}
            return web.json_response(result, headers={"Mcp-Session-Id": "one"})
        if method == "notifications/initialized":
            return web.Response(status=202)
        return await self._answer(request, message)

    def calls(self) -> int:
        return sum(each.get("method") == "tools/call" for each in self.heard)


@asynccontextmanager
async def strange(
    answer: Answer, *, listens: bool = False
) -> AsyncIterator[tuple[StrangeServer, ServerLink]]:
    """Yield a server with a link to it."""
    server = StrangeServer(answer, listens=listens)
    app = web.Application(client_max_size=50_000_000)
    app.router.add_route("*", "/{tail:.*}", server.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    link = await connect_address(url, {}, outgoing=DIRECT, terms=LinkTerms())
    try:
        yield server, link
    finally:
        await link.close()
        await runner.cleanup()


def result_of(message: dict[str, Any], text: str = "fine") -> dict[str, Any]:
    result = {"content": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (400, Transient, "has forgotten the connection"),
        (401, Rejected, "HTTP 401: it asks for a token"),
        (403, Rejected, "HTTP 403: it does not let us in"),
        (404, Transient, "has forgotten the connection"),
        (408, Ambiguous, "HTTP 408"),
        (413, Rejected, "HTTP 413"),
        (429, Transient, "HTTP 429: it has too much to do"),
        (500, Ambiguous, "HTTP 500"),
        (502, Ambiguous, "HTTP 502"),
        (503, Ambiguous, "HTTP 503: it is not available"),
    ],
)
async def test_each_status_says_whether_the_call_may_have_happened(
    status: int, error: type[PerdureError], words: str
) -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, text="<h1>no</h1>", content_type="text/html")

    async with strange(answer) as (server, link):
        with pytest.raises(error, match=words) as caught:
            await said(link, "any")
        assert type(caught.value) is error
        assert server.calls() == 1
        assert bool(link.ended) == (status in (400, 404))


async def test_an_error_of_the_protocol_is_told_whatever_the_status() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        error = {"code": -32602, "message": "which wall?"}
        body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        return web.json_response(body, status=int(message["params"]["arguments"]["status"]))

    async with strange(answer) as (_, link):
        for status in (400, 404, 500):
            with pytest.raises(Rejected, match=r"the server refuses: which wall\?"):
                await said(link, "any", status=status)
        assert link.ended == ""


async def test_the_code_of_lost_connections_may_be_any_refusal() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        error = {"code": -32000, "message": "the quota is used up"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with strange(answer) as (_, link):
        with pytest.raises(Rejected, match="the server refuses: the quota is used up"):
            await said(link, "any")
        assert link.ended == ""


async def test_a_server_that_reports_an_unknown_session_by_the_protocol_ends_the_link() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
        return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)

    async with strange(answer) as (_, link):
        with pytest.raises(Transient, match="has forgotten the connection"):
            await said(link, "any")
        assert link.ended == "has forgotten this connection (HTTP 400)"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", Permanent),
        (b"\xff\xfe", Permanent),
        (b"[]", Permanent),
        (b"[" * 30_000, Permanent),
        (b'{"jsonrpc":"2.0","id":1,"result":7}', Permanent),
    ],
)
async def test_what_is_no_message_is_no_answer(body: bytes, error: type[PerdureError]) -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message["params"]["name"] == "echo":
            return web.json_response(result_of(message))
        return web.Response(body=body, content_type="application/json")

    async with strange(answer) as (_, link):
        with pytest.raises(error, match="is no answer"):
            await said(link, "any")
        assert await said(link, "echo") == "fine"


async def test_a_stream_of_garbage_is_no_answer() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: message\ndata: {\n\n")
        return response

    async with strange(answer) as (_, link):
        with pytest.raises(Permanent, match="is no answer"):
            await said(link, "any")


async def test_a_body_that_breaks_off_leaves_it_open_what_happened() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.content_length = 1000
        await response.prepare(request)
        await response.write(b'{"jsonrpc"')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with strange(answer) as (_, link):
        with pytest.raises(Ambiguous, match="the connection to the server broke"):
            await said(link, "any")


async def test_a_packed_answer_is_bounded_as_it_is_unpacked() -> None:
    packed = gzip.compress(b" " * 100_000_000, compresslevel=1)

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        plain = json.dumps(result_of(message)).encode()
        is_fine = message["params"]["name"] == "echo"
        return web.Response(body=gzip.compress(plain) if is_fine else packed, headers=headers)

    async with strange(answer) as (_, link):
        assert await said(link, "echo") == "fine"
        with pytest.raises(Permanent, match="has more than 20,000,000 bytes"):
            await said(link, "any")


async def test_a_redirect_is_followed_on_the_same_server_only() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if request.path == "/mcp/":
            return web.json_response(result_of(message, request.path))
        where = {"near": "/mcp/", "far": "http://localhost:9/mcp", "round": "/mcp"}
        place = where[message["params"]["name"]]
        return web.Response(status=307, headers={"Location": place})

    async with strange(answer) as (server, link):
        assert await said(link, "near") == "/mcp/"
        before = server.calls()
        with pytest.raises(Rejected, match=r"sends us to http://localhost:9/"):
            await said(link, "far")
        assert server.calls() == before + 1
        with pytest.raises(Rejected, match="sends us to"):
            await said(link, "round")


async def test_a_server_that_never_takes_an_answer_holds_up_nobody() -> None:
    go = asyncio.Event()

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message.get("method") == "tools/call" and message["params"]["name"] == "ask":
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
            await response.write(b"data: " + json.dumps(ping).encode() + b"\n\n")
            await go.wait()
            return response
        if "method" not in message:
            await go.wait()
        return web.json_response(result_of(message))

    async with strange(answer) as (server, link):
        calling = asyncio.ensure_future(link.call("call-1", "ask", {}, report=unheard))
        async with asyncio.timeout(20):
            while not any("method" not in each for each in server.heard):
                await asyncio.sleep(0.01)
            began = time.monotonic()
            assert await said(link, "echo") == "fine"
            assert time.monotonic() - began < 8
        go.set()
        with pytest.raises(Ambiguous, match="ended without a response"):
            await calling


async def test_a_lost_answer_of_a_person_does_not_make_a_sent_call_unsent() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if "method" not in message:
            return web.Response(status=404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        ask = {"jsonrpc": "2.0", "id": "a", "method": "elicitation/create", "params": params}
        await response.write(b"data: " + json.dumps(ask).encode() + b"\n\n")
        await asyncio.sleep(0.5)
        return response

    async with strange(answer) as (_, link):
        needed = await link.call("call-1", "ask", {}, report=unheard)
        assert isinstance(needed, InputNeeded)
        given = InputGiven(action="accept", state=needed.state)
        with pytest.raises(Ambiguous):
            await link.resume("call-1", "ask", {}, given, report=unheard)


async def test_a_stream_that_is_taken_up_again_without_end_ends_with_its_caller() -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"id: 1\nretry: 20\ndata:\n\n")
        return response

    async with strange(answer, listens=True) as (server, link):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await link.call("call-1", "any", {}, report=unheard)
        # Streams that end at once are not opened again and again.
        await asyncio.sleep(0.5)
        assert 2 < server.listened <= 10


async def test_a_question_about_addresses_comes_before_the_call() -> None:
    visited = False

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if visited:
            return web.json_response(result_of(message))
        visit = {"mode": "url", "message": "Sign in", "url": "https://example.org/in"}
        data = {"elicitations": [{**visit, "elicitationId": "1"}]}
        error = {"code": -32042, "message": "sign in first", "data": data}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with strange(answer) as (_, link):
        needed = await link.call("call-1", "any", {}, report=unheard)
        assert isinstance(needed, InputNeeded)
        assert (needed.message, needed.url) == ("Sign in", "https://example.org/in")
        no = InputGiven(action="decline", state=needed.state)
        with pytest.raises(Rejected, match="did not look at the address"):
            await link.resume("call-1", "any", {}, no, report=unheard)
        visited = True
        yes = InputGiven(action="accept", state=needed.state)
        done = await link.resume("call-1", "any", {}, yes, report=unheard)
        assert not isinstance(done, InputNeeded)


@pytest.mark.parametrize("is_streaming", [True, False])
async def test_nothing_stays_open_for_a_call_that_was_cancelled(is_streaming: bool) -> None:
    opened = closed = 0

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        nonlocal opened, closed
        if message["method"] != "tools/call":
            return web.Response(status=202)
        opened += 1
        try:
            if is_streaming:
                response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await response.prepare(request)
                await response.write(b"id: 1\nretry: 10\ndata:\n\n")
            transport = request.transport
            while transport is not None and not transport.is_closing():
                await asyncio.sleep(0.01)
        finally:
            closed += 1
        return web.Response(status=500)

    async with strange(answer, listens=False) as (server, link):
        calls = [
            asyncio.ensure_future(link.call(f"call-{n}", "any", {}, report=unheard))
            for n in range(5)
        ]
        await until(lambda: opened == 5)
        for each in calls:
            each.cancel()
        await until(lambda: closed == 5)
        cancelled = [m for m in server.heard if m.get("method") == "notifications/cancelled"]
        assert len(cancelled) == 5


@pytest.mark.parametrize("kind", ["http", "socks5"])
async def test_a_link_goes_over_the_proxy_that_is_configured(new_peer: NewPeer, kind: str) -> None:
    proxy = new_peer.tinyproxy() if kind == "http" else new_peer.dante()
    async with new_peer.hostile_mcp().over_http() as server, proxy:
        outgoing = RoutedOutgoing(Proxies(http=proxy_of(proxy.url)))
        link = await connect_address(server.url, {}, outgoing=outgoing, terms=LinkTerms())
        assert await said(link, "echo", text="hello") == "hello"
        await proxy.stop()
        with pytest.raises(Transient, match=r"cannot be reached: .*check \[network\] proxy"):
            await said(link, "echo", text="hello")
        await link.close()
        assert proxy.asked()
