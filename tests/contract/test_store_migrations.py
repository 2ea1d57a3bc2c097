"""Schemas move forward only: newer or altered ones are refused, old ones are backed up first."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import asyncpg
import msgspec
import pytest

from perdure.domain.address import Address
from perdure.domain.errors import Corrupt, Rejected
from perdure.domain.ids import MessageId, PrincipalId
from perdure.domain.updates import Update
from perdure.store import migrations
from perdure.store.dialect import Searchable
from perdure.store.driver import Driver
from perdure.store.migrations import Migration
from perdure.store.postgres import PostgresDriver
from perdure.store.sqlite import SqliteDriver
from perdure.store.statement import rows, run
from perdure.store.store import Store
from perdure.testkit.stores import Person, claim_one, settle
from perdure.testkit.system import SeededEntropy, VirtualClock

EXTRA = Migration(9000, "extra", "ALTER TABLE principals ADD COLUMN shoe_size BIGINT;")
BROKEN = Migration(
    9001, "broken", "CREATE TABLE half (id BIGINT); INSERT INTO no_such_table VALUES (1);"
)
MakeDriver = Callable[[list[Migration]], Driver]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def shipped(database: str) -> list[Migration]:
    return migrations.shipped(database)


@pytest.fixture
def make_driver(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> MakeDriver:
    if database == "sqlite":
        return lambda known: SqliteDriver(tmp_path / "p.db", shipped=known, synchronous="OFF")
    url = request.getfixturevalue("empty_database")
    return lambda known: PostgresDriver(url, shipped=known, backups=tmp_path)


def store_on(driver: Driver, folder: Path) -> Store:
    return Store(driver, clock=VirtualClock(), entropy=SeededEntropy(), media=folder / "media")


async def fill(driver: Driver, folder: Path) -> None:
    """One conversation, and the end of the process that had it."""
    store = store_on(driver, folder)
    await store.open()
    await store.nodes.join(name="old")
    ada = await store.principals.ensure("ada", role="member")
    await Person(store, ada.id).is_answered("before the upgrade", "yes")
    await store.close()


def backups(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "before" in path.name]


async def applied(driver: Driver) -> list[int]:
    found = await driver.read(lambda: rows("SELECT number FROM schema_migrations ORDER BY 1"))
    return [number for (number,) in found]


def test_migrations_are_numbered_without_gaps(shipped: list[Migration]) -> None:
    assert [migration.number for migration in shipped] == list(range(1, len(shipped) + 1))


async def test_a_new_database_gets_everything_and_no_backup(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    driver = make_driver(shipped)
    await driver.open(now_ms=1)
    try:
        assert await applied(driver) == [migration.number for migration in shipped]
    finally:
        await driver.close()
    assert backups(tmp_path) == []


async def test_opening_again_changes_nothing(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    await fill(make_driver(shipped), tmp_path)
    driver = make_driver(shipped)
    await driver.open(now_ms=2)
    try:
        found = await driver.read(lambda: rows("SELECT DISTINCT applied_at FROM schema_migrations"))
        assert [at for (at,) in found] == [VirtualClock().now_ms()]
    finally:
        await driver.close()
    assert backups(tmp_path) == []


async def test_a_newer_schema_is_refused_with_advice(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    await fill(make_driver([*shipped, EXTRA]), tmp_path)

    with pytest.raises(Rejected, match=r"newer Perdure.*9000.*upgrade") as refused:
        await make_driver(shipped).open(now_ms=2)

    assert refused.value.code == "newer_schema"
    newer = make_driver([*shipped, EXTRA])
    await newer.open(now_ms=3)
    await newer.close()


async def test_an_altered_migration_is_refused(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    await fill(make_driver(shipped), tmp_path)
    altered = [shipped[0]._replace(sql=shipped[0].sql + "-- altered\n"), *shipped[1:]]

    with pytest.raises(Corrupt, match="another form"):
        await make_driver(altered).open(now_ms=2)


async def test_an_upgrade_keeps_what_was_there_and_backs_it_up(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    await fill(make_driver(shipped), tmp_path)

    store = store_on(make_driver([*shipped, EXTRA]), tmp_path)
    await store.open()
    try:
        hits = await store.archive.search("upgrade", principal=None, before=None, limit=9)
        assert len(hits) == 1
    finally:
        await store.close()
    assert len(backups(tmp_path)) == 1


async def astray(driver: Driver, folder: Path) -> PrincipalId:
    """A message in a group, edited late, whose new words are indexed as its author's own."""
    store = store_on(driver, folder)
    await store.open()
    await store.nodes.join(name="old")
    ada = (await store.principals.ensure("ada", role="member")).id
    update = Update(
        address=Address(adapter="chat", account="bot", place="club"),
        external_id="1",
        kind="message",
        principal=ada,
        text="pumpkin",
        place_kind="group",
    )
    await store.inbox.accept(update, queue_max=9)
    await settle(store, await claim_one(store), "a gourd")
    assert len(await store.archive.search("gourd", principal=None, before=None, limit=9)) == 1
    edit = msgspec.structs.replace(update, external_id="2", kind="edit", target="1", text="melon")
    newer = msgspec.structs.replace(update, external_id="3", text="something newer")
    await store.inbox.accept(newer, queue_max=9)
    await settle(store, await claim_one(store))
    amended = (await store.inbox.accept(edit, queue_max=9)).recorded[0]
    words = Searchable(amended, ada, MessageId("msg_1"), "user", "melon")
    await driver.write(lambda: run("DELETE FROM unindexed"))
    await driver.write(partial(driver.dialect.index, words))
    await store.close()
    return ada


