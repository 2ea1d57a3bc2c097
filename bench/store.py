"""Group commit: a hundred writers at once against one commit per row, on the same file."""

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.report import Findings, Gate
from perdure.app.system import SystemClock, SystemEntropy
from perdure.domain.events import AnyEvent, ToolStarted
from perdure.domain.ids import CallId
from perdure.ports.turns import Claimed
from perdure.store.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.stores import Person, claim_one

ROUNDS = 9
ROUND_S = 0.5
WRITERS = 100


async def measure(folder: Path) -> Findings:
    driver = SqliteDriver(folder / "perdure.db")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=folder / "media")
    await store.open()
    try:
        await store.nodes.join(name="bench")
        sessions = [await _claimed(store, number) for number in range(WRITERS)]
        await _rate(store, sessions)
        rates = [
            (await _rate(store, sessions[:1]), await _rate(store, sessions)) for _ in range(ROUNDS)
        ]
    finally:
        await store.close()
    gain = median(together / alone for alone, together in rates)
    alone, together = (median(column) for column in zip(*rates, strict=True))
    facts = [
        f"one commit per row: {alone:,.0f} appends/s",
        f"{WRITERS} writers, grouped: {together:,.0f} appends/s",
    ]
    name = f"group commit at {WRITERS} writers against one commit per row"
    gate = Gate(name=name, measured=gain, limit=15, is_floor=True)
    return Findings(part="store", facts=facts, gates=[gate])


async def _claimed(store: Store, number: int) -> Claimed:
    """A session of its own, with a turn that runs."""
    principal = await store.principals.ensure(f"writer {number}", role="member")
    await Person(store, principal.id).says()
    return await claim_one(store)


async def _rate(store: Store, sessions: list[Claimed]) -> float:
    """Journal appends per second, each writer waiting until its own is durable."""
    begun = time.perf_counter()
    counts = await asyncio.gather(*(_write(store, each, begun + ROUND_S) for each in sessions))
    return sum(counts) / (time.perf_counter() - begun)


async def _write(store: Store, claimed: Claimed, until: float) -> int:
    event: AnyEvent = ToolStarted(turn=claimed.lease.turn, call=CallId("call_bench"))
    count = 0
    while time.perf_counter() < until:
        await store.turns.append(claimed.lease, [event])
        count += 1
    return count
