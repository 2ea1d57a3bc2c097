"""Checks what a turn writes to SQLite's log: how often it commits, and how many pages it
changes."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from bench.wal import Commit, Tail

from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import Outcome
from perdure.domain.prompt.prefix import Basis, RequestOrigin, kept_text, text_digest
from perdure.domain.prompt.prefix import written_basis as written_basis
from perdure.ports.turns.turns import Settlement
from perdure.store.drivers import sqlite_pages
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.migrations import Migration, shipped
from perdure.store.store import Store
from perdure.testkit.simulator.stores import message, piece, reply_id
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

PLACES = 40
QUESTION = "What did we say about the garden, the dog and the broken gate last week? "
INSTRUCTIONS = "Speak of the garden. " * 40
ASKED = RequestOrigin(
    prefix=written_basis(Basis(agent="main", instructions=text_digest(INSTRUCTIONS), upto=2)),
    texts=kept_text(INSTRUCTIONS),
)
ANSWER = "That the dog has broken the gate, and that nobody has mended it so far. " * 6


@pytest.fixture
async def store(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Store]:
    driver = SqliteDriver(tmp_path / "p.db", synchronous="OFF")
    store = Store(driver, clock=clock, entropy=SeededEntropy(), media=tmp_path / "media")
    await store.open()
    await store.nodes.join(name="here")
    try:
        yield store
    finally:
        await store.close()


async def converse(store: Store, *, rounds: int, first: int = 0) -> None:
    """Run this number of whole turns in each of many conversations, as a node does."""
    ada = (await store.principals.ensure("ada", role="member")).id
    for number in range(first * PLACES, (first + rounds) * PLACES):
        place = f"place-{number * 7 % PLACES}"
        update = message(ada, QUESTION, external_id=f"{number * 7919 % 10_007}", place=place)
        claimed = (await store.inbox.accept_and_start(update, queue_max=9)).claimed
        assert claimed is not None
        settlement = Settlement(
            outcome=Outcome.DONE,
            reason="stop",
            agent="main",
            message=reply_id(claimed.lease),
            text=ANSWER,
            usage=Usage(model_calls=1, input_tokens=100, output_tokens=90),
            asked=ASKED,
        )
        await store.turns.settle(claimed.lease, settlement)


async def written(store: Store, database: Path, *, rounds: int) -> list[Commit]:
    await converse(store, rounds=1)
    tail = Tail(database)
    tail.news()
    await converse(store, rounds=rounds, first=1)
    commits = tail.news()
    assert commits is not None
    return commits


async def test_a_turn_commits_twice_and_touches_few_pages(store: Store, tmp_path: Path) -> None:
    frame_bytes = sqlite_pages.PAGE_BYTES + 24
    commits = await written(store, tmp_path / "p.db", rounds=5)
    turns = 5 * PLACES
    pages = Counter(owner for commit in commits for owner in commit.owners)

    assert len(commits) == 2 * turns
    assert sum(pages.values()) * frame_bytes / turns < 52_000, pages.most_common()
    assert pages["journal"] * frame_bytes / turns < 9_000
    assert pages["texts"] == 0, "a text that is stored already must cost nothing"
    for index in ("conversations_of", "conversations_recent", "sessions_recent"):
        assert pages[index] == 0, "a message must not move its conversation in a list's index"


async def test_text_and_heartbeat_share_a_commit(
    store: Store, tmp_path: Path, clock: VirtualClock
) -> None:
    ada = (await store.principals.ensure("ada", role="member")).id
    claimed = (await store.inbox.accept_and_start(message(ada), queue_max=9)).claimed
    assert claimed is not None
    tail = Tail(tmp_path / "p.db")
    tail.news()
    clock.advance(1)

    await store.turns.flush([piece(claimed.lease, "So ")], beats=True)

    assert [sorted(commit.owners) for commit in tail.news() or ()] == [["nodes", "partials"]]


def page_bytes(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        ((found,),) = connection.execute("PRAGMA page_size")
        assert isinstance(found, int)
        return found
    finally:
        connection.close()


async def with_large_pages(path: Path, folder: Path, *, size: int = 4096) -> None:
    """Make a database with large pages, as older versions did, with a conversation in it."""
    connection = apsw.Connection(str(path))
    connection.execute(f"PRAGMA page_size = {size}; PRAGMA journal_mode = WAL; VACUUM").fetchall()
    connection.close()
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_pages, "REWRITTEN_BYTES_MAX", 0)
        await _inhabit(path, folder)
    assert page_bytes(path) == size


async def _inhabit(path: Path, folder: Path) -> None:
    driver = SqliteDriver(path, synchronous="OFF")
    store = Store(driver, clock=VirtualClock(), entropy=SeededEntropy(), media=folder / "media")
    await store.open()
    await store.nodes.join(name="here")
    await converse(store, rounds=1)
    await store.close()


async def _found(path: Path, folder: Path) -> int:
    driver = SqliteDriver(path, synchronous="OFF")
    store = Store(driver, clock=VirtualClock(), entropy=SeededEntropy(1), media=folder / "media")
    await store.open()
    try:
        assert await store.diagnostics.integrity() == []
        return len(await store.archive.search("garden", principal=None, before=None, limit=99))
    finally:
        await store.close()


@pytest.mark.parametrize("size", [2048, 4096])
async def test_a_small_database_gets_smaller_pages_and_keeps_all(tmp_path: Path, size: int) -> None:
    path = tmp_path / "old.db"
    await with_large_pages(path, tmp_path, size=size)

    assert await _found(path, tmp_path) == PLACES

    assert page_bytes(path) == sqlite_pages.PAGE_BYTES
    assert await _found(path, tmp_path) == PLACES


async def test_the_copy_before_a_migration_keeps_its_pages(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await with_large_pages(path, tmp_path)
    extra = Migration(9000, "extra", "CREATE TABLE extra (id BIGINT);")

    driver = SqliteDriver(path, shipped=[*shipped("sqlite"), extra], synchronous="OFF")
    await driver.open(now_ms=2)
    await driver.close()

    assert page_bytes(tmp_path / "old.db.before-9000") == 4096
    assert page_bytes(path) == sqlite_pages.PAGE_BYTES


async def test_a_large_database_is_not_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "old.db"
    await with_large_pages(path, tmp_path)
    monkeypatch.setattr(sqlite_pages, "REWRITTEN_BYTES_MAX", 100_000)

    assert await _found(path, tmp_path) == PLACES

    assert page_bytes(path) == 4096


async def test_a_database_that_somebody_reads_opens_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await with_large_pages(path, tmp_path)
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM turns").fetchall()
    try:
        assert await _found(path, tmp_path) == PLACES
    finally:
        reader.close()

    assert page_bytes(path) == 4096