async def test_late_edits_in_groups_that_were_indexed_as_ones_own_are_put_right(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    mend = next(migration for migration in shipped if migration.name == "late_words")
    repair = Migration(9002, "again", mend.sql.partition(";")[2], is_shared=False)
    ada = await astray(make_driver(shipped), tmp_path)

    store = store_on(make_driver([*shipped, repair]), tmp_path)
    await store.open()
    try:
        assert await store.archive.search("melon", principal=ada, before=None, limit=9) == []
        for words in ("melon", "gourd", "pumpkin"):
            hits = await store.archive.search(words, principal=None, before=None, limit=9)
            assert len(hits) == 1, words
    finally:
        await store.close()


async def test_a_migration_that_fails_leaves_nothing_of_itself(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    await fill(make_driver(shipped), tmp_path)

    with pytest.raises(Corrupt):
        await make_driver([*shipped, BROKEN]).open(now_ms=2)

    driver = make_driver(shipped)
    await driver.open(now_ms=3)
    try:
        assert await applied(driver) == [migration.number for migration in shipped]
        with pytest.raises(Corrupt, match="half"):
            await driver.read(lambda: rows("SELECT id FROM half"))
    finally:
        await driver.close()


async def test_the_backup_is_a_database_that_the_old_version_opens(tmp_path: Path) -> None:
    path, shipped = tmp_path / "p.db", migrations.shipped("sqlite")
    await fill(SqliteDriver(path, synchronous="OFF"), tmp_path)
    newer = SqliteDriver(path, shipped=[*shipped, EXTRA], synchronous="OFF")
    await newer.open(now_ms=2)
    await newer.close()
    backup = tmp_path / "p.db.before-9000"
    assert (backup.stat().st_mode & 0o777) == 0o600

    backup.replace(path)

    restored = store_on(SqliteDriver(path, synchronous="OFF"), tmp_path)
    await restored.open()
    try:
        assert await restored.diagnostics.integrity() == []
        hits = await restored.archive.search("upgrade", principal=None, before=None, limit=9)
        assert len(hits) == 1
    finally:
        await restored.close()


async def test_a_backup_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    path, shipped = tmp_path / "p.db", migrations.shipped("sqlite")
    await fill(SqliteDriver(path, synchronous="OFF"), tmp_path)
    (tmp_path / "p.db.before-9000.part").write_bytes(b"cut")

    newer = SqliteDriver(path, shipped=[*shipped, EXTRA], synchronous="OFF")
    await newer.open(now_ms=2)
    await newer.close()

    backup = apsw.Connection(str(tmp_path / "p.db.before-9000"))
    assert backup.execute("SELECT count(*) FROM principals").fetchall() == [(1,)]
    backup.close()
    assert not (tmp_path / "p.db.before-9000.part").exists()


async def test_the_backup_of_postgresql_holds_every_table(
    empty_database: str, tmp_path: Path
) -> None:
    shipped = migrations.shipped("postgres")
    await fill(PostgresDriver(empty_database), tmp_path)
    newer = PostgresDriver(empty_database, shipped=[*shipped, EXTRA], backups=tmp_path)
    await newer.open(now_ms=2)
    await newer.close()

    folder = tmp_path / "postgres.before-9000"
    connection = await asyncpg.connect(empty_database)
    try:
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        assert {path.name for path in folder.iterdir()} == {name for (name,) in tables}
        await connection.execute("CREATE TABLE again (LIKE journal)")
        await connection.copy_to_table("again", source=folder / "journal", format="binary")
        assert await connection.fetchval("SELECT count(*) FROM again") == await connection.fetchval(
            "SELECT count(*) FROM journal"
        )
    finally:
        await connection.close()


async def test_two_nodes_that_start_together_migrate_once(empty_database: str) -> None:
    drivers = [PostgresDriver(empty_database) for _ in range(4)]

    await asyncio.gather(*(driver.open(now_ms=1) for driver in drivers))

    try:
        assert await applied(drivers[0]) == [m.number for m in migrations.shipped("postgres")]
    finally:
        for driver in drivers:
            await driver.close()


AN_OLD_JOURNAL = """
    INSERT INTO principals VALUES ('prn_1', 'ada', 'member', NULL, 1);
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at)
    VALUES ('cnv_1', 'http', 'prn_1', 'home', '', '', 'prn_1', 'ses_1', 1, 1, 1, 1);
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, kind, strikes,
                          title, opened_at, active_at)
    VALUES ('ses_1', 'cnv_1', 'prn_1', 'open', 1, 9, '', 0, '', 1, 1);
    INSERT INTO turns (id, outcome, session_id, message_id, kind, principal_id, state, reason,
                       detail, attempts, queued_seq, queued_at, alive_at)
    VALUES
    ('trn_told', 'stopped', 'ses_1', 'msg_1', 'message', 'prn_1', 'settled', '', '', 1, 1, 1, 1),
    ('trn_own', 'stopped', 'ses_1', 'msg_2', 'message', 'prn_1', 'settled', '', '', 3, 4, 1, 1),
    ('trn_calm', 'done', 'ses_1', 'msg_3', 'message', 'prn_1', 'settled', '', '', 1, 8, 1, 1);
    INSERT INTO journal (session_id, seq, turn_id, kind, at, body)
    VALUES ('ses_1', 2, 'trn_told', 'attempt_interrupted', 1, '{}'),
           ('ses_1', 5, 'trn_own', 'interruption_acknowledged', 1, '{}'),
           ('ses_1', 6, 'trn_own', 'attempt_interrupted', 1, '{}'),
           ('ses_1', 7, 'trn_own', 'interruption_acknowledged', 1, '{}'),
           ('ses_1', 9, 'trn_own', 'attempt_interrupted', 1, '{}');
"""


async def test_what_older_journals_say_was_told_is_not_told_again(
    make_driver: MakeDriver, shipped: list[Migration]
) -> None:
    """Each acknowledgement told of what had happened before it, in its own turn or an earlier."""
    old = Migration(4, "rows", AN_OLD_JOURNAL)
    driver = make_driver([*shipped[:3], old])
    await driver.open(now_ms=1)
    await driver.write(lambda: run("DELETE FROM schema_migrations WHERE number = 4"))
    await driver.close()

    driver = make_driver(shipped)
    await driver.open(now_ms=2)

    try:
        found = await driver.read(lambda: rows("SELECT id, told_seq FROM turns ORDER BY id"))
        assert [tuple(each) for each in found] == [
            ("trn_calm", 0),
            ("trn_own", 6),
            ("trn_told", 2),
        ]
    finally:
        await driver.close()
