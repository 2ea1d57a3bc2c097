"""Checks the tool `fetch` on real sockets: what it reads, and everything that it refuses."""

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

import aiohttp
import pytest
from aiohttp.abc import ResolveResult

from perdure.app.network import public_web
from perdure.app.network.public_web import RoutedWeb
from perdure.app.reading.file_reading import FileReader
from perdure.domain.ids import CallId, ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.ports.turns.tools import ToolCaller
from perdure.testkit.processes.file_server import FileServer
from perdure.tools.toolbox import Toolbox
from perdure.tools.web.fetch import DEFAULT_FETCH_BOUNDS, FetchBounds, FetchTool

Writer = asyncio.StreamWriter
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
CALLER = ToolCaller(
    principal=PrincipalId("prn_1"),
    conversation=ConversationId("cnv_1"),
    session=SessionId("ses_1"),
    turn=TurnId("trn_1"),
)
PAGE = b"""<!doctype html><html><head><title>Beans</title><script>alert(1)</script></head>
<body><nav><a href=/>Home</a></nav><h1>Growing beans</h1>
<p>Sow in <a href="../may?a=1&amp;b=2">May</a>.</p></body></html>"""


@pytest.fixture
async def server() -> AsyncIterator[FileServer]:
    async with FileServer({"/a/page": PAGE, "/other": b"elsewhere"}) as running:
        yield running


class Scripted:
    """Answers every request with what a script writes. `sent` counts the bytes that the system has
    taken."""

    def __init__(self, script: Callable[["Scripted", Writer], Awaitable[None]]) -> None:
        self._script = script
        self.sent = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await self._script(self, writer)
        except OSError:
            pass
        finally:
            writer.close()

    async def write(self, writer: Writer, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent += len(data)


def tool(bounds: FetchBounds = DEFAULT_FETCH_BOUNDS, *, is_public_only: bool = False) -> FetchTool:
    return FetchTool(RoutedWeb(with_private=not is_public_only), FileReader(), bounds=bounds)


async def called(fetch: FetchTool, url: str) -> tuple[CallEnding, str]:
    tools = Toolbox([fetch])
    call = ToolCall(
        id=CallId("call_1"),
        name="fetch",
        arguments=json.dumps({"url": url}),
        repeat=Repeat.REPEATABLE,
    )
    result = await tools.call(call, CALLER)
    return result.ending, result.text


async def got(url: str, bounds: FetchBounds = DEFAULT_FETCH_BOUNDS) -> str:
    ending, text = await called(tool(bounds), url)
    assert ending is CallEnding.RETURNED, text
    return text


async def refused(url: str, fetch: FetchTool | None = None) -> str:
    ending, text = await called(fetch or tool(), url)
    assert ending is CallEnding.FAILED, text
    return text


async def test_a_page_is_told_as_text_with_its_title_and_its_links(server: FileServer) -> None:
    server.headers = {"Content-Type": "text/html; charset=utf-8"}
    text = await got(f"{server.url}/a/page#part")
    assert text.startswith(f"Address: {server.url}/a/page\nKind: text/html\n\nBeans\n")
    assert "# Growing beans" in text
    assert f"Sow in [May]({server.url}/may?a=1&b=2)." in text
    assert "alert" not in text
    assert "Home" not in text


@pytest.mark.parametrize(
    ("declared", "data", "words"),
    [
        ("text/plain", b"just words", "just words"),
        ("application/json", b'{"beans": 3}', '{"beans": 3}'),
        ("application/xml", b"<a>beans</a>", "<a>beans</a>"),
        ("text/plain; charset=iso-8859-1", "Grüße".encode("latin-1"), "Grüße"),
        ("text/plain", "Grüße aus dem Garten im Mai\n".encode("latin-1"), "Grüße aus"),
        ("text/html; charset=shift_jis", "<html><p>豆</p>".encode("shift_jis"), "豆"),
        ("text/html", '<html><meta charset="windows-1251"><p>бобы</p>'.encode("cp1251"), "бобы"),
        ("text/plain", "Beans 🫘".encode("utf-16"), "Beans 🫘"),
        # What the bytes are counts, and not what the server calls them.
        ("text/html", b"%PDF-1.4 and nothing more", "application/pdf"),
        ("text/html", b"\x89PNG\r\n\x1a\n" + bytes(9000), "image/png"),
        ("text/plain", b"<!doctype html><p>beans<script>x()</script>", "\n\nbeans"),
        ("text/html", bytes(range(256)) * 40, "It is no text"),
        ("video/mp4", b"\0\0\0\x18ftypmp42" + bytes(9000), "It is no text, so it is not shown"),
        ("text/html", b"", "The page is empty"),
        ("text/html", b"<!doctype html><script>draw()</script>", "perhaps only a script"),
    ],
)
async def test_the_bytes_decide_what_a_page_is(
    server: FileServer, declared: str, data: bytes, words: str
) -> None:
    server.files["/x"] = data
    server.headers = {"Content-Type": declared}
    text = await got(f"{server.url}/x")
    assert words in text
    assert "PNG\r" not in text


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "must begin with http"),
        ("ftp://127.0.0.1/a", "must begin with http"),
        ("gopher://127.0.0.1/a", "must begin with http"),
        ("javascript:alert(1)", "must begin with http"),
        ("http:example.org", "must begin with http"),
        ("http://", "must begin with http"),
        ("https:///path", "must begin with http"),
        ("http://ada:secret@example.org/", "a user or a password"),
        ("http://example.org@127.0.0.1/", "a user or a password"),
        ("http://example.org\\@127.0.0.1/", "a backslash"),
        ("http://example.org/a\nHost: b", "a hidden character"),
        ("http://example.org:0/", "its port"),
        ("http://example.org:99999/", "check it"),
        ("http://exa mple.org/", "a blank"),
        ("http://a..b/", "no server that can exist"),
        ("http://xn--a/", "check it"),
        (f"http://{'a' * 64}.org/", "no server that can exist"),
        (f"http://example.org/{'a' * 5000}", "Expected `str` of length <= 4000"),
        ("", "must begin with http"),
    ],
)
async def test_an_address_that_is_never_asked_for_is_refused_before_anybody_is_asked(
    url: str, words: str
) -> None:
    traits = Toolbox([tool()]).traits("fetch", json.dumps({"url": url}))
    assert words in traits.problem
    assert words in await refused(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "LOCALHOST.", "[::1]", "10.0.0.1", "192.168.1.1",
        "169.254.169.254", "0.0.0.0", "[::ffff:127.0.0.1]", "[fd00::1]", "[fe80::1]", "0x7f.1",
        "2130706433", "127.1", "0177.0.0.1", "127.0.0.1.", "224.0.0.1", "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]", "100.64.0.1", "255.255.255.255", "①②⑦.0.0.1",
    ],
)  # fmt: skip
async def test_no_address_leads_into_the_network_of_the_gateway(
    server: FileServer, host: str
) -> None:
    port = server.url.rpartition(":")[2]
    said = await refused(f"http://{host}:{port}/other", tool(is_public_only=True))
    assert "private network" in said or "cannot be reached" in said
    assert server.asked == []


