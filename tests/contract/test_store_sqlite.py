"""Checks what only the SQLite driver promises: one owner, one writer, group commit, and answers by
index."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.untyped_rows import row, rows

from perdure.app.operate.verify import report
from perdure.domain.errors import Conflict, PerdureError, Rejected, Transient
from perdure.domain.ids import NodeId
from perdure.domain.outcomes import Interruption
from perdure.ports.records.history import Shelf
from perdure.store.drivers import sqlite_log
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.drivers.sqlite_dialect import SqliteDialect, in_sqlite
from perdure.store.mint import Mint
from perdure.store.operations import attaching, journal, others, pushes, turn_locks
from perdure.store.operations.accepting import accept
from perdure.store.operations.delivery import doubts, outbox, pacing, parked, undelivered
from perdure.store.operations.files import fetching
from perdure.store.operations.reading import (
    answers,
    auditing,
    chains,
    explaining,
    history,
    search,
)
from perdure.store.operations.sessions import destinations, moves, places
from perdure.store.operations.turns import (
    claiming,
    endings,
    recovery,
    session_queue,
    suspension,
)
from perdure.store.statement import Op, Rows, run
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, message
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    driver = SqliteDriver(tmp_path / "p.db", synchronous="OFF")
    await driver.open(now_ms=1)
    try:
        yield driver
    finally:
        await driver.close()


@pytest.fixture
def sqlite_store(driver: SqliteDriver, tmp_path: Path) -> Store:
    return Store(driver, clock=VirtualClock(), entropy=SeededEntropy(), media=tmp_path / "media")


def insert(name: str) -> Op[None]:
    yield from run(
        "INSERT INTO principals (id, name, role, created_at) VALUES ($1, $2, 'member', 1)",
        name,
        name,
    )


def refused(name: str) -> Op[None]:
    yield from insert(name)
    raise Rejected("no")


def count() -> Op[int]:
    found = yield from row("SELECT count(*) FROM principals")
    assert found is not None
    number: int = found[0]
    return number


OPEN = """
import asyncio, sys
from pathlib import Path
from perdure.store.drivers.sqlite import SqliteDriver
asyncio.run(SqliteDriver(Path(sys.argv[1])).open(now_ms=1))
"""


async def test_a_second_process_is_refused_in_words(driver: SqliteDriver, tmp_path: Path) -> None:
    second = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OPEN, str(tmp_path / "p.db")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert second.returncode != 0
    assert "another Perdure (process " in second.stderr
    assert "stop it first" in second.stderr
    await driver.write(lambda: insert("still-writing"))


async def test_a_second_driver_in_this_process_is_refused_too(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    with pytest.raises(Rejected) as refused:
        await SqliteDriver(tmp_path / "p.db").open(now_ms=1)

    assert refused.value.code == "in_use"


async def test_the_file_is_free_again_after_a_close(driver: SqliteDriver, tmp_path: Path) -> None:
    await driver.close()

    again = SqliteDriver(tmp_path / "p.db")
    await again.open(now_ms=1)
    await again.close()


async def test_a_refused_start_leaves_the_file_free(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(PerdureError):
        await SqliteDriver(path).open(now_ms=1)
    path.unlink()

    again = SqliteDriver(path)
    await again.open(now_ms=1)
    await again.close()


async def test_a_home_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(PerdureError):
        await SqliteDriver(tmp_path / "missing" / "p.db").open(now_ms=1)


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("busy_timeout", 5000),
        ("journal_size_limit", 67_108_864),
    ],
)
async def test_the_writer_works_under_its_settings(
    tmp_path: Path, pragma: str, value: object
) -> None:
    driver = SqliteDriver(tmp_path / "p.db")
    await driver.open(now_ms=1)
    try:
        assert await driver.write(lambda: rows(f"PRAGMA {pragma}")) == [(value,)]
    finally:
        await driver.close()


async def test_a_failed_operation_does_not_fail_its_neighbours(driver: SqliteDriver) -> None:
    results = await asyncio.gather(
        *(driver.write(partial(insert if n % 3 else refused, f"p{n}")) for n in range(60)),
        return_exceptions=True,
    )

    assert sum(isinstance(result, Rejected) for result in results) == 20
    assert await driver.read(count) == 40


class SecondThoughts:
    """Undoes the whole transaction the first few times it runs, as a full disk does."""

    def __init__(self, name: str, *, times: int) -> None:
        self._name = name
        self._left = times

    def __call__(self) -> Op[str]:
        self._left -= 1
        if self._left >= 0:
            yield from run(
                "INSERT OR ROLLBACK INTO principals (id, name, role, created_at) "
                "VALUES ('there', 'there', 'member', 1)"
            )
        yield from insert(self._name)
        return self._name


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_what_was_committed_in_the_end_is_no_error(driver: SqliteDriver, times: int) -> None:
    # A batch is run up to three times: as a whole, with savepoints, and one by one. Each operation
    # gets the result of its last run.
    await driver.write(partial(insert, "there"))

    first, second, third = await asyncio.gather(
        driver.write(SecondThoughts("first", times=0)),
        driver.write(SecondThoughts("second", times=times)),
        driver.write(SecondThoughts("third", times=0)),
        return_exceptions=True,
    )

    is_refused = times > 2
    assert (first, third) == ("first", "third")
    assert isinstance(second, Conflict) if is_refused else second == "second"
    assert await driver.read(count) == 1 + 3 - is_refused


class Unforeseen(Exception):
    """Stands for an error that no list of expected errors names."""


@pytest.mark.parametrize("error", [KeyError, TypeError, OverflowError, Unforeseen])
async def test_the_writer_outlives_a_bug_in_an_operation(
    driver: SqliteDriver, error: type[Exception]
) -> None:
    def broken() -> Op[None]:
        yield from insert("lost")
        raise error("a bug")

    async with asyncio.timeout(2):
        results = await asyncio.gather(
            driver.write(lambda: insert("before")),
            driver.write(broken),
            driver.write(lambda: insert("after")),
            return_exceptions=True,
        )
        assert isinstance(results[1], error)
        await driver.write(lambda: insert("later"))

    assert await driver.read(count) == 3


async def test_a_write_that_is_no_longer_awaited_still_happens(driver: SqliteDriver) -> None:
    write = asyncio.create_task(driver.write(lambda: insert("kept")))
    await asyncio.sleep(0)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write

    await driver.write(lambda: insert("second"))

    assert await driver.read(count) == 2


async def test_a_write_during_the_close_is_answered(driver: SqliteDriver) -> None:
    # The write must be answered, whichever comes first: otherwise its caller would wait for ever.
    closing = asyncio.create_task(driver.close())
    await asyncio.sleep(0)

    async with asyncio.timeout(2):
        with pytest.raises(Transient, match="closed"):
            await driver.write(lambda: insert("late"))
        await closing


async def test_what_was_queued_before_the_close_is_written(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    writes = [asyncio.create_task(driver.write(partial(insert, f"p{n}"))) for n in range(50)]
    await asyncio.sleep(0)
    await driver.close()

    await asyncio.gather(*writes)
    again = SqliteDriver(tmp_path / "p.db")
    await again.open(now_ms=1)
    try:
        assert await again.read(count) == 50
    finally:
        await again.close()


async def test_a_read_sees_every_write_that_returned(driver: SqliteDriver) -> None:
    for n in range(50):
        await driver.write(partial(insert, f"p{n}"))
        assert await driver.read(count) == n + 1


async def test_a_reader_cannot_write(driver: SqliteDriver) -> None:
    with pytest.raises(PerdureError):
        await driver.read(lambda: insert("no"))

    assert await driver.read(count) == 0


HOT = {
    "claim's ready sessions": claiming.ready_sql(0),
    "ready sessions but some people's": claiming.ready_sql(2),
    "locking sessions": claiming.take_sql(2),
    "due files": fetching.due_sql(0),
    "due files but some people's": fetching.due_sql(2),
    "a file that waits": attaching._PUT,
    "until when the ready ones wait": claiming._NEXT_READY,
    "the next queued turn": claiming._NEXT,
    "the turn to stop": turn_locks._TURN,
    "the partials of a turn": endings._PARTIALS,
    "orphans": recovery._ORPHANS.format(now_ms=SqliteDialect.now_ms),
    "our own turns": recovery._OWNED,
    "interrupted turns": recovery._INTERRUPTED,
    "suspects": recovery._WAITING_SUSPECTS,
    "suspects at work": recovery._SUSPECTS_AT_WORK,
    "suspects that run": recovery._SUSPECTS_RUNNING,
    "attempts that begin in the future": recovery._BEGAN_NOW,
    "whom to ask": recovery._TO_ASK,
    "what is too old": recovery._TOO_OLD,
    "turns that make way": recovery._OVERTAKEN,
    "what was said since": recovery._SINCE,
    "conversations to tell": recovery._RUNNING_HERE,
    "turns waiting behind": suspension._WAITING,
    "a known update": accept._KNOWN,
    "the conversation of an address": places._FIND_CONVERSATION,
    "the queue's length": accept._OPEN_TURNS,
    "making a session ready": session_queue._MAKE_READY,
    "open turns": history._OPEN_TURNS,
    "the running text": history._RUNNING_TEXT,
    "what was opened": history._OPENED,
    "the chain": chains._CHAIN,
    "the sizes of a chain": chains._CHAIN_SIZES,
    "the turn of a message": history._TURN_OF_MESSAGE,
    "a conversation by name": history._BY_NAME,
    "the journal of a turn": journal._OF_TURN,
    "the sizes of a journal since": journal._SIZES,
    "a stretch of a journal": journal._BETWEEN,
    "an entry of a journal": journal._ONE,
    "the size of a turn": journal._SIZE_OF_TURN,
    "a move to another session": moves._ROTATED,
    "the moves since": moves._SINCE,
    "due parts": outbox._DUE,
    "stranded parts": doubts._STRANDED.format(now_ms=SqliteDialect.now_ms),
    "expired parts": outbox._EXPIRE,
    "the place in line": outbox._LINE,
    "the next due part": outbox._NEXT_DUE,
    "the next part in doubt": outbox._NEXT_DOUBT,
    "an open part in line": outbox._OPEN,
    "the owner of a receipt": outbox._OWNER,
    "receipts of others": doubts._RECEIPTS,
    "parts of the same words": doubts._TWIN,
    "parts tried lately": pacing._TRIED,
    "bubbles that grow": pacing._GROWING,
    "when operators were told": undelivered._OPERATORS_TOLD,
    "whether a person was told": undelivered._IS_PERSON_TOLD,
    "another way to a person": undelivered._ELSEWHERE,
    "listed conversations": history._LISTED,
    "listed sessions": history._SESSIONS,
    "a person's conversation": others._NAMED,
    "browsers to tell of an answer": pushes._SETTLED,
    "browsers to tell of a question": pushes._ASKED,
    "what browsers are to be told": pushes._DUE.format(now_ms=SqliteDialect.now_ms),
    "when browsers are to be told": pushes._NEXT,
    "where a message was found": search._PLACE,
    "everybody's places": destinations.EVERYBODYS,
    "one's own places": destinations.ONES_OWN,
    "a conversation by its id": history._BY_ID,
    "a turn": history._TURN,
    "parked parts": parked.PAGE,
    "the answer to an update": answers.ASKED,
    "sessions in a row": auditing._BATCH,
    "new sessions": auditing._BATCH_NEW,
    "sessions to judge": auditing._SESSIONS,
    "their turns": auditing._TURNS,
    "their events": auditing._EVENTS,
    "their parts": auditing._PARTS,
    "their updates": auditing._UPDATES,
    "their summaries under way": auditing._UNDER_WAY,
    "all updates": auditing._ALL_UPDATES,
    "files that they wait for": auditing._FETCHES,
}


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_statement_scans_no_table(driver: SqliteDriver, name: str) -> None:
    sql = in_sqlite(HOT[name])

    plan = await driver.write(
        lambda: rows("EXPLAIN QUERY PLAN " + sql, *[None] * placeholders(sql))
    )

    steps = [detail for *_, detail in plan]
    scans = [step for step in steps if step.startswith("SCAN") and "USING" not in step]
    assert [step for step in scans if step != "SCAN chain"] == [], steps


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (history._LISTED, "conversations_shown"),
        (history._LISTS[Shelf.PINNED], "conversations_pinned"),
        (history._LISTS[Shelf.ARCHIVED], "conversations_archived"),
        (history._SESSIONS, "sessions_recent"),
        (destinations.EVERYBODYS, "conversations_recent"),
        (destinations.ONES_OWN, "conversations_of"),
    ],
)
async def test_a_list_is_read_from_its_newest_end(
    driver: SqliteDriver, sql: str, index: str
) -> None:
    # Only the span of time that the page comes from may be sorted.
    plan = await driver.write(
        lambda: rows("EXPLAIN QUERY PLAN " + in_sqlite(sql), *[None] * placeholders(sql))
    )

    steps = [detail for *_, detail in plan]
    assert any(f"USING INDEX {index} " in step and "active_span<?" in step for step in steps), steps
    assert "USE TEMP B-TREE FOR LAST 2 TERMS OF ORDER BY" in steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


def placeholders(sql: str) -> int:
    return len(set(re.findall(r"\$\d+", sql)))


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (claiming.ready_sql(0), "sessions_in_line"),
        (claiming.ready_sql(1), "sessions_in_line"),
        (fetching.due_sql(0), "fetches_in_line"),
        (fetching.due_sql(1), "fetches_in_line"),
    ],
)
async def test_a_line_is_read_from_its_beginning(
    driver: SqliteDriver, sql: str, index: str
) -> None:
    # However many rows wait, only those that may come next are read.
    plan = await driver.write(
        lambda: rows("EXPLAIN QUERY PLAN " + in_sqlite(sql), *[None] * placeholders(sql))
    )

    steps = [detail for *_, detail in plan]
    assert any(f"INDEX {index}" in step for step in steps), steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps


async def test_explaining_an_id_scans_no_table(driver: SqliteDriver) -> None:
    # `explain` takes any id, so each kind of id must be found by an index.
    by_index = (
        explaining._PART,
        explaining._BY_MESSAGE,
        explaining._BY_EXTERNAL_ID,
        explaining._BY_CLIENT_ID.format(begins=SqliteDialect.begins),
        explaining._IN_ONES_PLACES,
        explaining._IN_ANY_PLACE,
        explaining._OF_TURN,
    )
    for sql in by_index:
        plan = await driver.write(
            partial(rows, "EXPLAIN QUERY PLAN " + sql, *[None] * placeholders(sql))
        )
        steps = [detail for *_, detail in plan]
        # These are the places that were found before; one person has at most a thousand.
        places = ("SCAN p", "SCAN known", "SCAN recent")
        scans = [s for s in steps if s.startswith("SCAN") and s not in places]
        everything_over_http = [s for s in steps if s.endswith("(adapter=?)")]
        assert (scans, everything_over_http) == ([], []), steps


async def test_parking_a_turn_locks_its_conversation_once(
    driver: SqliteDriver, sqlite_store: Store
) -> None:
    ada = await sqlite_store.principals.ensure("ada", role="member")
    await sqlite_store.inbox.accept(message(ada.id), queue_max=9)
    (claimed,) = await sqlite_store.turns.claim(limit=1)
    asked: list[str] = []

    def overheard(inner: Op[object]) -> Op[None]:
        found = None
        try:
            while True:
                statement = inner.send(found)  # type: ignore[arg-type]
                asked.append(statement.sql)
                found = yield statement
        except StopIteration:
            return

    stamp = Mint(VirtualClock(), SeededEntropy()).stamp(NodeId("nod_1"))
    cut = recovery.Cut(Interruption.SHUTDOWN)
    parking = partial(recovery.interrupt, claimed.lease, cut, stamp, attempts_max=3)
    await driver.write(lambda: overheard(parking()))

    assert asked.count(suspension._LOCK_CONVERSATION) == 1
    assert asked[0] == suspension._LOCK_CONVERSATION, "before the session, as everybody does"


async def test_messages_of_a_burst_share_commits(driver: SqliteDriver, sqlite_store: Store) -> None:
    ada = await sqlite_store.principals.ensure("ada", role="member")
    commits = 0

    def counted() -> bool:
        nonlocal commits
        commits += 1
        return False

    driver._connection.set_commit_hook(counted)
    updates = [
        message(ada.id, f"m{n}", external_id=f"{n}", place=f"p{n % 50}") for n in range(1000)
    ]

    accepted = await asyncio.gather(
        *(sqlite_store.inbox.accept(update, queue_max=100) for update in updates)
    )

    assert len({each.turn for each in accepted}) == 1000
    assert 0 < commits < 100


async def test_the_first_of_a_crowd_does_not_wait_for_the_last(driver: SqliteDriver) -> None:
    # Thousands of messages may come in one instant. If all of them shared one commit, no turn would
    # begin before the last message is stored.
    is_answered = threading.Event()

    def last() -> Op[bool]:
        yield from insert("last")
        return is_answered.wait(10)

    async def first() -> None:
        await driver.write(partial(insert, "first"))
        is_answered.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        for number in range(500):
            group.create_task(driver.write(partial(insert, f"p{number}")))
        was_answered = group.create_task(driver.write(last))
    assert was_answered.result()


async def test_a_check_of_the_file_is_not_misled_by_what_a_reader_has_seen(
    sqlite_store: Store,
) -> None:
    # A connection that has searched caches a part of the index. The check would take rows added
    # since then for damage.
    await sqlite_store.nodes.join(name="test")
    ada = Person(sqlite_store, (await sqlite_store.principals.ensure("ada", role="member")).id)
    for number in range(12):
        for word in ("here", "there"):
            await ada.is_answered(f"{word} {number} " * 40, f"{word} again " * 40)
        searches = [
            sqlite_store.archive.search(word, principal=None, before=None, limit=5)
            for word in ("here", "there", "again", "nowhere") * 2
        ]
        await asyncio.gather(*searches)
        await ada.is_answered(f"later {number} " * 40, "later " * 40)
        await sqlite_store.index.catch_up()
        assert await sqlite_store.diagnostics.integrity() == []


async def test_a_read_of_its_own_ends_with_its_caller(driver: SqliteDriver) -> None:
    # Such a read may take minutes, and nobody waits for its result any more.
    begun = threading.Event()

    def counting_for_ever() -> Op[Rows]:
        begun.set()
        return (
            yield from rows(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                "SELECT count(*) FROM n"
            )
        )

    async with asyncio.timeout(20):
        asking = asyncio.ensure_future(driver.read_afresh(counting_for_ever))
        await asyncio.to_thread(begun.wait)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking  # waits until the thread is free again


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> int:
    """Limit the log of a database that is opened afterwards. Returns the limit in bytes."""
    monkeypatch.setattr(sqlite_log, "LOG_BYTES_MAX", 400_000)
    return 100 * 4096


async def test_a_check_of_everything_lets_the_log_be_copied(
    small_log: int, sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Others write during the check. The log must start over again and again, as it does without a
    # check.
    monkeypatch.setattr(auditing, "SESSIONS_AT_ONCE", 3)
    await sqlite_store.nodes.join(name="test")
    ada = (await sqlite_store.principals.ensure("ada", role="member")).id
    for number in range(60):
        await Person(sqlite_store, ada, place=f"room {number}").is_answered("hi", "hello")
    log = tmp_path / "p.db-wal"
    sizes: list[int] = []

    async def write() -> None:
        writer = Person(sqlite_store, ada, place="elsewhere")
        while not looking.done():
            await writer.is_answered("hello " * 200, "hello " * 200)
            sizes.append(log.stat().st_size)

    async def look() -> None:
        for _ in range(4):
            found = await report(sqlite_store.audit, sqlite_store.diagnostics)
            assert found.violations == []

    async with asyncio.TaskGroup() as group:
        looking = group.create_task(look())
        group.create_task(write())

    assert len(sizes) > 40, "enough was written to fill the log several times"
    assert max(sizes) < 4 * small_log
