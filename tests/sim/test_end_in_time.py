"""Checks that a node ends in time, also where the store takes no write or a platform hangs. The
next life recovers what could not be written down, as after a kill."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from perdure.app.config.loading import Config
from perdure.app.life.node import RunningNode, running_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock
from perdure.domain.address import Address
from perdure.domain.errors import Transient
from perdure.domain.ids import TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.node import ending
from perdure.engine.node import life as gateway
from perdure.engine.turns.runner_services import Limits
from perdure.ports.platform.adapter import Adapter, Effect, Receipt
from perdure.ports.turns.agent import Work
from perdure.ports.turns.turns import Settled, Settlement, TurnLease
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.statement import MakeOp
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy
from perdure.testkit.simulator.world import PLATFORM

T = TypeVar("T")
CLOSING_S = 0.4
HURRIED_S = 0.3
# A busy machine gets more time; an end without a bound would take for ever.
BUSY_S = 5.0


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the same bounds."""
    monkeypatch.setattr(gateway, "CLOSING_S", CLOSING_S)
    monkeypatch.setattr(ending, "HURRIED_S", HURRIED_S)
    monkeypatch.setattr(ending, "KEPT_S", 0.1)


class FaultyDriver(SqliteDriver):
    """Takes no write while it `refuses` or `hangs`."""

    fault = ""

    async def write(self, make: MakeOp[T]) -> T:
        if self.fault == "refuses":
            raise Transient("the disk is full")
        if self.fault == "hangs":
            await asyncio.Event().wait()
        return await super().write(make)


class Gate:
    """Holds an agent, or a platform, until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.opened.wait()


class HeldAgent(ScriptedAgent):
    """Says its first word, and the rest when the gate opens."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(super().run(request, work)) as events:
            yield await anext(events)
            await self._gate()
            async for event in events:
                yield event


class HangingPlatform(ScriptedPlatform):
    """Takes a message and never acknowledges it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    async def perform(self, effect: Effect) -> Receipt:
        await self.gate()
        return await super().perform(effect)


class Life:
    """Runs one node on the folder's database, and a person who talks to it."""

    def __init__(
        self, store: Store, driver: FaultyDriver, running: RunningNode, gate: Gate, *, adapter: str
    ) -> None:
        self._adapter = adapter
        self.store = store
        self.driver = driver
        self.node = running.node
        self.gate = gate
        self._door = running.services.door

    async def says(self, text: str) -> TurnId:
        person = await admitted(self.store, "ada")
        update = Update(
            address=Address(adapter=self._adapter, account=person, place="main"),
            external_id=text,
            kind=UpdateKind.MESSAGE,
            principal=person,
            text=text,
        )
        accepted = await self._door.accept(update)
        assert accepted.turn is not None
        return accepted.turn


@asynccontextmanager
async def life(
    folder: Path, *, drain_s: float = 0, platform: Adapter | None = None
) -> AsyncIterator[Life]:
    """Run a node until the block ends. The store is closed without a fault."""
    clock, entropy = SystemClock(), SeededEntropy()
    driver = FaultyDriver(folder / "perdure.db", synchronous="OFF")
    store = Store(driver, clock=clock, entropy=entropy, media=folder / "media")
    await store.open()
    gate = Gate()
    agent = HeldAgent(gate)
    backend = Backend(name="main", kind="s", agent=agent, tools=CountingTools([]))
    dependencies = NodeDependencies(
        store=store,
        roster=Roster({"main": backend}),
        clock=clock,
        entropy=entropy,
        limits=Limits(drain_timeout_s=drain_s, has_titles=False),
        adapters={} if platform is None else {PLATFORM: platform},
    )
    try:
        async with (
            asyncio.timeout(drain_s + BUSY_S),
            running_node(dependencies, Config()) as running,
        ):
            adapter = "http" if platform is None else PLATFORM
            yield Life(store, driver, running, gate, adapter=adapter)
    finally:
        driver.fault = ""
        await store.close()


async def next_life(folder: Path, turn: TurnId) -> str | None:
    """Return how the turn ends in a life without faults."""
    async with life(folder) as after:
        after.gate.opened.set()
        while not (found := await after.store.archive.turn(turn, principal=None)).outcome:
            await asyncio.sleep(0.01)
        return found.outcome


