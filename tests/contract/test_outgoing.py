"""Checks the port through which other servers are reached: over proxies that do their work, over
proxies that do not, and with authorities of one's own."""

import asyncio
import base64
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import ResolveResult

from perdure.adapters.webhook.wire import Wire
from perdure.agents.chat.failures import ModelFailure
from perdure.agents.chat.manifest import ChatSettings
from perdure.agents.chat.wire import ModelWire
from perdure.app.config import platforms
from perdure.app.config.loading import parse
from perdure.app.config.network import network_of
from perdure.app.network.outgoing import RoutedOutgoing
from perdure.app.network.proxies import Proxies, exemptions_of, proxy_of
from perdure.app.network.public_web import RoutedWeb
from perdure.app.network.web_fetching import WebFetcher
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Permanent, Transient
from perdure.domain.outcomes import StopReason
from perdure.ports.platform.manifest import no_answers
from perdure.ports.system.outgoing import DIRECT, Outgoing
from perdure.testkit.processes.certificates import (
    can_make_certificates,
    made_certificate,
    server_context,
)

# A name that no DNS knows, so that only the proxy can lead to it.
NAME = "models.invalid"
LOGIN = "ada:p@ss w"
BASIC = "Basic " + base64.b64encode(LOGIN.encode()).decode()
Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class ScriptedProxy:
    """Leads every name to this machine. `asked` holds what was asked for, and `logins` with which
    login. `refuses` is the answer to every request, if it is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.logins: list[str] = []
        self.refuses = b""
        self.port = 0

    @asynccontextmanager
    async def served(self) -> AsyncIterator["ScriptedProxy"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    def url(self, scheme: str, login: str = "") -> str:
        return f"{scheme}://{login}127.0.0.1:{self.port}"

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        try:
            first = await reader.readexactly(1)
            if first == b"\x05":
                await self._socks(reader, writer)
            else:
                await self._http(first, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _http(self, first: bytes, reader: Reader, writer: Writer) -> None:
        head = first + await reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        method, target, _ = line.split(" ")
        self.asked.append(f"{method} {target}")
        named = dict(each.split(": ", 1) for each in headers if each)
        self.logins.append(named.get("Proxy-Authorization", ""))
        if self.refuses:
            writer.write(self.refuses)
            return
        if method == "CONNECT":
            port = int(target.rpartition(":")[2])
            # The answer comes in two pieces, as from a proxy that writes line by line.
            writer.write(b"HTTP/1.1 200 Connection established\r\n")
            await writer.drain()
            writer.write(b"Proxy-Agent: scripted\r\n\r\n")
            await self._lead(port, b"", reader, writer)
            return
        host, _, path = target.removeprefix("http://").partition("/")
        plain = head.replace(target.encode(), f"/{path}".encode(), 1)
        await self._lead(int(host.rpartition(":")[2]), plain, reader, writer)

    async def _socks(self, reader: Reader, writer: Writer) -> None:
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x02" if 2 in methods else b"\x05\x00")
        if 2 in methods:
            await reader.readexactly(1)
            user = await reader.readexactly((await reader.readexactly(1))[0])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            self.logins.append(f"{user.decode()}:{password.decode()}")
            writer.write(b"\x01\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        self.asked.append(f"SOCKS {host}:{port}")
        if self.refuses:
            writer.write(b"\x05\x02\x00\x01" + bytes(6))
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await self._lead(port, b"", reader, writer)

    async def _lead(self, port: int, sent: bytes, reader: Reader, writer: Writer) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", port)
        to_writer.write(sent)

        async def pass_on(source: Reader, target: Writer) -> None:
            while piece := await source.read(65536):
                target.write(piece)
                await target.drain()
            target.close()

        await asyncio.gather(
            pass_on(reader, to_writer), pass_on(to_reader, writer), return_exceptions=True
        )


async def hello(request: web.Request) -> web.StreamResponse:
    if "Upgrade" in request.headers:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for frame in socket:
            await socket.send_str(f"heard {frame.data}")
        return socket
    if request.path == "/away":
        return web.Response(status=302, headers={"Location": request.query["to"]})
    secrets = [name for name in request.headers if name == "Proxy-Authorization"]
    return web.Response(text=f"{request.method} {request.path} {await request.text()}{secrets}")


@asynccontextmanager
async def serving(context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving() as port:
        yield port


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy().served() as proxy:
        yield proxy


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate that is its own authority, for names and addresses of this test."""
    if not can_make_certificates():
        pytest.skip("openssl cannot be had here")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    return made_certificate(file, [f"DNS:{NAME}", "DNS:localhost", "IP:127.0.0.1"])