async def test_a_zone_in_an_address_is_refused() -> None:
    said = await refused("http://[fe80::1%25eth0]/", tool(is_public_only=True))
    assert "no server that can exist" in said


class Answers(aiohttp.ThreadedResolver):
    """Answers each question about a name with the next of these addresses, and then with the last
    one again."""

    addresses: tuple[tuple[str, ...], ...] = ()
    asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        cls = type(self)
        found = cls.addresses[min(cls.asked, len(cls.addresses) - 1)]
        cls.asked += 1
        return [
            ResolveResult(hostname=host, host=each, port=port, family=family, proto=0, flags=0)
            for each in found
        ]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> type[Answers]:
    """Let a name server that lies answer, and let 127.0.0.1 count as public."""
    monkeypatch.setattr(aiohttp, "ThreadedResolver", Answers)
    monkeypatch.setattr(Answers, "asked", 0)
    monkeypatch.setattr(public_web, "_is_public", lambda address: str(address) == "127.0.0.1")
    return Answers


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    server: FileServer, answers: type[Answers]
) -> None:
    answers.addresses = (("127.0.0.1",), ("127.0.0.2",))
    port = server.url.rpartition(":")[2]
    ending, text = await called(tool(is_public_only=True), f"http://rebind.test:{port}/other")
    assert (ending, answers.asked) == (CallEnding.RETURNED, 1)
    assert "elsewhere" in text


