"""Provides the peers as pytest fixtures: `pytest_plugins = ["perdure.testkit.peers.fixtures"]`.

A server is started when a test first asks for it, and serves until the worker's session ends. Each
test has a control client of its own. The programs are where `scripts/test-peers` puts them, below
the root of the tests. A suite that uses this module must have a session fixture `peer_site`, which
says where servers run. If a peer is not installed, its tests are skipped with a reason; with
`CI=true` in the site's environment they fail instead.
"""

import asyncio
import platform
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from perdure.testkit.peers.acp.aimock import AimockControl, AimockServer
from perdure.testkit.peers.acp.hostile_acp import HostileAcp
from perdure.testkit.peers.acp.published_acp import PublishedAcp
from perdure.testkit.peers.discord.discord_twin import DiscordTwinControl, DiscordTwinServer
from perdure.testkit.peers.matrix.synapse import MatrixControl, SynapseServer
from perdure.testkit.peers.mcp.conformance import ConformanceSuite
from perdure.testkit.peers.mcp.hostile_mcp import HostileMcp
from perdure.testkit.peers.mcp.official_mcp import OfficialMcpServer
from perdure.testkit.peers.mcp.published_mcp import EverythingMcpServer, PublishedMcp
from perdure.testkit.peers.peer import Server, Site
from perdure.testkit.peers.slack.emulate_slack import EmulateSlackControl, EmulateSlackServer
from perdure.testkit.peers.slack.local_slack import LocalSlackControl, LocalSlackServer
from perdure.testkit.peers.telegram.telegram_test_api import (
    TelegramTestApiControl,
    TelegramTestApiServer,
)
from perdure.testkit.peers.telegram.telemelya import Programs, TelemelyaControl, TelemelyaServer
from perdure.testkit.peers.web_proxies import WebProxy, dante, tinyproxy

S = TypeVar("S", bound=Server)
PeerSite = Callable[[str], Site]


class NewPeer:
    """Makes servers that are not started yet: `async with new_peer.local_slack() as slack`.

    Only tests that kill their server need it. All others use the server of the session.
    """

    def __init__(self, root: Path, peer_site: PeerSite) -> None:
        self._root = root
        self._environments = root / ".venv" / "peers"
        self._folder = root / "tests" / "peers"
        self._site = peer_site

    def synapse(self, *, has_limits: bool = False) -> SynapseServer:
        site = self._site("synapse")
        python = self._environments / "synapse" / "bin" / "python"
        return SynapseServer(site, python=_had(python, site), has_limits=has_limits)

    def local_slack(self) -> LocalSlackServer:
        site = self._site("local-slack")
        program = self._module("local-slack-linux-x64") / "bin" / "local-slack"
        return LocalSlackServer(site, program=_had(program, site))

    def emulate_slack(self) -> EmulateSlackServer:
        site = self._site("emulate-slack")
        _had(self._module("emulate"), site)
        harness = self._folder / "emulate_slack.mjs"
        return EmulateSlackServer(site, node=self._node(site), harness=harness)

    def telegram_test_api(self) -> TelegramTestApiServer:
        site = self._site("telegram-test-api")
        _had(self._module("telegram-test-api"), site)
        harness = self._folder / "telegram_test_api.mjs"
        return TelegramTestApiServer(site, node=self._node(site), harness=harness)

    def telemelya(self) -> TelemelyaServer:
        site = self._site("telemelya")
        _had(self._module("emulate"), site)
        programs = Programs(
            telemelya=_had(self._environments / "telemelya" / "bin" / "telemelya-server", site),
            redis=_had(Path(shutil.which("redis-server") or "redis-server"), site),
            node=self._node(site),
            s3=self._folder / "emulate_s3.mjs",
        )
        return TelemelyaServer(site, programs=programs)

    def discord_twin(self) -> DiscordTwinServer:
        site = self._site("discord-twin")
        _had(self._module("discord-digital-twin"), site)
        harness = self._folder / "discord_twin.mjs"
        return DiscordTwinServer(site, node=self._node(site), harness=harness)

    def published_mcp(self) -> PublishedMcp:
        site = self._site("published-mcp")
        modules = self._folder / "node_modules"
        published = PublishedMcp(self._environments, modules, self._node(site))
        for program in published.programs:
            _had(program, site)
        return published

    def everything_mcp(self) -> EverythingMcpServer:
        return self.published_mcp().everything_over_http(self._site("everything-mcp"))

    def official_mcp(self, *words: str) -> OfficialMcpServer:
        return OfficialMcpServer(self._site("official-mcp"), root=self._root, words=words)

    def hostile_mcp(self) -> HostileMcp:
        return HostileMcp(self._root, self._site("hostile-mcp"))

    def mcp_conformance(self) -> ConformanceSuite:
        site = self._site("mcp-conformance")
        script = self._module("@modelcontextprotocol") / "conformance" / "dist" / "index.js"
        return ConformanceSuite(site, node=self._node(site), script=_had(script, site))

    def bubblewrap(self) -> Path:
        return _had(_program("bwrap"), self._site("bubblewrap"))

    def aimock(self) -> AimockServer:
        site = self._site("aimock")
        _had(self._module("@copilotkit") / "aimock", site)
        return AimockServer(site, node=self._node(site), harness=self._folder / "aimock.mjs")

    def published_acp(self) -> PublishedAcp:
        site = self._site("published-acp")
        modules = self._folder / "node_modules"
        published = PublishedAcp(modules, self._node(site), kind=f"linux-{_machine()}")
        for program in published.programs:
            _had(program, site)
        return published

    def hostile_acp(self) -> HostileAcp:
        return HostileAcp(self._root)

    def tinyproxy(self, *, login: str = "") -> WebProxy:
        site = self._site("tinyproxy")
        return tinyproxy(_had(_program("tinyproxy"), site), site, login=login)

    def dante(self, scheme: str = "socks5") -> WebProxy:
        site = self._site("dante")
        return dante(_had(_program("danted"), site), site, scheme=scheme)

    def _module(self, name: str) -> Path:
        return self._folder / "node_modules" / name

    def _node(self, site: Site) -> Path:
        # The peers need a newer Node than most machines have, so one is installed beside them.
        return _had(self._module(f"node-linux-{_machine()}") / "bin" / "node", site)


