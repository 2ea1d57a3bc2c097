"""Compares two ways of group commit: a batch as a whole, or every operation in a savepoint.

The driver runs the waiting operations as if none could fail. When one fails, it rolls the batch
back and runs all of it again, each operation in a savepoint of its own. The other way is to begin
with the savepoints. Both ways are measured on the same appends to a journal: with no failure, with
one failure in ten, and with one in a hundred, which is about one per batch. The failing operation
is that of a runner whose lease is stale, as in practice. Its place in the batch is random.

The bench measures the processor time of the writer's thread for a batch, including the commit: only
this differs between the two ways, and no other work on the machine is part of it.
"""

import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from bench.report import Findings, Gate
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Fenced
from perdure.domain.ids import CallId
from perdure.domain.journal.events import AnyEvent, ToolStarted
from perdure.ports.turns.turns import Claimed
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one

ROUNDS = 15
BATCHES = 20
WRITERS = 100
STALE_EVERY = (10, 100)


class Timed(SqliteDriver):
    """Measures the processor time that its thread spends on batches."""

    cpu_s = 0.0
    batches = 0

    def _commit(self, batch: list[Any]) -> None:
        before_s = time.thread_time()
        super()._commit(batch)
        self.cpu_s += time.thread_time() - before_s
        self.batches += 1


class SavepointsAlways(Timed):
    """Begins every batch with savepoints."""

    def _run_all(self, batch: list[Any]) -> bool:
        return False


class Writers(NamedTuple):
    """Holds one driver, its store, and a running turn for each writer."""

    driver: Timed
    store: Store
    turns: list[Claimed]


async def measure(folder: Path) -> Findings:
    async with AsyncExitStack() as stores:
        whole = await _writers(stores, Timed(folder / "whole.db"))
        apart = await _writers(stores, SavepointsAlways(folder / "apart.db"))
        calm = [(await _cost_us(whole), await _cost_us(apart)) for _ in range(ROUNDS)]
        rough = {every: await _rough(whole, apart, every) for every in STALE_EVERY}
        operations = 2 * ROUNDS * (1 + len(rough)) * BATCHES * WRITERS
        share = operations / (whole.driver.batches + apart.driver.batches)
    gate = Gate(
        name="CPU of a batch as a whole against one with savepoints, nothing fails",
        measured=median(one / other for one, other in calm),
        limit=1,
    )
    facts = [
        f"{WRITERS} writers at once, {share:.0f} operations in a batch",
        _told("nothing fails", calm),
        *(_told(f"one in {every} fails", costs) for every, costs in rough.items()),
    ]
    return Findings(part="batches", facts=facts, gates=[gate])


async def _rough(whole: Writers, apart: Writers, every: int) -> list[tuple[float, float]]:
    """Return what both ways cost if one operation in `every` fails."""
    chance = random.Random(1)
    costs = []
    for _ in range(ROUNDS):
        stale = set(chance.sample(range(WRITERS), WRITERS // every))
        costs.append(
            (await _cost_us(_with_stale(whole, stale)), await _cost_us(_with_stale(apart, stale)))
        )
    return costs


async def _writers(stores: AsyncExitStack, driver: Timed) -> Writers:
    """Return a store with one running turn for each writer."""
    media = driver._path.with_suffix(".media")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=media)
    await store.open()
    stores.push_async_callback(store.close)
    await store.nodes.join(name="bench")
    turns = [await _claimed(store, number) for number in range(WRITERS)]
    driver.batches = 0
    return Writers(driver, store, turns)


async def _claimed(store: Store, number: int) -> Claimed:
    principal = await store.principals.ensure(f"writer {number}", role="member")
    await Person(store, principal.id).says()
    return await claim_one(store)


def _with_stale(writers: Writers, stale: set[int]) -> Writers:
    turns = [
        _stale(claimed) if number in stale else claimed
        for number, claimed in enumerate(writers.turns)
    ]
    return writers._replace(turns=turns)


def _stale(claimed: Claimed) -> Claimed:
    lease = msgspec.structs.replace(claimed.lease, epoch=claimed.lease.epoch + 1)
    return msgspec.structs.replace(claimed, lease=lease)


async def _cost_us(writers: Writers) -> float:
    """Return the processor time of the thread per append, in microseconds."""
    before_s = writers.driver.cpu_s
    for _ in range(BATCHES):
        await asyncio.gather(*(_append(writers.store, claimed) for claimed in writers.turns))
    spent_s = writers.driver.cpu_s - before_s
    return spent_s * 1e6 / (BATCHES * len(writers.turns))


async def _append(store: Store, claimed: Claimed) -> None:
    event: AnyEvent = ToolStarted(turn=claimed.lease.turn, call=CallId("call_bench"))
    try:
        await store.turns.append(claimed.lease, [event])
    except Fenced:
        return


def _told(what: str, costs: list[tuple[float, float]]) -> str:
    whole, apart = (median(column) for column in zip(*costs, strict=True))
    ratio = median(one / other for one, other in costs)
    return (
        f"{what}: {whole:.1f} µs per append as a whole, {apart:.1f} µs with savepoints, "
        f"{ratio:.2f} times"
    )