@pytest.mark.parametrize("found", [("127.0.0.2",), ("127.0.0.1", "10.0.0.1")])
async def test_one_private_address_among_the_answers_is_enough(
    server: FileServer, answers: type[Answers], found: tuple[str, ...]
) -> None:
    answers.addresses = (found, ("127.0.0.1",))
    port = server.url.rpartition(":")[2]
    said = await refused(f"http://rebind.test:{port}/other", tool(is_public_only=True))
    assert "private network" in said
    assert (answers.asked, server.asked) == (1, [])


async def test_a_redirect_into_the_network_is_refused(
    server: FileServer, answers: type[Answers]
) -> None:
    # The same name leads into the network when it is asked for again.
    answers.addresses = (("127.0.0.1",), ("127.0.0.2",))
    server.redirects["/start"] = "/other"
    port = server.url.rpartition(":")[2]
    said = await refused(f"http://rebind.test:{port}/start", tool(is_public_only=True))
    assert "private network" in said
    assert server.asked == ["/start"]


async def test_a_redirect_on_the_same_site_is_followed(server: FileServer) -> None:
    server.redirects = {"/1": "/2", "/2": f"{server.url}/other"}
    assert f"Address: {server.url}/other" in await got(f"{server.url}/1")


@pytest.mark.parametrize("path", ["", "/other", "/other?kept=1"])
async def test_a_redirect_to_another_site_is_told_and_not_followed(
    server: FileServer, path: str
) -> None:
    target = server.url.replace("127.0.0.1", "localhost") + path
    server.redirects["/start"] = target
    said = await refused(f"{server.url}/start")
    assert f"leads to another site: {target or target + '/'}" in said
    assert "call fetch with that address" in said
    assert server.asked == ["/start"]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("file:///etc/passwd", "must begin with http"),
        ("http://ada:secret@127.0.0.1/", "a user or a password"),
        ("http://[", "check it"),
        ("", "does not say to which"),
    ],
)
async def test_a_redirect_to_nowhere_is_told(server: FileServer, location: str, words: str) -> None:
    server.redirects["/start"] = location
    assert words in await refused(f"{server.url}/start")


async def test_redirects_without_end_are_given_up(server: FileServer) -> None:
    server.redirects["/start"] = "/start"
    assert "without end" in await refused(f"{server.url}/start")
    assert len(server.asked) == 5


async def test_a_redirect_leads_nowhere_where_a_rule_denies_it(server: FileServer) -> None:
    server.redirects["/start"] = "/other"
    fetch = FetchTool(RoutedWeb(with_private=True), FileReader(), denied=[f"{server.url}/oth**"])
    assert "which a rule does not allow" in await refused(f"{server.url}/start", fetch)
    assert server.asked == ["/start"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "404 (Not Found); check the address"),
        (410, "410 (Gone)"),
        (401, "401 (Unauthorized); it is not open to everybody"),
        (403, "403 (Forbidden); it is not open to everybody"),
        (451, "451 (Unavailable For Legal Reasons)"),
        (429, "429 (Too Many Requests), try later; you may call again"),
        (500, "500 (Internal Server Error), try later; you may call again"),
        (503, "503 (Service Unavailable), try later; you may call again"),
    ],
)
async def test_a_refusal_by_the_server_is_told_in_words(
    server: FileServer, status: int, words: str
) -> None:
    server.statuses["/x"] = status
    assert words in await refused(f"{server.url}/x")


async def test_a_page_without_content_is_told(server: FileServer) -> None:
    server.statuses["/x"] = 204
    assert "The page is empty" in await got(f"{server.url}/x")


async def test_a_server_that_is_gone_is_told() -> None:
    async with FileServer() as server:
        url = server.url
    assert "cannot be reached" in await refused(url)


async def test_an_endless_page_is_cut_while_it_comes() -> None:
    async def endless(server: Scripted, writer: Writer) -> None:
        await server.write(writer, HEAD % b"text/plain" + b"Content-Length: 1000000000\r\n\r\n")
        while True:
            await server.write(writer, b"beans and peas\n" * 4000)

    async with Scripted(endless) as server:
        text = await got(server.url, FetchBounds(text_bytes=300_000))
        assert "Only its first 300,000 bytes were read." in text
        assert len(text) < 301_000
        assert server.sent < 50_000_000


