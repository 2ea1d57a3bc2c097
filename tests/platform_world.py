"""Runs a whole engine with a scripted platform, for tests about what people do there.

The test's own clock moves while a test waits.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.databases import sqlite_on

from perdure.app.config.platforms import Hosts
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.receiving import begin_receiving
from perdure.domain.ids import SessionId
from perdure.domain.inbound.arrivals import Arrival, Sender
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ModelRequest, TextBlock
from perdure.domain.turn.stream import AgentEvent, AgentText, Stopped
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.gateway import PlatformView
from perdure.ports.platform.settings import AdapterSettings
from perdure.ports.records.history import Page
from perdure.ports.turns.agent import Work
from perdure.store.store import Store
from perdure.testkit.contract.receiver import ADA, BOB, ScriptedReceiver
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, said
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

NAME = "scripted"
CLUB = "club"
TICK_S = 0.05
DEADLINE_S = 20
ROBOT = Sender(id="robot", name="Robot", is_bot=True)
ADA_ONLY = AdapterSettings(allow=(ADA.id,))
BOTH = AdapterSettings(allow=(ADA.id, BOB.id), busy="queue")


class Echo(ScriptedAgent):
    """Repeats what it hears, or says the `pieces` if there are any, while `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: tuple[str, ...] = ()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        self.requests.append(request)
        await self.go_on.wait()
        for piece in self.pieces or (f"heard: {said(request)}",):
            yield AgentText(piece)
        yield Stopped(reason=StopReason.STOP)


class Timed(ScriptedReceiver):
    """Notes when it was connected to, and which of its messages were read. Reading a text that is
    in `troubles` raises the errors listed there."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.connected_at: list[float] = []
        self.was_read: list[str] = []
        self.troubles: dict[str, list[Exception]] = {}

    def read(self, arrival: Arrival) -> None:
        self.was_read.append(arrival.external_id)
        if troubles := self.troubles.get(arrival.text):
            raise troubles.pop(0)

    async def connect(self) -> str:
        self.connected_at.append(self._clock.monotonic_s())
        return await super().connect()


class World:
    """Holds what outlives every process: the platform, the disk, and who may speak."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.platform = Timed(self.clock)
        self.entropy = SeededEntropy()
        self.agent = Echo()
        self.limits = Limits(drain_timeout_s=5)
        self.agents: tuple[str, ...] = ("main",)
        self.personas: tuple[str, ...] = ()
        self.hosts = Hosts({})
        self.serve(ADA_ONLY)

    def serve(self, settings: AdapterSettings, *, collects: bool = False) -> None:
        """Serve people by these settings from now on. Only with `collects` are quick messages of
        one person one message."""
        terms = settings if collects else msgspec.structs.replace(settings, collect_ms=0)
        self.hosts.replace({NAME: terms})

    @asynccontextmanager
    async def life(self) -> AsyncIterator["Life"]:
        """Run one process, from its start to its orderly end."""
        driver = sqlite_on(self.folder / "perdure.db")
        store = Store(driver, clock=self.clock, entropy=self.entropy, media=self.folder)
        await store.open()
        try:
            async with Supervisor() as supervisor:
                dependencies = self._around(store)
                parts = compose_node(dependencies, supervisor.start, feed=Feed())
                await parts.gateway.begin(name="sim")
                begin_receiving(dependencies, parts)
                try:
                    yield Life(self, store, parts)
                finally:
                    self.agent.go_on.set()
                    await self._flowing(parts.gateway.drain())
                    await self._flowing(parts.receivers.stop())
        finally:
            await store.close()

    def _around(self, store: Store) -> NodeDependencies:
        backends = {
            name: Backend(name=name, kind="s", agent=self.agent, tools=CountingTools([]))
            for name in self.agents
        }
        return NodeDependencies(
            store=store,
            roster=Roster(backends),
            clock=self.clock,
            entropy=self.entropy,
            limits=self.limits,
            personas={name: f"You are a {name}." for name in self.personas},
            platforms={NAME: self.platform},
            terms=self.hosts.terms,
        )

    async def _flowing(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        await self.until(task.done, "the end")
        await task

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        async def look() -> bool:
            return is_so()

        await self.until_seen(look, what)

    async def until_seen(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not await look():
                    self.clock.advance(TICK_S)
                    await asyncio.sleep(0.001)
        except TimeoutError:
            pytest.fail(f"waited {DEADLINE_S} s for {what}; shown: {self.shown()}")

    def shown(self, place: str = "") -> list[str]:
        return [each.text for each in self.platform.visible if place in ("", each.place)]

    async def is_shown(self, text: str, place: str = "") -> None:
        await self.until(lambda: text in self.shown(place), f"{text!r} to be shown")

    async def is_taken(self) -> None:
        await self.until(lambda: not self.platform.waiting, "everything to be acknowledged")


class Life:
    def __init__(self, world: World, store: Store, parts: NodeParts) -> None:
        self.world = world
        self.store = store
        self.parts = parts

    def view(self) -> PlatformView:
        (view,) = self.parts.receivers.views()
        return view

    async def sessions(self) -> list[SessionId]:
        page = Page(with_unlisted=True)
        return [each.id for each in await self.store.archive.sessions(principal=None, page=page)]

    async def turns(self) -> int:
        records = [await self.store.diagnostics.record(each) for each in await self.sessions()]
        return sum(len(record.turns) for record in records)

    async def refusal(self, external_id: str) -> str:
        """Return the recorded state of a message that was refused, or "" if none is recorded."""
        answer = await self.store.archive.answer(external_id, adapter=NAME)
        return answer.state if answer is not None else ""


def heard_by(agent: ScriptedAgent) -> list[str]:
    """Return the last words of every request."""
    return [said(request) for request in agent.requests]


def told(request: ModelRequest) -> list[str]:
    """Return all the words of a request."""
    return [b.text for m in request.messages for b in m.blocks if isinstance(b, TextBlock)]
