"""Checks how the store reports whether it takes messages now: its refusals are noticed, and so is
their end."""

import asyncio
import math
import threading
from functools import partial
from pathlib import Path

import pytest
from tests.untyped_rows import rows

from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Ambiguous, PerdureError, Transient
from perdure.store import condition as module
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.statement import MakeOp, NotRun, Op
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person
from perdure.testkit.simulator.system import VirtualClock

GONE = Transient("the database is gone")


async def name_of(store: Store) -> list[tuple[str]]:
    asked = partial(rows, "SELECT name FROM nodes WHERE id = $1", store.node)
    return [tuple(row) for row in await store._driver.read(asked)]


async def test_trouble_is_told_once_and_ends_with_a_write_as_large_as_a_message(
    store: Store, clock: VirtualClock
) -> None:
    told: list[tuple[str, float | None]] = []
    store.condition.when_changed(lambda trouble, lasted_s: told.append((trouble, lasted_s)))
    assert await store.condition.look() == ""

    store.condition.refused(GONE)
    store.condition.refused(Ambiguous("it went away during a commit"))
    assert await store.nodes.beat(), "a small write goes through, which ends nothing"
    assert store.condition.trouble == "it went away during a commit"
    clock.advance(2)
    assert await store.condition.look() == ""

    assert told == [(GONE.message, None), ("it went away during a commit", 2.0)]
    assert store.condition.refusals == 2
    assert await name_of(store) == [("test",)], "a look leaves nothing behind"


@pytest.mark.parametrize(
    "error",
    [NotRun("the store is closed"), Transient("no account yet", code="not_connected")],
    ids=["given up", "an operation's own"],
)
async def test_what_says_nothing_of_the_database_is_no_trouble(
    store: Store, error: PerdureError
) -> None:
    def refuse() -> Op[None]:
        yield from rows("SELECT 1")
        raise error

    for call in (store._driver.write, store._driver.read):
        with pytest.raises(Transient):
            await call(refuse)
    assert (store.condition.trouble, store.condition.refusals) == ("", 0)


async def test_a_refused_call_is_trouble_whoever_made_it(store: Store) -> None:
    def refuse() -> Op[None]:
        yield from rows("SELECT 1")
        raise GONE

    for call in (store._driver.write, store._driver.read):
        with pytest.raises(Transient):
            await call(refuse)
    assert (store.condition.trouble, store.condition.refusals) == (GONE.message, 2)


async def test_a_store_that_is_silent_is_in_trouble_and_asked_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store's one writer is blocked here. Its answer, when it comes, ends the trouble.
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    held, asked = threading.Event(), 0
    driver = SqliteDriver(tmp_path / "p.db", synchronous="OFF")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=tmp_path)
    await store.open()
    try:
        await store.nodes.join(name="here")
        write = driver.write

        def hold() -> Op[None]:
            held.wait(20)
            yield from rows("SELECT 1")

        async def counted(make: MakeOp[None]) -> None:
            nonlocal asked
            asked += 1
            await write(make)

        holding = asyncio.ensure_future(write(hold))
        monkeypatch.setattr(driver, "write", counted)
        store.condition.refused(GONE)
        first, second = await asyncio.gather(
            store.condition.look(within_s=0.2), store.condition.look(within_s=0.2)
        )
        assert "has not answered" in first
        assert first == second == await store.condition.look(within_s=0)
        held.set()
        await holding
        assert await store.condition.look(within_s=20) == ""
        assert asked == 1
    finally:
        held.set()
        await store.close()


async def test_a_look_in_trouble_writes_as_much_as_a_message(tmp_path: Path) -> None:
    # A full disk may still take a smaller write for a while, in space that the file of the log has
    # left.
    driver = SqliteDriver(tmp_path / "p.db", synchronous="OFF")
    store = Store(driver, clock=SystemClock(), entropy=SystemEntropy(), media=tmp_path)
    await store.open()
    try:
        await store.nodes.join(name="here")
        person = Person(store, (await store.principals.ensure("ada", role="member")).id)
        written = []
        for write in (person.says, store.condition.look, store.condition.look):
            before = (tmp_path / "p.db-wal").stat().st_size
            await write()
            written.append((tmp_path / "p.db-wal").stat().st_size - before)
            store.condition.refused(GONE)
            store.condition._looked_s = -math.inf
        message_bytes, first, again = written
        assert first >= message_bytes
        assert again >= message_bytes, "also where the pages of the first look are used again"
    finally:
        await store.close()


async def test_the_end_of_trouble_is_noticed_though_nobody_asks(
    store: Store, clock: VirtualClock
) -> None:
    over = asyncio.Event()
    store.condition.when_changed(lambda _, lasted_s: None if lasted_s is None else over.set())
    watching = asyncio.ensure_future(store.condition.watch())
    store.condition.refused(GONE)
    try:
        async with asyncio.timeout(20):
            await over.wait()
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert store.condition.trouble == ""
