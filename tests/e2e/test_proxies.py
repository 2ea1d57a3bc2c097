"""Checks that every call of a real gateway goes over a real proxy, and what it tells of a proxy
that is wrong."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest
from aiohttp import web

from perdure.app.wiring.system import SystemClock
from perdure.testkit.models.model_server import ModelServer
from perdure.testkit.peers.discord import simcord_server as discord
from perdure.testkit.peers.fixtures import NewPeer
from perdure.testkit.peers.slack import scripted_slack as slack
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.peers.web_proxies import WebProxy
from perdure.testkit.processes.certificates import (
    can_make_certificates,
    made_certificate,
    server_context,
)
from perdure.testkit.processes.command import run_command
from perdure.testkit.processes.file_server import FileServer
from perdure.testkit.processes.http import Client
from perdure.testkit.processes.process import GatewayProcess

pytestmark = pytest.mark.timeout(60)
CLOCK = SystemClock()
ADA = 42
DEADLINE_S = 30.0
VOICE = b"OggS" + bytes(60)


class Hearer:
    """Serves as whatever a gateway may call: a homeserver that lets nobody in, and a callback."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.url = ""

    async def hear(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        return web.json_response({}, status=200 if request.path == "/callback" else 500)

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Hearer"]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.hear)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.02)


class Outside:
    """Holds everything that a gateway calls: a model, a transcriber and files, all platforms, and
    a callback."""

    model: ModelServer
    files: FileServer
    telegram: BotApi
    slack: slack.ScriptedSlack
    discord: discord.SimcordServer
    matrix: Hearer
    callback: Hearer

    def toml(self, network: str) -> str:
        ada = self.discord.person("ada").id
        return f"""
[network]
{network}
[agents.main]
kind = "chat"
model = "m"
base_url = "{self.model.openai_url}"
[sessions]
titles = false
[limits]
private_urls = true
[transcriber]
url = "{self.files.url}/v1"
[adapters.telegram]
token = "{self.telegram.token}"
api_url = "{self.telegram.url}"
allow = ["{ADA}"]
[adapters.slack]
token = "{slack.BOT_TOKEN}"
app_token = "{slack.APP_TOKEN}"
api_url = "{self.slack.api_url}"
allow = ["{slack.ALICE}"]
[adapters.discord]
token = "{discord.TOKEN}"
api_url = "{self.discord.api_url}"
allow = ["{ada}"]
[adapters.matrix]
homeserver = "{self.matrix.url}"
token = "t"
user = "@bot:example.org"
[adapters.webhook.routes.build]
secrets = ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]
callback = "{self.callback.url}/callback"
"""

    def urls(self) -> list[str]:
        return [
            self.model.url,
            self.files.url,
            self.telegram.url,
            self.slack.api_url,
            self.discord.api_url,
            self.matrix.url,
            self.callback.url,
        ]


@pytest.fixture
async def outside() -> AsyncIterator[Outside]:
    async with AsyncExitStack() as stack:
        found = Outside()
        found.model = await stack.enter_async_context(ModelServer())
        found.files = await stack.enter_async_context(FileServer({"/note.txt": b"sow beans"}))
        found.telegram = await stack.enter_async_context(BotApi(CLOCK))
        found.slack = await stack.enter_async_context(slack.ScriptedSlack(CLOCK))
        found.discord = await stack.enter_async_context(discord.SimcordServer())
        found.matrix = await stack.enter_async_context(Hearer().served())
        found.callback = await stack.enter_async_context(Hearer().served())
        yield found


@asynccontextmanager
async def running(home: Path, toml: str, **environ: str) -> AsyncIterator[GatewayProcess]:
    (home / "perdure.toml").write_text(toml)
    plain = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
    gateway = GatewayProcess(home, environ={**plain, **environ}, clock=CLOCK)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.kill()


def called(gateway: GatewayProcess) -> set[int]:
    """Return the ports to which the gateway has connections of its own."""
    process = psutil.Process(gateway.pid)
    return {
        each.raddr.port
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_ESTABLISHED and each.laddr.port != gateway.port
    }


@pytest.fixture(params=["tinyproxy", "socks5", "socks4"])
async def proxy(request: pytest.FixtureRequest, new_peer: NewPeer) -> AsyncIterator[WebProxy]:
    kind = request.param
    async with new_peer.tinyproxy() if kind == "tinyproxy" else new_peer.dante(kind) as server:
        yield server


async def test_a_real_proxy_sees_every_outgoing_call(
    outside: Outside, proxy: WebProxy, tmp_path: Path
) -> None:
    toml = outside.toml(f'proxy = "{proxy.url}"')
    async with running(tmp_path, toml) as gateway, aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        voice = outside.telegram.chats.add_file(VOICE, name="voice.ogg")
        outside.files.hears = "water them"
        outside.telegram.write(
            ADA, "", voice={"file_id": voice, "file_unique_id": "v", "mime_type": "audio/ogg"}
        )
        await outside.telegram.wait_shown(ADA, bool)
        await outside.slack.wait(lambda: bool(outside.slack.connections))
        await outside.slack.write(slack.PRIVATE, "hello")
        await outside.slack.wait_shown(slack.PRIVATE, bool)
        await until(lambda: outside.discord.gateway.connected == 1)
        room = outside.discord.channel("room")
        ada = next(each for each in outside.discord.world.users.values() if each.name == "ada")
        outside.discord.write(ada, room, f"<@{outside.discord.bot}> hello")
        await until(lambda: any(s.author != str(ada.id) for s in outside.discord.shown(room)[1:]))
        await until(lambda: bool(outside.matrix.paths))
        files = [{"url": f"{outside.files.url}/note.txt"}]
        said = await client.say("main", "read it", attachments=files)
        assert (await client.settled(said["turn"]))["outcome"] == "done"
        sent = await client.call("POST", "/api/send", body={"to": "webhook:build", "text": "hi"})
        assert sent[0] in (200, 202), sent
        await until(lambda: "/callback" in outside.callback.paths)

        assert outside.files.asked == ["/note.txt"]
        assert outside.files.transcribed != []
        assert called(gateway) == {proxy.port}
        wanted = {urlsplit(url).netloc for url in outside.urls()}
        await until(lambda: wanted <= proxy.asked())


MODEL = '[agents.main]\nkind = "chat"\nmodel = "m"\nbase_url = "{url}"\npatience_s = 0\n'
CHAT = "[sessions]\ntitles = false\n" + MODEL
PASSWORD = "hunter2secret"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate of this machine that is its own authority."""
    if not can_make_certificates():
        pytest.skip("openssl cannot be had here")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    return made_certificate(file, ["DNS:localhost", "IP:127.0.0.1"])


@asynccontextmanager
async def with_tls(port: int, certificate: Path) -> AsyncIterator[int]:
    """Serve another server's port with TLS."""

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65536):
                target.write(piece)
                await target.drain()
        target.close()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    server = await asyncio.start_server(lead, "127.0.0.1", 0, ssl=server_context(certificate))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def answer(gateway: GatewayProcess, text: str = "hello") -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        client = Client(gateway, session)
        said = await client.say("main", text)
        await client.settled(said["turn"])
        found: dict[str, Any] = (await client.transcript("main", "?notices=true"))[-1]
        return found


