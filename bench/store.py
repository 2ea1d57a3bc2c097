"""Compares group commit with one commit per row: a hundred writers at once, on the same file.

Judged on plain rows, where only the commit differs. A journal append is an update and an insert
with their indexes, so less of its time is spent on the commit; it is measured beside it.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench.report import Findings, Gate
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.ids import CallId
from perdure.domain.journal.events import AnyEvent, ToolStarted
from perdure.ports.turns.turns import Claimed
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.statement import run
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one

ROUNDS = 9
ROUND_S = 0.4
WRITERS = 100
TABLE = """
    CREATE TABLE bench (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL)"""
ROW = "INSERT INTO bench (name, body) VALUES ($1, $2)"
BODY = "x" * 480

Append = Callable[[], Awaitable[object]]


async def measure(folder: Path) -> Findings:
    driver = SqliteDriver(folder / "perdure.db")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=folder / "media")
    await store.open()
    try:
        await store.nodes.join(name="bench")
        await driver.write(partial(run, TABLE))
        names = map(str, itertools.count())
        rows: list[Append] = [
            lambda: driver.write(partial(run, ROW, next(names), BODY)) for _ in range(WRITERS)
        ]
        turns = [_journal_append(store, await _claimed(store, n)) for n in range(WRITERS)]
        found = [(await _gain(rows), await _gain(turns)) for _ in range(ROUNDS)]
    finally:
        await store.close()
    of_rows, of_turns = zip(*found, strict=True)
    name = f"group commit of rows at {WRITERS} writers against one commit per row"
    gain = median(together / alone for alone, together in of_rows)
    facts = [_described("rows", of_rows), _described("journal appends", of_turns)]
    gate = Gate(name=name, measured=gain, limit=15, is_floor=True)
    return Findings(part="store", facts=facts, gates=[gate])


async def _claimed(store: Store, number: int) -> Claimed:
    """Start a turn in a session of its own."""
    principal = await store.principals.ensure(f"writer {number}", role="member")
    await Person(store, principal.id).says()
    return await claim_one(store)


def _journal_append(store: Store, claimed: Claimed) -> Append:
    event: AnyEvent = ToolStarted(turn=claimed.lease.turn, call=CallId("call_bench"))
    return lambda: store.turns.append(claimed.lease, [event])


async def _gain(writers: list[Append]) -> tuple[float, float]:
    """Return the appends per second of one writer, whose appends each have their own commit, and of
    all."""
    return await _rate(writers[:1]), await _rate(writers)


async def _rate(writers: list[Append]) -> float:
    begun = time.perf_counter()
    counts = await asyncio.gather(*(_write(each, begun + ROUND_S) for each in writers))
    return sum(counts) / (time.perf_counter() - begun)


async def _write(append: Append, until: float) -> int:
    """Append until a time. Waits after each append until it is durable. Returns the count."""
    count = 0
    while time.perf_counter() < until:
        await append()
        count += 1
    return count


def _described(what: str, rates: tuple[tuple[float, float], ...]) -> str:
    alone, together = (median(column) for column in zip(*rates, strict=True))
    gain = median(together / alone for alone, together in rates)
    return f"{what}: {alone:,.0f}/s one by one, {together:,.0f}/s grouped, {gain:.1f} times"
