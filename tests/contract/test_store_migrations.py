"""Checks that schemas only move forward: newer or altered ones are refused, and old ones are backed
up first."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw
import asyncpg
import msgspec
import pytest
from tests.untyped_rows import rows

from perdure.app.operate import verify
from perdure.domain.address import Address
from perdure.domain.errors import Conflict, Corrupt, Rejected
from perdure.domain.ids import MessageId, PrincipalId, SessionId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.session_events import TitleSet
from perdure.domain.kinds import UpdateKind
from perdure.domain.outcomes import Interruption
from perdure.domain.waits import AT_ONCE
from perdure.ports.records.history import Page
from perdure.store import migrations
from perdure.store.drivers.dialect import Searchable
from perdure.store.drivers.driver import Driver
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.migrations import Migration
from perdure.store.operations.turns import claiming
from perdure.store.statement import run
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person, claim_one, problems_of, settle
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

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
    """Write one conversation, and end the process that had it."""
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
    """Write a message in a group with a late edit, whose new words are wrongly indexed as its
    author's own."""
    store = store_on(driver, folder)
    await store.open()
    await store.nodes.join(name="old")
    ada = (await store.principals.ensure("ada", role="member")).id
    update = Update(
        address=Address(adapter="chat", account="bot", place="club"),
        external_id="1",
        kind=UpdateKind.MESSAGE,
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


async def left_behind(driver: Driver, folder: Path) -> None:
    """Write a turn that has moved to another session without the edit of its message and without
    its notice, and a sent message that waits for an interrupted turn."""
    store = store_on(driver, folder)
    await store.open()
    await store.nodes.join(name="old")
    ada = (await store.principals.ensure("ada", role="operator")).id
    said = Update(
        address=Address(adapter="chat", account="bot", place="room"),
        external_id="1",
        kind=UpdateKind.MESSAGE,
        principal=ada,
        text="poison",
    )
    poison = await store.inbox.accept(said, queue_max=9)
    await claim_one(store)
    behind = msgspec.structs.replace(said, external_id="2", text="behind")
    await store.inbox.accept(behind, queue_max=9)
    edit = msgspec.structs.replace(said, external_id="3", kind="edit", target="2", text="/stop")
    assert (await store.inbox.accept(edit, queue_max=9)).recorded, "its author is told why not"
    await store.nodes.reclaim(known=(), attempts_max=1)
    left = "UPDATE inbox SET session_id = $1 WHERE kind = 'edit'"
    await driver.write(partial(run, left, poison.session))
    told = "UPDATE outbox SET session_id = $1 WHERE turn_id <> $2"
    await driver.write(partial(run, told, poison.session, poison.turn))
    await settle(store, await claim_one(store), "fine", parts=("fine",))
    again = msgspec.structs.replace(said, external_id="4", text="dig")
    dug = await store.inbox.accept(again, queue_max=9)
    claimed = await claim_one(store)
    background = msgspec.structs.replace(said, external_id="5", text="/background count")
    await store.inbox.accept(background, queue_max=9)
    await settle(store, await claim_one(store), "seven")
    await store.turns.interrupt(claimed.lease, Interruption.CRASH, attempts_max=3)
    waits = "UPDATE sessions SET ready_at = NULL WHERE id = $1"
    await driver.write(partial(run, waits, dug.session))
    assert len((await verify.report(store.audit, store.diagnostics)).violations) == 2
    await store.close()


async def test_what_a_moved_turn_has_left_behind_follows_it(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    mend = next(migration for migration in shipped if migration.name == "followed")
    repair = mend._replace(number=9003, sql=mend.sql.partition(";")[2])
    await left_behind(make_driver(shipped), tmp_path)

    store = store_on(make_driver([*shipped, repair]), tmp_path)
    await store.open()
    try:
        assert (await verify.report(store.audit, store.diagnostics)).violations == []
        for session in await store.audit.batch(after=None, only_new=False):
            assert await problems_of(store, session) == []
        assert len(await store.turns.claim(limit=9)) == 1
    finally:
        await store.close()


OLD_ROWS = (
    "INSERT INTO principals (id, name, role, created_at) VALUES ('prn_1', 'ada', 'member', 1)",
    *(
        f"""INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                session_id, generation, is_listed, created_at, active_at)
            VALUES ('cnv_{n}', 'http', 'prn_1', 'p{n}', '', '', 'prn_1', 'ses_{n}', 1, 1, 1,
                    {at})"""
        for n, at in enumerate((500_000, 1_500_000, 1_000_000))
    ),
    *(
        f"""INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, kind,
                strikes, title, opened_at, active_at)
            VALUES ('ses_{n}', 'cnv_{n}', 'prn_1', 'open', 0, 2, '', 0, '', 1, {at})"""
        for n, at in enumerate((500_000, 1_500_000, 1_000_000))
    ),
    *(
        f"""INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
            VALUES ('ses_{n}', {seq}, NULL, 'msg_{n}', 'title_set', 1,
                    '{{"v":1,"title":"{seq}"}}')"""
        for n in (2, 0, 1)
        for seq in (1, 2)
    ),
    *(
        f"""INSERT INTO inbox (external_id, adapter, account, kind, digest, conversation_id,
                session_id, turn_id, message_id, principal_id, at)
            VALUES ('{n}', 'http', 'prn_1', 'message', 'd', 'cnv_{n}', 'ses_{n}', 'trn_{n}',
                    'msg_{n}', 'prn_1', 1)"""
        for n in (1, 0, 2)
    ),
)


async def test_rows_that_were_sorted_otherwise_are_all_there(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    sorting = next(each.number for each in shipped if each.name == "fewer_pages")
    older = make_driver([each for each in shipped if each.number < sorting])
    await older.open(now_ms=1)
    for sql in OLD_ROWS:
        await older.write(partial(run, sql))
    await older.close()

    driver = make_driver(shipped)
    store = store_on(driver, tmp_path)
    await store.open()
    try:
        listed = await store.archive.sessions(principal=None, page=Page())
        assert [each.id for each in listed] == ["ses_1", "ses_2", "ses_0"]
        for n in range(3):
            journal = (await store.diagnostics.record(SessionId(f"ses_{n}"))).events
            assert [(each.seq, each.event) for each in journal] == [
                (1, TitleSet(title="1")),
                (2, TitleSet(title="2")),
            ]
            answer = await store.archive.answer(f"{n}", adapter="http")
            assert answer is not None
        again = partial(run, OLD_ROWS[-1])
        with pytest.raises(Conflict):
            await driver.write(again)
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
    # Each old acknowledgement was about all interruptions before it, in its own turn or an earlier
    # one.
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


READY_BEFORE = """
    INSERT INTO principals VALUES ('prn_1', 'ada', 'member', NULL, 1);
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at)
    VALUES ('cnv_1', 'chat', 'bot', 'a', '', '', 'prn_1', 'ses_1', 1, 1, 1, 1),
           ('cnv_2', 'chat', 'bot', 'b', '', '', 'prn_1', 'ses_2', 1, 1, 1, 1);
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, kind, strikes,
                          title, opened_at, active_at, ready_at, hold_until)
    VALUES ('ses_1', 'cnv_1', 'prn_1', 'open', 1, 9, '', 0, '', 1, 1, 9002, NULL),
           ('ses_2', 'cnv_2', 'prn_1', 'open', 1, 9, '', 0, '', 1, 1, 9001, 9001),
           ('ses_3', 'cnv_2', 'prn_1', 'closed', 1, 9, '', 0, '', 1, 1, NULL, NULL);
    INSERT INTO outbox (id, message_id, part, conversation_id, session_id, adapter, place_in_line,
                        step, text, state, attempts, due_at, receipt, error, created_at, changed_at)
    VALUES
    ('prt_1', 'm1', 0, 'cnv_1', 'ses_1', 'chat', 1, 'post', '1', 'pending', 0, 9002, '', '', 9,
     9002),
    ('prt_2', 'm2', 0, 'cnv_2', 'ses_2', 'chat', 1, 'post', '2', 'pending', 0, 9001, '', '', 9,
     9001);
"""


async def test_what_was_ready_before_sequences_is_ready_in_its_order(
    make_driver: MakeDriver, shipped: list[Migration], tmp_path: Path
) -> None:
    # The order must also hold if the clock is behind the one by which the rows were written.
    before = next(each.number for each in shipped if each.name == "time")
    old = Migration(before, "rows", READY_BEFORE)
    driver = make_driver([*shipped[: before - 1], old])
    await driver.open(now_ms=1)
    await driver.write(lambda: run("DELETE FROM schema_migrations WHERE number = $1", before))
    await driver.close()
    clock = VirtualClock(now_ms=5)
    store = Store(make_driver(shipped), clock=clock, entropy=SeededEntropy(), media=tmp_path)

    await store.open()

    try:
        assert await store.turns.next_claim_ms() == AT_ONCE
        ready = partial(rows, claiming.ready_sql(0), clock.now_ms(), clock.now_ms(), 9)
        assert [session for session, _ in await store._driver.write(ready)] == ["ses_2", "ses_1"]
        parts = await store.outbox.take(adapter="chat", limit=9)
        assert [part.id for part in parts] == ["prt_2", "prt_1"]
    finally:
        await store.close()


STORED_BEFORE = """
    INSERT INTO principals VALUES ('prn_1', 'ada', 'member', NULL, 1),
                                  ('prn_2', 'olga', 'operator', NULL, 1);
    INSERT INTO conversations (id, adapter, account, place, thread, person, principal_id,
                               session_id, generation, is_listed, created_at, active_at)
    VALUES ('cnv_1', 'chat', 'bot', 'a', '', '', 'prn_1', 'ses_1', 1, 1, 1, 1);
    INSERT INTO sessions (id, conversation_id, principal_id, state, epoch, last_seq, kind, strikes,
                          title, opened_at, active_at)
    VALUES ('ses_1', 'cnv_1', 'prn_1', 'open', 1, 9, '', 0, '', 1, 1);
    INSERT INTO turns (id, session_id, message_id, kind, principal_id, state, outcome, reason,
                       detail, attempts, queued_seq, queued_at, alive_at)
    VALUES ('trn_1', 'ses_1', 'm1', 'message', 'prn_1', 'settled', 'done', '', '', 1, 1, 1, 1),
           ('trn_2', 'ses_1', 'm2', 'message', 'prn_2', 'settled', 'done', '', '', 1, 2, 1, 1);
    INSERT INTO journal (session_id, seq, turn_id, message_id, kind, at, body)
    VALUES ('ses_1', 1, 'trn_1', 'm1', 'turn_queued', 1, 'grüße'),
           ('ses_1', 2, 'trn_1', 'm3', 'assistant_said', 1, 'not theirs'),
           ('ses_1', 3, 'trn_2', 'm2', 'turn_queued', 1, 'not counted');
    INSERT INTO media VALUES ('med_1', 'd1', 'text/plain', 'a', 100, 'prn_1', 1),
                             ('med_2', 'd2', 'text/plain', 'b', 20, 'prn_2', 1);
"""


async def test_what_people_have_stored_before_is_counted(
    make_driver: MakeDriver, shipped: list[Migration]
) -> None:
    before = next(each.number for each in shipped if each.name == "quotas")
    old = Migration(before, "rows", STORED_BEFORE)
    driver = make_driver([*(each for each in shipped if each.number < before), old])
    await driver.open(now_ms=1)
    await driver.write(lambda: run("DELETE FROM schema_migrations WHERE number = $1", before))
    await driver.close()
    driver = make_driver(shipped)

    await driver.open(now_ms=2)

    try:
        held = await driver.read(
            lambda: rows("SELECT principal_id, bytes, files FROM holdings ORDER BY principal_id")
        )
        assert held == [("prn_1", 107, 0), ("prn_2", 20, 0)]
        assert await driver.read(lambda: rows("SELECT id FROM media WHERE is_loose = 1")) == []
    finally:
        await driver.close()
