"""Checks that every platform, and the fake that stands for platforms, keeps the promises of the
ports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.app.config.loading import parse
from perdure.app.config.platforms import platforms
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.ports.platform.adapter import Platform
from perdure.ports.platform.manifest import no_answers
from perdure.testkit.cases.discord import DiscordCase
from perdure.testkit.cases.matrix import MatrixCase
from perdure.testkit.cases.scripted import ScriptedCase
from perdure.testkit.cases.scripted_slack import ScriptedSlackCase
from perdure.testkit.cases.section import MakePlatform
from perdure.testkit.cases.slack import SlackCase
from perdure.testkit.cases.telegram import TelegramCase
from perdure.testkit.cases.webhook import ShownOnce, WebhookCase
from perdure.testkit.contract.adapter_suite import AdapterContract
from perdure.testkit.contract.receiver import ScriptedReceiver
from perdure.testkit.peers.discord.simcord_server import SimcordServer
from perdure.testkit.peers.gate import PeerGate
from perdure.testkit.peers.matrix.synapse import MatrixControl
from perdure.testkit.peers.slack.local_slack import LocalSlackControl
from perdure.testkit.peers.slack.scripted_slack import ScriptedSlack
from perdure.testkit.peers.telegram.bot_api import BotApi

TORTURE = (Path(__file__).parents[1] / "golden" / "torture.md").read_text(encoding="utf-8")
CLOCK = SystemClock()


@pytest.fixture
def make(tmp_path: Path) -> MakePlatform:
    """Make platforms from sections of a configuration, as the gateway does."""

    def made(section: str) -> Platform:
        config = parse(section.encode(), tmp_path / "perdure.toml", {})
        (platform,) = platforms(
            config.adapters,
            home=tmp_path,
            clock=CLOCK,
            entropy=SystemEntropy(),
            hook_url=lambda name: f"https://gateway.example/hooks/{name}",
            answers=lambda _: no_answers,
        ).values()
        return platform

    return made


class TestScripted(AdapterContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[ScriptedCase]:
        case = ScriptedCase(ScriptedReceiver(secret="known"), clock=CLOCK)
        case.torture = TORTURE
        async with case.connected():
            yield case


class TestMatrix(AdapterContract):
    @pytest.fixture
    async def case(self, matrix: MatrixControl, make: MakePlatform) -> AsyncIterator[MatrixCase]:
        async with PeerGate(matrix.url) as gate:
            case = await MatrixCase.open(matrix, make, gate=gate)
            case.torture = TORTURE
            async with case.connected():
                yield case


class TestTelegram(AdapterContract):
    @pytest.fixture
    async def case(self, make: MakePlatform) -> AsyncIterator[TelegramCase]:
        async with BotApi(CLOCK) as api:
            case = TelegramCase(api, make, clock=CLOCK)
            case.torture = TORTURE
            async with case.connected():
                yield case


class TestSlack(AdapterContract):
    @pytest.fixture
    async def case(
        self, local_slack: LocalSlackControl, make: MakePlatform
    ) -> AsyncIterator[SlackCase]:
        case = await SlackCase.open(local_slack, make)
        case.torture = TORTURE
        async with case.connected():
            yield case


class TestScriptedSlack(AdapterContract):
    @pytest.fixture
    async def case(self, make: MakePlatform) -> AsyncIterator[ScriptedSlackCase]:
        async with ScriptedSlack(CLOCK) as slack:
            case = ScriptedSlackCase(slack, make, clock=CLOCK)
            case.torture = TORTURE
            async with case.connected():
                yield case


class TestDiscord(AdapterContract):
    @pytest.fixture
    async def case(self, make: MakePlatform) -> AsyncIterator[DiscordCase]:
        async with SimcordServer() as server:
            case = DiscordCase(server, make, clock=CLOCK)
            case.torture = TORTURE
            async with case.connected():
                yield case


class TestWebhook(AdapterContract):
    @pytest.fixture
    async def case(self, make: MakePlatform) -> AsyncIterator[WebhookCase]:
        async with ShownOnce.listening() as callback:
            case = WebhookCase(callback, make, clock=CLOCK)
            case.torture = TORTURE
            async with case.connected():
                yield case