def _machine() -> str:
    """Return the kind of this machine as Node's packages call it."""
    return "arm64" if platform.machine() in {"aarch64", "arm64"} else "x64"


def _program(name: str) -> Path:
    """Return the path of a program, which may be one for the system's owner."""
    return Path(shutil.which(name) or f"/usr/sbin/{name}")


def _had(program: Path, site: Site) -> Path:
    """Return the path of a program. If it is not installed, skip the test, or fail it in CI."""
    if program.exists():
        return program
    words = f"the peer's {program.name} cannot be had here: run scripts/test-peers"
    if site.environ.get("CI") == "true":
        pytest.fail(words)
    pytest.skip(words)


def _served(server: S) -> Iterator[S]:
    """Start a server, yield it, and stop it. A server is not tied to an event loop, so it can be
    started in one loop and stopped in another."""
    try:
        asyncio.run(server.start())
        yield server
    finally:
        asyncio.run(server.stop())


@pytest.fixture(scope="session")
def new_peer(pytestconfig: pytest.Config, peer_site: PeerSite) -> NewPeer:
    """Provide the maker of servers."""
    return NewPeer(pytestconfig.rootpath, peer_site)


@pytest.fixture(scope="session")
def synapse_server(new_peer: NewPeer) -> Iterator[SynapseServer]:
    """Provide Synapse without limits, for the session."""
    yield from _served(new_peer.synapse())


@pytest.fixture(scope="session")
def strict_synapse_server(new_peer: NewPeer) -> Iterator[SynapseServer]:
    """Provide Synapse with its usual limits, for the session."""
    yield from _served(new_peer.synapse(has_limits=True))


@pytest.fixture(scope="session")
def local_slack_server(new_peer: NewPeer) -> Iterator[LocalSlackServer]:
    """Provide `local-slack` for the session."""
    yield from _served(new_peer.local_slack())


@pytest.fixture(scope="session")
def emulate_slack_server(new_peer: NewPeer) -> Iterator[EmulateSlackServer]:
    """Provide `emulate` for the session."""
    yield from _served(new_peer.emulate_slack())


@pytest.fixture(scope="session")
def telegram_test_api_server(new_peer: NewPeer) -> Iterator[TelegramTestApiServer]:
    """Provide `telegram-test-api` for the session."""
    yield from _served(new_peer.telegram_test_api())


@pytest.fixture(scope="session")
def telemelya_server(new_peer: NewPeer) -> Iterator[TelemelyaServer]:
    """Provide `telemelya` for the session."""
    yield from _served(new_peer.telemelya())


@pytest.fixture(scope="session")
def discord_twin_server(new_peer: NewPeer) -> Iterator[DiscordTwinServer]:
    """Provide `discord-digital-twin` for the session."""
    yield from _served(new_peer.discord_twin())


@pytest.fixture(scope="session")
def aimock_server(new_peer: NewPeer) -> Iterator[AimockServer]:
    """Provide the model of agents by others, for the session."""
    yield from _served(new_peer.aimock())


@pytest.fixture
async def matrix(synapse_server: SynapseServer) -> AsyncIterator[MatrixControl]:
    """Provide Matrix without limits."""
    async with synapse_server.control() as control:
        yield control


@pytest.fixture
async def strict_matrix(strict_synapse_server: SynapseServer) -> AsyncIterator[MatrixControl]:
    """Provide Matrix with the limits that Synapse ships with."""
    async with strict_synapse_server.control() as control:
        yield control


@pytest.fixture
async def local_slack(local_slack_server: LocalSlackServer) -> AsyncIterator[LocalSlackControl]:
    """Provide Slack with Socket Mode."""
    async with local_slack_server.control() as control:
        yield control


@pytest.fixture
async def emulate_slack(
    emulate_slack_server: EmulateSlackServer,
) -> AsyncIterator[EmulateSlackControl]:
    """Provide Slack with the Events API."""
    async with emulate_slack_server.control() as control:
        yield control


@pytest.fixture
async def telegram_polling(
    telegram_test_api_server: TelegramTestApiServer,
) -> AsyncIterator[TelegramTestApiControl]:
    """Provide Telegram with getUpdates."""
    async with telegram_test_api_server.control() as control:
        yield control


@pytest.fixture
async def telegram_webhook(telemelya_server: TelemelyaServer) -> AsyncIterator[TelemelyaControl]:
    """Provide Telegram with webhooks and media."""
    async with telemelya_server.control() as control:
        yield control


@pytest.fixture
async def discord_twin(
    discord_twin_server: DiscordTwinServer,
) -> AsyncIterator[DiscordTwinControl]:
    """Provide Discord's gateway and REST."""
    async with discord_twin_server.control() as control:
        yield control


@pytest.fixture
async def aimock(aimock_server: AimockServer) -> AsyncIterator[AimockControl]:
    """Provide the model of agents by others, with no request in it."""
    async with aimock_server.control() as control:
        yield control
