"""Runs the real gateway in the worlds of the crash simulator (`testkit/simulator/world.py`).

A test asks for `simulator` (SQLite) or `simulator_on_postgres`. Fuses are put around every port of
the store, or into its driver, and around the platform, the model and the files' source.
"""

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.databases import sqlite_on

from perdure.app.reading.file_reading import FileReader
from perdure.app.schedule.making import JobSettings
from perdure.app.wiring.assembly import compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.hooks.occasions import HookCall, Occasion
from perdure.domain.ids import SessionId
from perdure.domain.people.access import EVERYBODY, AccessRules, Terms
from perdure.domain.people.notices import NoticeTerms
from perdure.domain.schedule.boot import BootFile
from perdure.domain.turn.watching import Delta
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed, FeedItem
from perdure.ports.delivery.pushes import Push, PushSender
from perdure.ports.records.occasions import Hooks
from perdure.ports.turns.tools import Tools
from perdure.store.drivers.driver import Driver
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.store import Store
from perdure.testkit.simulator.agent import ScriptedPrompts
from perdure.testkit.simulator.answering.flying import FlyingAgent
from perdure.testkit.simulator.answering.held import HeldAgent, HeldTools
from perdure.testkit.simulator.commits import CountedDriver, FusedDriver
from perdure.testkit.simulator.crash import (
    PORTS,
    Fuse,
    Fused,
    FusedAgent,
    FusedFetcher,
    FusedPlatform,
    FusedPrompts,
    FusedStore,
)
from perdure.testkit.simulator.node import Process
from perdure.testkit.simulator.pictures import InstantPictures
from perdure.testkit.simulator.stores import OwnedDatabase
from perdure.testkit.simulator.striking import Simulator, StrikePoints
from perdure.testkit.simulator.world import PLATFORM, Setup, World

Before = Callable[[World], Awaitable[None]]
Tell = Callable[[str], None]


class FusedHooks:
    """Lets the process die right before and right after hooks were told. Otherwise hooks are always
    told, because their port raises nothing."""

    def __init__(self, hooks: Hooks, fuse: Fuse) -> None:
        self._hooks = hooks
        self._fused = Fused(hooks, fuse)
        self.failures = hooks.failures

    async def find(self) -> frozenset[Occasion]:
        return await self._hooks.find()

    async def call(self, call: HookCall) -> None:
        try:
            await self._fused.call(call)
        except Transient:
            await self._hooks.call(call)
        except Ambiguous:
            pass

    def dropped(self, call: HookCall) -> None:
        self._hooks.dropped(call)


class FusedSender:
    """Lets the process die right before and right after a notification was handed over, and lets
    push services refuse it or break off."""

    def __init__(self, sender: PushSender, fuse: Fuse) -> None:
        self._sender = sender
        self._fused = Fused(sender, fuse)
        self.new_key = sender.new_key
        self.public_part = sender.public_part
        self.check = sender.check

    async def send(self, push: Push, key: str) -> None:
        await self._fused.send(push, key)