@pytest.mark.parametrize("fault", ["refuses", "hangs"])
async def test_a_store_that_takes_no_write_holds_up_no_end(tmp_path: Path, fault: str) -> None:
    async with life(tmp_path) as before:
        turn = await before.says("hello")
        await before.gate.reached.wait()
        before.driver.fault = fault
    assert before.node.parked == (0, 1)

    assert await next_life(tmp_path, turn) == "done"


@pytest.mark.parametrize("fault", ["refuses", "hangs"])
async def test_an_answer_that_cannot_be_stored_holds_up_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # A task that is cancelled while it settles a turn waits for that, but only within a bound.
    settling = asyncio.Event()

    async def settle(lease: TurnLease, settlement: Settlement) -> Settled:
        settling.set()
        if fault == "hangs":
            await asyncio.Event().wait()
        raise Transient("the disk is full")

    async with life(tmp_path) as before:
        monkeypatch.setattr(before.store.turns, "settle", settle)
        before.gate.opened.set()
        turn = await before.says("hello")
        await settling.wait()
    assert before.node.parked == (0, 1)

    assert await next_life(tmp_path, turn) == "done"


async def test_a_store_that_takes_writes_again_parks_the_turn(tmp_path: Path) -> None:
    # The node gives up nothing before its time is over.
    async with life(tmp_path) as before:
        await before.says("hello")
        await before.gate.reached.wait()
        before.driver.fault = "refuses"
        asyncio.get_running_loop().call_later(CLOSING_S / 4, setattr, before.driver, "fault", "")
    assert before.node.parked == (1, 0)


@pytest.mark.parametrize("fault", ["", "refuses", "hangs"])
async def test_a_second_signal_waits_for_nothing(tmp_path: Path, fault: str) -> None:
    loop = asyncio.get_running_loop()
    async with life(tmp_path, drain_s=300) as before:
        await before.says("hello")
        await before.gate.reached.wait()
        before.driver.fault = fault
        before.node.request_drain()
        loop.call_later(0.05, before.node.hurry)
        began_s = loop.time()
    assert loop.time() - began_s < BUSY_S
    assert before.node.parked == ((0, 1) if fault else (1, 0))


async def test_a_second_drain_waits_for_the_first(tmp_path: Path) -> None:
    async with life(tmp_path, drain_s=300) as before:
        turn = await before.says("hello")
        await before.gate.reached.wait()
        async with asyncio.TaskGroup() as tasks:
            drains = [tasks.create_task(before.node.drain()) for _ in range(2)]
            await asyncio.wait(drains, timeout=0.1)
            assert [drain.done() for drain in drains] == [False, False]
            before.gate.opened.set()
        assert (await before.store.archive.turn(turn, principal=None)).outcome == "done"


@pytest.mark.parametrize("is_restart", [False, True], ids=["drain", "restart"])
async def test_whoever_asks_for_the_end_has_told_of_it_at_once(
    tmp_path: Path, is_restart: bool
) -> None:
    # The loop may stand still before any other task of it has run.
    told: list[str] = []
    async with life(tmp_path) as before:
        before.node.when_drain_requested(lambda: told.append("at once"))
        before.node.request_drain(then_restart=is_restart)
        assert told == ["at once"]

        before.node.when_drain_requested(lambda: told.append("afterwards"))
        assert told == ["at once", "afterwards"]


@pytest.mark.parametrize("is_hurried", [False, True], ids=["one signal", "two signals"])
async def test_a_platform_that_hangs_holds_up_no_end(tmp_path: Path, is_hurried: bool) -> None:
    platform, loop = HangingPlatform(), asyncio.get_running_loop()
    async with life(tmp_path, drain_s=300 if is_hurried else 0, platform=platform) as before:
        before.gate.opened.set()
        await before.says("hello")
        await platform.gate.reached.wait()
        if is_hurried:
            loop.call_later(0.05, before.node.hurry)
        began_s = loop.time()
    assert loop.time() - began_s < BUSY_S
    assert platform.shown == []

    platform.gate.opened.set()
    async with life(tmp_path, drain_s=BUSY_S, platform=platform):
        pass
    assert [each.text for each in platform.shown] == ["echo: hello "]
