"""Measures what tools cost: how much a built-in tool call adds to a turn, and what turns cost that
wait for an approval.

Both kinds of turn are answered by the demo agent of one gateway, one after the other, so that the
state of the machine is the same for both. Waiting turns are counted in a node of this process, by
the memory of its objects: the resident memory of a process also changes with what it keeps in
reserve, such as pages of the database.
"""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from bench.load import Client, client
from bench.processes import Program, perdure
from bench.report import Findings, Gate
from perdure.app.wiring.assembly import NodeParts, compose_node
from perdure.app.wiring.dependencies import NodeDependencies
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.address import HTTP, Address
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.updates import Update
from perdure.domain.kinds import UpdateKind
from perdure.domain.prompt.prompt import ModelRequest
from perdure.domain.tools.traits import Permission
from perdure.domain.turn.stream import AgentEvent
from perdure.engine.foundation.supervisor import Supervisor
from perdure.engine.models.roster import Backend, Roster
from perdure.engine.watching.feed import Feed
from perdure.ports.turns.agent import Work
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.simulator.agent import CountingTools, ScriptedAgent, echo

ROUNDS = 300
WARM = 30
WAITING = 1_000
SETTINGS = """
[agents.main]
kind = "demo"
tools = ["memory"]

[sessions]
titles = false
"""
LOOKS = 'demo tool memory {"action": "list"}'
PLAIN = "demo words=8"


async def measure(folder: Path) -> Findings:
    async with perdure(folder / "home", settings=SETTINGS) as ours, client() as asking:
        added_ms, plain_ms = await _added_ms(asking, ours)
    grown_mb, running = await _waiting(folder)
    gates = [
        Gate(name="added by a built-in tool call", measured=added_ms, limit=3, unit="ms"),
        Gate(name=f"{WAITING:,} waiting approvals", measured=grown_mb, limit=1, unit="MB"),
        Gate(name="runners of waiting turns", measured=running, limit=0, unit="runners"),
    ]
    facts = [f"a turn without tools took {plain_ms:.2f} ms"]
    return Findings(part="tools", facts=facts, gates=gates)


async def _added_ms(asking: Client, ours: Program) -> tuple[float, float]:
    """Return how much longer a turn takes with a tool call than without one, and how long one takes
    without."""
    added, plain = [], []
    for number in range(WARM + ROUNDS):
        without_s = await asking.turn(ours, "bench", PLAIN)
        with_call_s = await asking.turn(ours, "bench", LOOKS)
        if number >= WARM:
            added.append((with_call_s - without_s) * 1e3)
            plain.append(without_s * 1e3)
    return median(added), median(plain)


class _Forgetful(ScriptedAgent):
    """Answers as the scripted agent does, and keeps nothing of it."""

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        for event in echo(request):
            yield event


async def _waiting(folder: Path) -> tuple[float, int]:
    """Return the memory of turns that wait, and how many runners are at work while they do."""
    async with _node(folder) as (store, parts):
        person = (await store.principals.ensure("person", role="operator")).id
        await _say(store, parts, person, "before", count=WAITING // 5)
        tracemalloc.start()
        before = _held_mb()
        await _say(store, parts, person, "waiting", count=WAITING)
        grown = _held_mb() - before
        tracemalloc.stop()
        return grown, parts.turns.running


@asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[tuple[Store, NodeParts]]:
    """Yield a node whose agent calls a tool that must be approved."""
    clock, entropy = SystemClock(), SystemEntropy()
    driver = SqliteDriver(folder / "waiting.db")
    store = Store(driver, clock=clock, entropy=entropy, media=folder)
    tools = CountingTools([], permission=Permission.ACT)
    backend = Backend(name="main", kind="scripted", agent=_Forgetful(), tools=tools)
    dependencies = NodeDependencies(
        store=store, roster=Roster({"main": backend}), clock=clock, entropy=entropy
    )
    await store.open()
    async with Supervisor() as supervisor:
        parts = compose_node(dependencies, supervisor.start, feed=Feed())
        await parts.gateway.begin(name="bench")
        yield store, parts
        await parts.gateway.drain()
    await store.close()


async def _say(
    store: Store, parts: NodeParts, person: PrincipalId, place: str, *, count: int
) -> None:
    """Begin so many turns, each in a conversation of its own, and let them come to their
    question."""
    known = (await store.diagnostics.counts()).waiting
    for number in range(count):
        address = Address(adapter=HTTP, account=person, place=f"{place}-{number}")
        update = Update(
            address=address,
            external_id=f"{place}-{number}",
            kind=UpdateKind.MESSAGE,
            principal=person,
            text="tool pay",
        )
        await parts.door.accept(update)
    while (await store.diagnostics.counts()).waiting < known + count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def _held_mb() -> float:
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    return held / 1e6