@pytest.mark.parametrize("trusts", ["ca_file", "SSL_CERT_FILE"])
async def test_the_variables_lead_https_through_a_proxy_with_a_login(
    new_peer: NewPeer, certificate: Path, tmp_path: Path, trusts: str
) -> None:
    async with (
        ModelServer() as model,
        with_tls(model.port, certificate) as port,
        new_peer.tinyproxy(login=f"ada {PASSWORD}") as proxy,
    ):
        url = f"http://ada:{PASSWORD}@127.0.0.1:{proxy.port}"
        environ = {"HTTPS_PROXY": url, "http_proxy": "http://127.0.0.1:9"}
        toml = CHAT.format(url=f"https://localhost:{port}/v1")
        if trusts == "ca_file":
            toml = f'[network]\nca_file = "{certificate}"\n{toml}'
        else:
            environ[trusts] = str(certificate)
        async with running(tmp_path, toml, **environ) as gateway:
            assert (await answer(gateway))["outcome"] == "done"
            await until(lambda: f"localhost:{port}" in proxy.asked())
            log = (tmp_path / "logs" / "perdure.log").read_text()
            assert PASSWORD not in log + gateway.output
        async with running(tmp_path, toml, **environ, NO_PROXY="localhost:1") as gateway:
            before = proxy.log.count("CONNECT localhost")
            assert (await answer(gateway))["outcome"] == "done"
            await until(lambda: proxy.log.count("CONNECT localhost") > before)
        async with running(tmp_path, toml, **environ, NO_PROXY=f"localhost:{port}") as gateway:
            before = proxy.log.count("CONNECT localhost")
            assert (await answer(gateway))["outcome"] == "done"
            assert proxy.log.count("CONNECT localhost") == before


async def test_a_proxy_that_is_away_is_told_at_the_start_and_by_the_turn(tmp_path: Path) -> None:
    toml = CHAT.format(url="http://models.invalid/v1")
    proxy = f"http://ada:{PASSWORD}@127.0.0.1:9"
    async with running(tmp_path, toml, ALL_PROXY=proxy) as gateway:
        await until(lambda: "the proxy cannot be reached" in gateway.output)
        failed = await answer(gateway)
        assert failed["outcome"] == "failed"
        said = await run_command(
            ["--home", str(tmp_path), "--json", "explain", failed["turn"]],
            environ={"PATH": os.environ["PATH"]},
        )
        assert "the proxy http://127.0.0.1:9 did not connect us" in said.out
        log = (tmp_path / "logs" / "perdure.log").read_text()
        assert PASSWORD not in log + gateway.output + said.out


async def test_a_wrong_proxy_is_told_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "perdure.toml"
    words = ["serve", "--home", str(tmp_path), "--port", "0"]
    environ = {"PATH": os.environ["PATH"], "PERDURE_DISCOVER": "0"}
    wrong = f"htp://ada:{PASSWORD}@proxy.example:3128"

    ended = await run_command(words, environ={**environ, "HTTPS_PROXY": wrong})
    assert ended.code == 2
    assert "HTTPS_PROXY: must be an address" in ended.err
    assert PASSWORD not in ended.err + ended.out

    file.write_text(f'[server]\n[network]\nproxy = "{wrong}"\n')
    ended = await run_command(words, environ=environ)
    assert ended.code == 2
    assert f"{file}:3: [network] proxy must be an address" in ended.err
    assert PASSWORD not in ended.err + ended.out

    file.write_text('[network]\nca_file = "missing.pem"\n')
    ended = await run_command(words, environ=environ)
    assert ended.code == 2
    assert f"{file}:2: [network] ca_file: {tmp_path}/missing.pem cannot be used" in ended.err

    file.unlink()
    ended = await run_command(words, environ={**environ, "SSL_CERT_FILE": "/missing.pem"})
    assert ended.code == 2
    assert "SSL_CERT_FILE: /missing.pem cannot be used (No such file" in ended.err