async def test_a_large_document_is_refused_and_a_large_picture_is_not_taken() -> None:
    async def endless(server: Scripted, writer: Writer) -> None:
        await server.write(writer, HEAD % b"text/plain" + b"Content-Length: 1000000000\r\n\r\n")
        await server.write(writer, beginning)
        while True:
            await server.write(writer, bytes(60_000))

    beginning = b"%PDF-1.4"
    async with Scripted(endless) as server:
        said = await refused(server.url, tool(FetchBounds(document_bytes=300_000)))
        assert "a document of more than 300,000 bytes" in said
        beginning = b"\x89PNG\r\n\x1a\n"
        assert "Size: 1,000,000,000 bytes\nIt is no text" in await got(server.url)
        assert server.sent < 50_000_000


@pytest.mark.parametrize("is_begun", [True, False])
async def test_a_server_that_drips_is_given_up(*, is_begun: bool) -> None:
    async def drip(server: Scripted, writer: Writer) -> None:
        head = HEAD % b"text/plain"
        await server.write(writer, head + b"\r\n" if is_begun else head)
        while True:
            await server.write(writer, b"x")
            await asyncio.sleep(0.05)

    async with Scripted(drip) as server, asyncio.timeout(10):
        said = await refused(server.url, tool(FetchBounds(seconds=0.5)))
    assert "took longer than 0.5 s; you may call again" in said


async def test_a_server_that_breaks_off_is_told() -> None:
    async def half(server: Scripted, writer: Writer) -> None:
        await server.write(writer, HEAD % b"text/plain" + b"Content-Length: 10\r\n\r\nhello")

    async with Scripted(half) as server:
        assert "did not send all of it" in await refused(server.url)


async def test_an_answer_that_is_no_http_is_told() -> None:
    async def noise(server: Scripted, writer: Writer) -> None:
        await server.write(writer, b"\x16\x03\x01 220 ready\r\n\r\n")

    async with Scripted(noise) as server:
        assert "you may call again" in await refused(server.url)


async def answered_packed(
    packing: str, data: bytes, bounds: FetchBounds = DEFAULT_FETCH_BOUNDS
) -> str:
    async def packed(server: Scripted, writer: Writer) -> None:
        head = HEAD % b"text/plain" + f"Content-Encoding: {packing}\r\n".encode()
        await server.write(writer, head + b"Content-Length: %d\r\n\r\n" % len(data))
        await server.write(writer, data)

    async with Scripted(packed) as server:
        return (await called(tool(bounds), server.url))[1]


@pytest.mark.parametrize(
    ("packing", "data", "words"),
    [
        ("gzip", gzip.compress(b"beans", mtime=0), "beans"),
        ("x-gzip", gzip.compress(b"beans", mtime=0), "beans"),
        ("deflate", zlib.compress(b"beans"), "beans"),
        ("deflate", zlib.compress(b"beans", wbits=-15), "beans"),
        ("identity", b"beans", "beans"),
        ("br", b"beans", "packed as 'br', which is not read here"),
        ("gzip", b"no gzip at all", "packed wrongly"),
        ("gzip", gzip.compress(b"beans" * 50, mtime=0)[:-12], "did not send all of it"),
    ],
)
async def test_what_comes_packed_is_unpacked_or_told(packing: str, data: bytes, words: str) -> None:
    assert words in await answered_packed(packing, data)


async def test_a_bomb_is_unpacked_no_further_than_a_page_is_read() -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    text = await answered_packed("gzip", bomb, FetchBounds(text_bytes=200_000))
    assert "Only its first 200,000 bytes were read." in text
    assert len(text) < 201_000


@pytest.mark.parametrize(
    "page",
    ["<div>" * 100_000, "<!--" * 100_000, "<a href='" + "x" * 1_000_000, "<a " * 100_000],
    ids=["unclosed", "comments", "attribute", "tags"],
)
async def test_hostile_markup_takes_no_time(server: FileServer, page: str) -> None:
    server.files["/x"] = f"<!doctype html><p>beans</p>{page}".encode()
    async with asyncio.timeout(20):
        assert "beans" in await got(f"{server.url}/x")


async def test_the_address_is_shown_as_it_will_be_asked_for() -> None:
    call = ToolCall(
        id=CallId("c"),
        name="fetch",
        arguments=json.dumps({"url": "HTTPS://EXAMPLE.org/a/%2e%2e/b"}),
        repeat=Repeat.REPEATABLE,
    )
    outlook = await tool().outlook(call, CALLER)
    assert outlook.preview == "GET https://example.org/b"
