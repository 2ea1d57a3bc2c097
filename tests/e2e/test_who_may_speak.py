"""Checks that who may speak is decided once, and in the same way on every platform.

Each adapter runs with its peer, in an engine that serves one person of two. The tests play the
decision table through real connections.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.adapters.matrix.login.keeping import CURSOR
from perdure.app.config.loading import parse
from perdure.app.config.platforms import Hosts, platforms
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.receiving import begin_receiving
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import Address
from perdure.domain.errors import Rejected
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.gateway import Health
from perdure.ports.platform.adapter import Platform
from perdure.ports.platform.manifest import no_answers
from perdure.ports.platform.settings import AdapterSettings
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.cases.discord import DiscordCase
from perdure.testkit.cases.matrix import MatrixCase
from perdure.testkit.cases.slack import SlackCase
from perdure.testkit.cases.telegram import TelegramCase
from perdure.testkit.cases.webhook import ShownOnce, WebhookCase
from perdure.testkit.contract.adapter_case import AdapterCase
from perdure.testkit.peers.discord.simcord_server import SimcordServer
from perdure.testkit.peers.matrix.synapse import MatrixControl
from perdure.testkit.peers.slack.local_slack import LocalSlackControl
from perdure.testkit.peers.telegram.bot_api import BotApi
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.system import SeededEntropy

CLOCK = SystemClock()
DEADLINE_S = 15


class Bench:
    """Makes a platform from its section, and remembers its settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configured: dict[str, AdapterSettings] = {}

    def make(self, settings: str) -> Platform:
        config = parse(settings.encode(), self.folder / "perdure.toml", {})
        self.configured = dict(config.adapters)
        (platform,) = platforms(
            config.adapters,
            home=self.folder,
            clock=CLOCK,
            entropy=SystemEntropy(),
            hook_url=lambda name: f"https://gateway.example/hooks/{name}",
            answers=lambda _: no_answers,
        ).values()
        return platform


class Answering:
    """Runs an engine that answers over one platform."""

    def __init__(self, case: AdapterCase, store: Store, parts: NodeParts) -> None:
        self.case = case
        self.store = store
        self.parts = parts

    async def is_answered(self, text: str, address: Address) -> None:
        async def look() -> bool:
            return any("echo: " in s and text in s for s in await self.case.shown(address))

        await until(look, f"{text!r} to be answered at {address}")

    async def is_refused(self, external_id: str) -> None:
        """Wait until the message was refused, and recorded as that."""

        async def look() -> bool:
            found = await self.store.archive.answer(external_id, adapter=self.case.platform.name)
            return found is not None and found.state == "failed"

        await until(look, f"{external_id} to be refused")


async def until(look: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await look():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"waited {DEADLINE_S} s for {what}") from None


@asynccontextmanager
async def answering(case: AdapterCase, bench: Bench) -> AsyncIterator[Answering]:
    driver = SqliteDriver(bench.folder / "perdure.db", synchronous="OFF")
    entropy = SeededEntropy(time.monotonic_ns())
    store = Store(driver, clock=CLOCK, entropy=entropy, media=bench.folder / "media")
    backend = Backend(name="main", kind="s", agent=ScriptedAgent(), tools=CountingTools([]))
    dependencies = NodeDependencies(
        store=store,
        roster=Roster({"main": backend}),
        clock=CLOCK,
        entropy=entropy,
        limits=Limits(drain_timeout_s=5),
        platforms={case.platform.name: case.platform},
        terms=Hosts(bench.configured).terms,
    )
    await store.open()
    try:
        async with Supervisor() as supervisor:
            parts = compose_node(dependencies, supervisor.start, feed=Feed())
            await parts.gateway.begin(name="e2e")
            begin_receiving(dependencies, parts)
            try:
                await is_connected(parts)
                await is_hearing(case, bench)
                yield Answering(case, store, parts)
            finally:
                await parts.gateway.drain()
                await parts.receivers.stop()
                await parts.receivers.close()
    finally:
        await store.close()


async def is_connected(parts: NodeParts) -> None:
    async def look() -> bool:
        return [view.health for view in parts.receivers.views()] == [Health.SERVING]

    await until(look, "the platform to be connected")


async def is_hearing(case: AdapterCase, bench: Bench) -> None:
    """Wait until the platform hears people. On Matrix, what was said before the first sync is
    ignored; a hook always hears."""
    if isinstance(case, WebhookCase):
        return
    if not isinstance(case, MatrixCase):
        await case.ready()
        return

    async def look() -> bool:
        return (bench.folder / "adapters" / "matrix" / CURSOR).exists()

    await until(look, "the first sync")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


class DecisionTable:
    """Checks that one person may speak and the other may not, in private and in a group."""

    async def test_one_may_speak_and_the_other_may_not(
        self, case: AdapterCase, bench: Bench
    ) -> None:
        async with answering(case, bench) as gateway:
            strangers = [
                await case.say("a stranger in private", is_stranger=True),
                await case.say_in_group("a stranger calls", mention=True, is_stranger=True),
            ]
            await case.say_in_group("among ourselves", mention=False)
            await case.say("a friend in private")
            called = await case.say_in_group("a friend calls", mention=True)

            await gateway.is_answered("a friend in private", await case.private())
            await gateway.is_answered("a friend calls", await case.answered_at(called))
            for stranger in strangers:
                await gateway.is_refused(stranger)

            places = [
                await case.private(),
                await case.private(is_stranger=True),
                await case.answered_at(called),
                await case.answered_at(strangers[1]),
                await case.group(),
            ]
            shown = {text for place in places for text in await case.shown(place) if "echo" in text}
            assert len(shown) == 2, shown
            assert await case.shown(places[1]) == []


class TestMatrix(DecisionTable):
    @pytest.fixture
    async def case(self, matrix: MatrixControl, bench: Bench) -> MatrixCase:
        return await MatrixCase.open(matrix, bench.make)


class TestTelegram(DecisionTable):
    @pytest.fixture
    async def case(self, bench: Bench) -> AsyncIterator[TelegramCase]:
        async with BotApi(CLOCK) as api:
            yield TelegramCase(api, bench.make, clock=CLOCK)


class TestSlack(DecisionTable):
    @pytest.fixture
    async def case(self, local_slack: LocalSlackControl, bench: Bench) -> SlackCase:
        return await SlackCase.open(local_slack, bench.make)


class TestDiscord(DecisionTable):
    @pytest.fixture
    async def case(self, bench: Bench) -> AsyncIterator[DiscordCase]:
        async with SimcordServer() as server:
            yield DiscordCase(server, bench.make, clock=CLOCK)


async def test_a_webhook_may_speak_by_its_secret_alone(bench: Bench) -> None:
    async with ShownOnce.listening() as callback:
        case = WebhookCase(callback, bench.make, clock=CLOCK)
        async with answering(case, bench) as gateway:
            case.send = gateway.parts.receivers.hooks()[case.platform.name]
            with pytest.raises(Rejected) as refusal:
                await case.send(case.forged())
            await case.say("a friend")
            await gateway.is_answered("a friend", await case.private())
            assert refusal.value.code == "unauthorized"
            assert len(await case.shown()) == 1
