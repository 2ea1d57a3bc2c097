"""Checks that a process asks whether it still holds its lease before it asks a model, runs a tool,
fetches a file or sends a part."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.databases import sqlite_on

from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.domain.address import Address
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Attachment
from perdure.domain.kinds import UpdateKind
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.turn.stream import AgentEvent
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, echo
from perdure.testkit.simulator.platform import ScriptedPlatform
from perdure.testkit.simulator.stores import admitted
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

LEASE_S = 15.0
AWAY_S = 60.0
FILE = Attachment(reference="file_1", name="words.bin", mime="application/octet-stream", size=5)


class Nodes:
    """Plays the nodes of a shared store. A heartbeat hangs until `beats` is set."""

    lease_s = LEASE_S

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.beats = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def beat(self) -> bool:
        await self.beats.wait()
        return bool(await self._inner.beat())


class Source:
    """Gives every file, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def fetch(self, _: str) -> AsyncGenerator[bytes, None]:
        self.asked += 1
        yield b"words"


class Process:
    """Runs a process whose clock the test moves. `on_call` is called while the model is asked."""

    def __init__(self, folder: Path, supervisor: Supervisor) -> None:
        self.clock = VirtualClock()
        self.source = Source()
        self.platform = ScriptedPlatform(clock=self.clock)
        self.ran: list[str] = []
        self.on_call: Callable[[], None] = lambda: None
        self.agent = ScriptedAgent(self._answer)
        driver = sqlite_on(folder / "perdure.db")
        self.store: Any = Store(driver, clock=self.clock, entropy=SeededEntropy(), media=folder)
        self.nodes = Nodes(self.store.nodes)
        self.store.nodes = self.nodes  # type: ignore[assignment]
        tools = CountingTools(self.ran)
        backend = Backend(name="main", kind="s", agent=self.agent, tools=tools)
        dependencies = NodeDependencies(
            store=self.store,
            roster=Roster({"main": backend}),
            clock=self.clock,
            entropy=SeededEntropy(7),
            limits=Limits(drain_timeout_s=0),
            adapters={"scripted": self.platform},
            sources={"scripted": self.source},
        )
        self.parts: NodeParts = compose_node(dependencies, supervisor.start, feed=Feed())

    def _answer(self, request: ModelRequest) -> Sequence[AgentEvent]:
        self.on_call()
        return echo(request)

    async def say(self, text: str, *files: Attachment) -> Accepted:
        update = Update(
            address=Address(adapter="scripted", account="bot", place="room"),
            external_id=text,
            kind=UpdateKind.MESSAGE,
            principal=await admitted(self.store, "ada"),
            text=text,
            attachments=files,
        )
        return await self.parts.door.accept(update)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    async with Supervisor() as supervisor:
        process = Process(tmp_path, supervisor)
        await process.store.open()
        try:
            yield process
        finally:
            process.nodes.beats.set()
            await process.parts.gateway.drain()
    await process.store.close()


async def goes_on(work: Callable[[], Awaitable[None]], *, within_s: float) -> bool:
    task = asyncio.ensure_future(work())
    done, _ = await asyncio.wait({task}, timeout=within_s)
    task.cancel()
    return bool(done)


async def test_no_model_is_asked_while_nobody_knows_whether_the_turn_is_ours(
    process: Process,
) -> None:
    await process.parts.gateway.begin(name="sim")
    process.clock.advance(AWAY_S)
    await process.say("hello")

    assert not await goes_on(process.parts.turns.finished, within_s=0.1)
    assert process.agent.requests == []

    process.nodes.beats.set()
    assert await goes_on(process.parts.turns.finished, within_s=5)
    assert len(process.agent.requests) == 1


async def test_no_tool_is_run_while_nobody_knows_whether_the_turn_is_ours(process: Process) -> None:
    # The process stands still while the model speaks.
    def stand_still() -> None:
        process.clock.advance(AWAY_S)
        process.on_call = lambda: None

    process.on_call = stand_still
    await process.parts.gateway.begin(name="sim")
    await process.say("tool save")

    assert not await goes_on(process.parts.turns.finished, within_s=0.1)
    assert (len(process.agent.requests), process.ran) == (1, [])

    process.nodes.beats.set()
    assert await goes_on(process.parts.turns.finished, within_s=5)
    assert len(process.ran) == 1


async def test_a_file_is_not_fetched_for_whoever_may_have_it_now(process: Process) -> None:
    # The process stands still after it has taken the file. It must take it once more before it
    # fetches.
    await process.store.nodes.join(name="sim")
    await process.say("read this", FILE)
    take = process.store.fetches.take

    async def take_and_stand_still(**given: Any) -> Any:
        taken = await take(**given)
        process.clock.advance(AWAY_S / 2)
        process.store.fetches.take = take
        return taken

    process.store.fetches.take = take_and_stand_still
    assert await process.parts.fetching.step()
    assert process.source.asked == 0

    assert await process.parts.fetching.step()
    assert process.source.asked == 1


async def test_a_part_is_not_sent_by_whoever_may_not_have_it_any_more(process: Process) -> None:
    # The process stands still after it has taken the part. It must take it once more before it
    # sends.
    await process.store.nodes.join(name="sim")
    await process.say("hello")
    assert await goes_on(process.parts.turns.finished, within_s=5)
    take = process.store.outbox.take

    async def take_and_stand_still(**given: Any) -> Any:
        taken = await take(**given)
        process.clock.advance(AWAY_S / 2)
        process.store.outbox.take = take
        return taken

    process.store.outbox.take = take_and_stand_still
    assert await process.parts.outbox.step()
    assert process.platform.visible == []

    assert await process.parts.outbox.step()
    assert len(process.platform.visible) == 1