def over(url: str, *, no: str = "", trusted: ssl.SSLContext | None = None) -> RoutedOutgoing:
    proxy = proxy_of(url)
    proxies = Proxies(http=proxy, https=proxy, exemptions=exemptions_of(no))
    return RoutedOutgoing(proxies, trusted=trusted)


KINDS = ["http", "socks5", "socks5h"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_goes_over_the_proxy_which_resolves_the_name(
    proxy: ScriptedProxy, port: int, kind: str
) -> None:
    async with over(proxy.url(kind)).session() as http:
        for number in range(3):
            async with http.post(f"http://{NAME}:{port}/v1", data=f"{number} ") as response:
                assert await response.text() == f"POST /v1 {number} []"
    wanted = f"POST http://{NAME}:{port}/v1" if kind == "http" else f"SOCKS {NAME}:{port}"
    assert set(proxy.asked) == {wanted}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_websocket_goes_over_the_proxy_in_a_tunnel(
    proxy: ScriptedProxy, port: int, kind: str
) -> None:
    async with over(proxy.url(kind)).session() as http:
        for scheme in ("ws", "http"):
            async with http.ws_connect(f"{scheme}://{NAME}:{port}/socket") as socket:
                await socket.send_str("you")
                assert (await socket.receive()).data == "heard you"
    assert set(proxy.asked) == {f"{'CONNECT' if kind == 'http' else 'SOCKS'} {NAME}:{port}"}


@pytest.mark.parametrize("kind", KINDS)
async def test_https_and_wss_go_through_a_tunnel_and_the_server_s_name_is_checked(
    proxy: ScriptedProxy, certificate: Path, kind: str
) -> None:
    trusted = ssl.create_default_context(cafile=certificate)
    async with serving(server_context(certificate)) as port:
        async with over(proxy.url(kind), trusted=trusted).session() as http:
            async with http.get(f"https://{NAME}:{port}/v1") as response:
                assert await response.text() == "GET /v1 []"
            async with http.ws_connect(f"wss://{NAME}:{port}/socket") as socket:
                await socket.send_str("you")
                assert (await socket.receive()).data == "heard you"
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get(f"https://other.invalid:{port}/v1")
        async with over(proxy.url(kind)).session() as http:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get(f"https://{NAME}:{port}/v1")
    assert all(each.startswith(("CONNECT", "SOCKS")) for each in proxy.asked)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_login_is_told_to_the_proxy_and_to_nobody_else(
    proxy: ScriptedProxy, port: int, kind: str
) -> None:
    async with over(proxy.url(kind, "ada:p%40ss%20w@")).session() as http:
        texts = set()
        for _ in range(2):
            async with http.get(f"http://{NAME}:{port}/v1") as response:
                texts.add(await response.text())
        async with http.ws_connect(f"ws://{NAME}:{port}/socket"):
            pass
    assert set(proxy.logins) == {BASIC if kind == "http" else LOGIN}
    if kind != "http":  # the scripted proxy passes on the header that was for it
        assert texts == {"GET /v1 []"}


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_exempt_is_reached_directly_also_after_a_redirect(
    proxy: ScriptedProxy, port: int, kind: str
) -> None:
    async with over(proxy.url(kind), no="127.0.0.0/8").session() as http:
        async with http.get(f"http://127.0.0.1:{port}/v1") as response:
            assert response.status == 200
        assert proxy.asked == []
        away = f"http://127.0.0.1:{port}/away?to=http://{NAME}:{port}/there"
        async with http.get(away) as response:
            assert await response.text() == "GET /there []"
    assert len(proxy.asked) == 1
    assert NAME in proxy.asked[0]


async def error_of(outgoing: Outgoing, url: str) -> BaseException:
    async with outgoing.session(timeout=aiohttp.ClientTimeout(sock_connect=5)) as http:
        with pytest.raises(aiohttp.ClientError) as raised:
            async with http.ws_connect(url) if url.startswith("ws") else http.post(url):
                pass
    return raised.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
async def test_a_proxy_that_is_away_has_sent_nothing_and_is_named_without_its_login(
    kind: str, scheme: str
) -> None:
    outgoing = over(f"{kind}://ada:hunter2@127.0.0.1:9")
    error = await error_of(outgoing, f"{scheme}://{NAME}/v1")
    assert isinstance(error, aiohttp.ClientProxyConnectionError)
    assert f"{kind}://127.0.0.1:9" in str(error)
    assert "hunter2" not in repr(error) + str(error)


@pytest.mark.parametrize(
    ("kind", "refusal", "words"),
    [
        ("http", b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", "another user and password"),
        ("http", b"HTTP/1.1 403 Filtered\r\nContent-Length: 0\r\n\r\n", "403 Filtered"),
        ("http", b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "502 Bad Gateway"),
        ("http", b"\x15\x03\x01 what?\r\n\r\n", "did not connect us"),
        ("socks5", b"no", f"refused {NAME}:443"),
    ],
)
async def test_a_proxy_that_refuses_has_sent_nothing(
    proxy: ScriptedProxy, kind: str, refusal: bytes, words: str
) -> None:
    proxy.refuses = refusal
    error = await error_of(over(proxy.url(kind)), f"https://{NAME}/v1")
    assert isinstance(error, aiohttp.ClientProxyConnectionError)
    assert words in str(error)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_says_nothing_is_given_up_in_the_time_for_connecting(kind: str) -> None:
    async with deaf() as port:
        outgoing = over(f"{kind}://127.0.0.1:{port}")
        async with outgoing.session(timeout=aiohttp.ClientTimeout(sock_connect=0.2)) as http:
            with pytest.raises(aiohttp.ConnectionTimeoutError):
                await http.get(f"https://{NAME}/v1")


def deaf() -> AbstractAsyncContextManager[int]:
    """Serve a port that takes every connection and never answers."""

    @asynccontextmanager
    async def served() -> AsyncIterator[int]:
        held: list[Writer] = []

        async def keep(_: Reader, writer: Writer) -> None:
            held.append(writer)

        server = await asyncio.start_server(keep, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for each in held:
                each.close()

    return served()


async def test_a_file_of_authorities_is_trusted_besides_the_system_s(
    certificate: Path, tmp_path: Path
) -> None:
    file = tmp_path / "perdure.toml"
    text = f'[network]\nca_file = "{certificate}"\n'
    network = network_of(parse(text.encode(), file, {}), file, {})
    assert network.trusted is not None
    assert len(network.trusted.get_ca_certs()) >= 1
    async with (
        serving(server_context(certificate)) as port,
        RoutedOutgoing(trusted=network.trusted).session() as http,
        http.get(f"https://localhost:{port}/v1") as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize("opened", [DIRECT.session, RoutedOutgoing().session])
async def test_a_session_reads_no_netrc_no_variable_and_keeps_no_cookie(
    opened: Callable[[], aiohttp.ClientSession],
    port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with opened() as http:
        assert not http.trust_env
        assert isinstance(http.cookie_jar, aiohttp.DummyCookieJar)
        async with http.get(f"http://127.0.0.1:{port}/v1") as response:
            assert response.status == 200
            assert "Authorization" not in response.request_info.headers


async def fetched(fetcher: WebFetcher, url: str) -> bytes:
    return b"".join([piece async for piece in fetcher.fetch(url)])


@pytest.mark.parametrize("kind", KINDS)
async def test_behind_a_proxy_a_name_that_only_the_proxy_knows_is_fetched(
    proxy: ScriptedProxy, port: int, kind: str
) -> None:
    fetcher = WebFetcher(RoutedWeb(outgoing=over(proxy.url(kind))))
    assert await fetched(fetcher, f"http://{NAME}:{port}/a.txt") == b"GET /a.txt []"


PRIVATE = [
    "http://127.0.0.1/a",
    "http://10.0.0.1/a",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/a",
    "http://[::ffff:169.254.169.254]/a",
    "http://[fe80::1%25eth0]/a",
    "http://2130706433/a",
    "http://127.1/a",
    "http://0x7f.1/a",
    "http://017700000001/a",
    "http://localhost/a",
    "http://LOCALHOST./a",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata.google.internal./computeMetadata/v1/",
    "http://metadata/a",
    "http://instance-data.ec2.internal/a",
    "http://metadata.goog/a",
    "http://printer.local/a",
    "https://intranet/a",
]


class Directory(aiohttp.ThreadedResolver):
    """Knows one address for every name, or none."""

    address = ""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if not self.address:
            raise OSError(f"{host} is not known")
        found = self.address
        return [
            ResolveResult(hostname=host, host=found, port=port, family=family, proto=0, flags=0)
        ]


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> type[Directory]:
    """Let our own DNS know no name, as it often is behind a proxy."""
    monkeypatch.setattr(aiohttp, "ThreadedResolver", Directory)
    monkeypatch.setattr(Directory, "address", "")
    return Directory


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", PRIVATE)
async def test_behind_a_proxy_nothing_private_is_asked_for(
    proxy: ScriptedProxy, directory: type[Directory], port: int, kind: str, url: str
) -> None:
    fetcher = WebFetcher(RoutedWeb(outgoing=over(proxy.url(kind))))
    with pytest.raises(Permanent) as refused:
        await fetched(fetcher, url)
    assert refused.value.code == "private_address"
    away = f"http://{NAME}:{port}/away?to={url}"
    with pytest.raises(Permanent):
        await fetched(fetcher, away)
    assert [each for each in proxy.asked if NAME not in each] == []


async def test_behind_a_proxy_a_name_that_our_dns_calls_private_is_not_asked_for(
    proxy: ScriptedProxy, directory: type[Directory], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = WebFetcher(RoutedWeb(outgoing=over(proxy.url("socks5"))))
    monkeypatch.setattr(directory, "address", "10.0.0.7")
    with pytest.raises(Permanent) as refused:
        await fetched(fetcher, f"http://{NAME}:{port}/a")
    assert refused.value.code == "private_address"
    monkeypatch.setattr(directory, "address", "93.184.215.14")
    assert await fetched(fetcher, f"http://{NAME}:{port}/a") == b"GET /a []"


async def test_a_private_proxy_leads_to_public_files_and_exempt_names_are_still_judged(
    proxy: ScriptedProxy, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The proxy's own name is private, which says nothing about the file.
    near = f"http://localhost:{proxy.port}"
    fetcher = WebFetcher(RoutedWeb(outgoing=over(near)))
    assert await fetched(fetcher, f"http://{NAME}:{port}/a") == b"GET /a []"
    exempt = WebFetcher(RoutedWeb(outgoing=over(near, no="localhost")))
    with pytest.raises(Permanent) as refused:
        await fetched(exempt, f"http://localhost:{port}/a")
    assert refused.value.code == "private_address"


async def test_a_proxy_that_is_away_is_no_reason_to_give_a_file_up() -> None:
    nowhere = RoutedWeb(outgoing=over("http://127.0.0.1:9"))
    with pytest.raises(Transient):
        await fetched(WebFetcher(nowhere), f"http://{NAME}/a")


SECTIONS = {
    "telegram": '[adapters.telegram]\ntoken = "1:t"\napi_url = "{url}"\n',
    "discord": '[adapters.discord]\ntoken = "t"\napi_url = "{url}"\n',
    "slack": '[adapters.slack]\ntoken = "xoxb-t"\napp_token = "xapp-t"\napi_url = "{url}"\n',
    "matrix": '[adapters.matrix]\ntoken = "t"\nuser = "@bot:a.example"\nhomeserver = "{url}"\n',
}


@pytest.mark.parametrize("name", SECTIONS)
async def test_a_platform_is_reached_with_the_session_that_it_is_given(
    proxy: ScriptedProxy, tmp_path: Path, name: str
) -> None:
    proxy.refuses = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"
    text = SECTIONS[name].format(url=f"https://{NAME}")
    config = parse(text.encode(), tmp_path / "perdure.toml", {})
    made = platforms.platforms(
        config.adapters,
        home=tmp_path,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        hook_url=lambda _: "",
        answers=lambda _: no_answers,
        outgoing=over(proxy.url("http")),
    )[name]
    try:
        with pytest.raises(Transient) as refused:
            await made.connect()
        assert f"the proxy {proxy.url('http')} did not connect us" in refused.value.message
        assert "403 No" in refused.value.message
    finally:
        await made.close()
    assert set(proxy.asked) == {f"CONNECT {NAME}:443"}


async def test_a_callback_is_called_with_the_session_that_it_is_given(
    proxy: ScriptedProxy, port: int
) -> None:
    wire = Wire(SystemClock(), over(proxy.url("http")))
    try:
        await wire.post("build", f"http://{NAME}:{port}/done", {}, b"{}")
    finally:
        await wire.close()
    assert proxy.asked == [f"POST http://{NAME}:{port}/done"]


async def test_a_model_is_asked_with_the_session_that_the_agent_is_given(
    proxy: ScriptedProxy,
) -> None:
    proxy.refuses = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
    settings = ChatSettings(name="main", api="openai", base_url=f"https://{NAME}/v1", model="m")
    wire = ModelWire(settings, session=None, clock=SystemClock(), outgoing=over(proxy.url("http")))
    try:
        failure = await wire.post([b"{}"])
    finally:
        await wire.close()
    assert isinstance(failure, ModelFailure)
    assert failure.reason is StopReason.PROVIDER_UNREACHABLE
    assert failure.may_retry
    assert f"the proxy {proxy.url('http')} did not connect us" in failure.detail
    assert proxy.asked == [f"CONNECT {NAME}:443"]