class WatchedFeed(Feed):
    """Plays a person who watches every conversation and remembers what was shown."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def publish(self, session: SessionId, items: Sequence[FeedItem]) -> None:
        for item in items:
            if isinstance(item, Delta):
                self._world.see(item)
        super().publish(session, items)


class ParrotSpeaker:
    """Implements the `Voice` port: the recording holds the words."""

    async def speak(self, words: str) -> bytes:
        return words.encode()


def surroundings(world: World, store: Store, tools: Tools, fuse: Fuse) -> NodeDependencies:
    setup = world.setup
    backend = Backend(
        name="main",
        kind="scripted",
        agent=FusedAgent(FlyingAgent(world) if setup.flies else HeldAgent(world), fuse),
        tools=tools,
        prompts=FusedPrompts(ScriptedPrompts(world.prompts_fetched), fuse),
        instructions="Speak of the sea.",
        has_memory=setup.has_memory,
        context_tokens=setup.context_tokens,
    )
    deliveries = fuse if setup.strikes_deliveries else Fuse()
    ports = [port for port in PORTS if port != "outbox" or setup.strikes_deliveries]
    if setup.strikes_commits:
        ports = []
    return NodeDependencies(
        store=FusedStore(store, fuse, ports),  # type: ignore[arg-type]
        roster=Roster({"main": backend}),
        clock=world.clock,
        entropy=world.entropy,
        limits=Limits(
            drain_timeout_s=0,
            has_titles=setup.has_titles,
            recovery=setup.recovery,
            notices=NoticeTerms(still_at_work_s=setup.still_at_work_s),
        ),
        adapters={PLATFORM: FusedPlatform(world.platform, deliveries)},
        sources={PLATFORM: FusedFetcher(world.platform, fuse)},
        reader=InstantPictures(FileReader()),
        speaker=ParrotSpeaker(),
        hooks=FusedHooks(world.hooks, fuse),
        jobs=JobSettings(boot=lambda: BootFile(text=world.boot)),
        pushes=FusedSender(world.push_sender, fuse),
        terms=lambda _: Terms(rules=AccessRules(allow=frozenset({EVERYBODY}))),
    )


@asynccontextmanager
async def a_process(
    world: World, fuse: Fuse, *, driver: Callable[[], Driver], media: Path
) -> AsyncIterator[Process]:
    """Compose the real gateway on the world's database. The test steps its pumps."""
    within: Any = FusedDriver(driver(), fuse) if world.setup.strikes_commits else driver()
    counted: Any = CountedDriver(within, world.commits)
    store = Store(counted, clock=world.clock, entropy=world.entropy, media=media)
    world.commits.count_in(store)
    await store.open()
    made = world.make_tools(fuse) if world.make_tools else nullcontext(HeldTools(world))
    try:
        async with made as tools, Supervisor() as supervisor:
            dependencies = surroundings(world, store, tools, fuse)
            feed = WatchedFeed(world)
            parts = compose_node(dependencies, supervisor.start, feed=feed)
            yield Process(store, parts, dependencies.store.nodes, parts.deadlines)
    finally:
        await store.close()


def beginning(
    driver: Callable[[], Driver], media: Path
) -> Callable[[World, Fuse], AbstractAsyncContextManager[Process]]:
    return partial(a_process, driver=driver, media=media)


async def _nothing_to_bury() -> None:
    """Do nothing: on SQLite no other process can hold a lease."""


class WorldsOnSqlite:
    """Gives each world a file of its own. What happens before several worlds is played once, and
    its file is copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._templates: dict[Before, Path] = {}
        self._made = 0

    async def __call__(self, *, setup: Setup | None = None, before: Before | None = None) -> World:
        setup = setup or Setup()
        (self._folder / f"{self._made}.db").unlink(missing_ok=True)
        self._made += 1
        path = self._folder / f"{self._made}.db"
        if before is not None:
            if before not in self._templates:
                self._templates[before] = await self._make(before, setup)
            shutil.copy(self._templates[before], path)
        return self._world(path, setup, seed=0)

    def _world(self, path: Path, setup: Setup, *, seed: int) -> World:
        driver = partial(sqlite_on, path)
        return World(beginning(driver, self._folder), _nothing_to_bury, setup=setup, seed=seed)

    async def _make(self, before: Before, setup: Setup) -> Path:
        path = self._folder / f"template-{len(self._templates)}.db"
        await before(self._world(path, setup, seed=1))
        return path


class WorldsOnPostgres:
    """Gives all worlds the same database, and empties it before each."""

    def __init__(self, folder: Path, database: OwnedDatabase) -> None:
        self._folder = folder
        self._database = database

    async def __call__(self, *, setup: Setup | None = None, before: Before | None = None) -> World:
        await self._database.empty()
        driver = partial(PostgresDriver, self._database.url, connections=2)
        begin = beginning(driver, self._folder)
        world = World(begin, self._database.bury_all, setup=setup or Setup())
        if before is not None:
            await before(world)
        return world


@pytest.fixture
def choice(request: pytest.FixtureRequest) -> StrikePoints:
    """Choose the points at which this test strikes."""
    seed = int(os.environ["PERDURE_SEED"])
    strike = os.environ.get("PERDURE_STRIKE", "")
    return StrikePoints(test=request.node.nodeid, seed=seed, strike=strike)


@pytest.fixture
async def tell(request: pytest.FixtureRequest) -> Tell:
    """Keep the point at which a promise was broken for the test's report."""
    return lambda point: request.node.user_properties.append(("struck at", point))


@pytest.fixture
def simulator(tmp_path: Path, choice: StrikePoints, tell: Tell) -> Simulator:
    return Simulator(WorldsOnSqlite(tmp_path), choice, tell=tell)


@pytest.fixture
def simulator_on_postgres(
    tmp_path: Path, postgres: OwnedDatabase, choice: StrikePoints, tell: Tell
) -> Simulator:
    return Simulator(WorldsOnPostgres(tmp_path, postgres), choice, tell=tell)
