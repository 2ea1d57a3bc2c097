"""Causes real faults under the store: full disks, damaged files, dead servers, SIGKILL.

What was acknowledged must be there afterwards, what could not be stored must have been refused with
a reason, and once the fault is gone the same store must work again.
"""

import asyncio
import contextlib
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import apsw
import pytest
from tests.untyped_rows import rows

from perdure.app.wiring.system import SystemEntropy
from perdure.domain.checking.checker import violations
from perdure.domain.errors import Ambiguous, Corrupt, PerdureError, Transient
from perdure.domain.ids import SessionId
from perdure.domain.journal.events import AssistantSaid, TurnQueued
from perdure.ports.records.history import Page
from perdure.store.drivers import postgres
from perdure.store.drivers.postgres import PostgresDriver
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.statement import Op, Statement
from perdure.store.store import Store
from perdure.testkit.simulator.stores import (
    Person,
    claim_one,
    flush,
    message,
    only,
    settle,
    turn_of,
)
from perdure.testkit.simulator.system import SeededEntropy, VirtualClock

KILLS = 20


class OwnPostgres(Protocol):
    """Describes the fixture `own_postgres`."""

    url: str

    def crash(self) -> None: ...

    def start(self) -> None: ...

    def frozen(self) -> contextlib.AbstractContextManager[None]: ...


def store_on(path: Path, *, synchronous: str = "OFF") -> tuple[Store, SqliteDriver]:
    driver = SqliteDriver(path, synchronous=synchronous)
    media = path.parent / "media"
    return Store(driver, clock=VirtualClock(), entropy=SystemEntropy(), media=media), driver


@contextlib.asynccontextmanager
async def opened(
    path: Path, *, synchronous: str = "OFF"
) -> AsyncIterator[tuple[Store, SqliteDriver]]:
    store, driver = store_on(path, synchronous=synchronous)
    await store.open()
    try:
        await store.nodes.join(name="test")
        yield store, driver
    finally:
        await store.close()


async def person(store: Store) -> Person:
    principal = await store.principals.ensure("ada", role="member")
    return Person(store, principal.id)


async def questions(store: Store, session: SessionId) -> list[str]:
    record = await store.diagnostics.record(session)
    assert violations(record) == []
    return [queued.text for queued in only(TurnQueued, record.events)]


async def test_a_full_database_refuses_and_its_neighbours_are_not_lost(tmp_path: Path) -> None:
    async with opened(tmp_path / "p.db") as (store, driver):
        ada = await person(store)
        first = await ada.says("before")
        (pages,) = (await driver.write(partial(rows, "PRAGMA page_count")))[0]
        await driver.write(partial(rows, f"PRAGMA max_page_count = {pages + 60}"))

        results = await asyncio.gather(
            *(
                store.inbox.accept(message(ada.id, text, external_id=f"id-{n}"), queue_max=100)
                for n, text in enumerate(["small 0", "x" * 2_000_000, "small 2", "small 3"])
            ),
            return_exceptions=True,
        )

        refused = results[1]
        assert isinstance(refused, Transient)
        assert refused.code == "disk_full"
        assert "free some space" in refused.message
        assert [isinstance(result, BaseException) for result in results] == [
            False,
            True,
            False,
            False,
        ], results
        assert await questions(store, first.session) == ["before", "small 0", "small 2", "small 3"]

        await driver.write(partial(rows, "PRAGMA max_page_count = 1000000"))
        await store.inbox.accept(
            message(ada.id, "x" * 2_000_000, external_id="id-1"), queue_max=100
        )
        assert len(await questions(store, first.session)) == 5
        assert await store.diagnostics.integrity() == []


async def test_no_file_handle_is_left_for_a_moment(tmp_path: Path) -> None:
    # Readers open their connection when they are first needed, which may be at a bad moment.
    async with opened(tmp_path / "p.db") as (_, driver):
        one = partial(rows, "SELECT 1")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # as many as there always are
        try:
            with pytest.raises(Transient):
                await driver.read(one)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        assert await driver.read(one) == [(1,)]


async def fill_up(ada: Person, size: int) -> tuple[int, PerdureError]:
    """Send until a message is refused. Returns how many were taken, and the refusal."""
    for taken in range(10_000):
        try:
            await ada.says("y" * size, queue_max=100_000)
        except PerdureError as error:
            return taken, error
    raise AssertionError("the disk never filled up")


async def test_a_full_disk_is_told_and_forgiven(small_disk: Path) -> None:
    async with opened(small_disk / "p.db") as (store, _):
        ada = await person(store)
        first = await ada.says("before")
        filler = small_disk / "filler"
        await asyncio.to_thread(filler.write_bytes, b"x" * 600_000)

        taken, refused = await fill_up(ada, 20_000)

        assert isinstance(refused, Transient)
        assert refused.code == "disk_full"
        for _ in range(3):
            with pytest.raises(Transient):
                await ada.says("z" * 200_000, queue_max=100_000)
        assert len(await questions(store, first.session)) == 1 + taken
        with pytest.raises(Transient) as media:
            await store.media.put(b"m" * 3_000_000, mime="", name="", principal=ada.id)
        assert media.value.code == "disk_full"

        filler.unlink()

        await ada.says("after", queue_max=100_000)
        claimed = await claim_one(store)
        await flush(store, claimed.lease, "works")
        await settle(store, claimed, "works again")
        assert (await questions(store, first.session))[-1] == "after"
        assert await store.diagnostics.integrity() == []


# Writes until the disk is full, prints how many messages were accepted, and kills itself.
UNTIL_FULL = """
import asyncio, os, signal, sys
from pathlib import Path
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.domain.errors import Transient
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.simulator.stores import Person

async def write(path):
    store = Store(SqliteDriver(path), clock=SystemClock(), entropy=SystemEntropy(), media=path)
    await store.open()
    await store.nodes.join(name="writer")
    ada = Person(store, (await store.principals.ensure("ada", role="member")).id)
    taken = 0
    try:
        while True:
            await ada.says("y" * 20_000, queue_max=100_000)
            taken += 1
    except Transient as error:
        print(taken, error.code, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(write(Path(sys.argv[1])))
"""


def written_until_full(path: Path) -> tuple[int, str]:
    """Fill this disk from another process. Returns how many messages were accepted, and the code of
    the refusal."""
    writer = subprocess.run(
        [sys.executable, "-c", UNTIL_FULL, str(path)], capture_output=True, text=True, check=False
    )
    assert writer.returncode == -signal.SIGKILL, writer.stderr
    taken, code = writer.stdout.split()
    return int(taken), code


async def test_a_small_disk_is_filled_with_messages_and_not_with_the_log(
    thirty_megabytes: Path,
) -> None:
    # Thirty megabytes are less than the write-ahead log may have elsewhere. What a killed process
    # leaves behind must be usable by the next one on the same full disk.
    path = thirty_megabytes / "p.db"
    taken, code = await asyncio.to_thread(written_until_full, path)

    assert code == "disk_full"
    assert path.stat().st_size > 20_000_000, "what was acknowledged is in the database"
    assert path.with_name("p.db-wal").stat().st_size < 4_000_000
    async with opened(path, synchronous="FULL") as (store, _):
        ada = await person(store)
        view = (await store.conversations.find("home", principal=ada.id)).view
        session = view.standing.session
        assert len(await questions(store, session)) == taken
        elsewhere = Person(store, ada.id, place="elsewhere")
        await elsewhere.says("x" * 60_000)  # the next life has some room of its own
        _, refused = await fill_up(elsewhere, 400_000)
        assert isinstance(refused, Transient)
        assert refused.code == "disk_full"
        grow = ["mount", "-o", "remount,size=32m", str(thirty_megabytes)]
        await asyncio.to_thread(subprocess.run, grow, check=True)
        await elsewhere.says("z" * 400_000)
        assert len(await questions(store, session)) == taken
        assert await store.diagnostics.integrity() == []


async def test_a_log_that_cannot_be_copied_says_how_much_to_free(
    thirty_megabytes: Path,
) -> None:
    # An older version, or another program that filled the disk, may leave a log like this.
    path = thirty_megabytes / "p.db"
    ballast = thirty_megabytes / "ballast"
    async with opened(path, synchronous="OFF") as (store, driver):
        ada = await person(store)
        await driver.write(partial(rows, "PRAGMA wal_autocheckpoint = 0"))
        for n in range(100):
            await ada.says(f"{n} " + "y" * 20_000, queue_max=1000)
        # A reader keeps the log from being copied when it is closed.
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        reader.execute("BEGIN; SELECT count(*) FROM journal").fetchall()
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass
    reader.close()
    if not path.with_name("p.db-wal").exists():
        pytest.skip("the log was copied before the disk was full")

    store, _ = store_on(path)
    with pytest.raises(Transient, match=r"free some space, about \d+ MB") as refused:
        await store.open()

    assert refused.value.code == "disk_full"
    ballast.unlink()
    async with opened(path) as (store, _):
        assert await store.diagnostics.integrity() == []


# Opens a database as an ordinary user, because file modes do not bind root.
AS_NOBODY = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from perdure.domain.errors import PerdureError
from perdure.store.drivers.sqlite import SqliteDriver

async def opened(path):
    driver = SqliteDriver(path)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)  # only now, because this user may not read Python's own modules
    await driver.open(now_ms=1)
    await driver.close()

try:
    asyncio.run(opened(Path(sys.argv[1])))
except PerdureError as error:
    print(error.code, error.message)
else:
    print("opened")
"""


@pytest.mark.parametrize("left", [False, True], ids=["as we leave it", "as it was left before"])
async def test_a_database_that_may_not_be_written_starts_once_it_may(left: bool) -> None:
    # The files that lie beside the database must not refuse a start after the repair.
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # Not the test's own folder, which no other user may read.
    with tempfile.TemporaryDirectory(prefix="perdure-modes-") as folder:
        home = Path(folder)
        path = home / "p.db"
        home.chmod(0o755)
        driver = SqliteDriver(path)
        await driver.open(now_ms=1)
        await driver.close()
        for each in (home, *home.iterdir()):
            os.chown(each, 65534, 65534)
        path.chmod(0o400)
        if left:
            for suffix in ("-wal", "-shm"):
                beside = home / f"p.db{suffix}"
                beside.touch(mode=0o400)
                os.chown(beside, 65534, 65534)

        refused = await as_nobody(path)
        assert refused.startswith("not_writable")
        assert str(path) in refused
        path.chmod(0o600)

        assert await as_nobody(path) == "opened"


# Stores a file as an ordinary user, because file modes do not bind root.
KEEPS_AS_NOBODY = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from perdure.domain.errors import PerdureError
from perdure.store.ports.records.media import StoredMedia

class Mint:
    def id(self, prefix): return prefix + "_1"
    def now_ms(self): return 1

async def pieces():
    yield b"hello"

async def keep(folder):
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    return await StoredMedia(None, Mint(), folder).keep(pieces(), bytes_max=10)

try:
    kept = asyncio.run(keep(Path(sys.argv[1])))
except PerdureError as error:
    print(error.code, error.message)
else:
    print("kept", kept.digest[:2])
"""


async def test_a_media_folder_that_may_not_be_written_is_named() -> None:
    # The refusal must not call the disk full. It names the folder, the reason and what to do.
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="perdure-modes-") as folder:
        media = Path(folder) / "media"
        Path(folder).chmod(0o755)

        refused = await as_nobody(media, KEEPS_AS_NOBODY)
        assert refused.startswith(f"not_writable the file could not be stored: {folder} cannot be")
        media.mkdir(mode=0o755)
        refused = await as_nobody(media, KEEPS_AS_NOBODY)
        assert refused.startswith(f"not_writable the file could not be stored: {media} cannot be")
        assert "(Permission denied); give the user that runs Perdure the right" in refused
        os.chown(media, 65534, 65534)
        kept = await as_nobody(media, KEEPS_AS_NOBODY)
        assert kept.startswith("kept ")

        (found,) = [path for path in media.rglob("*") if path.is_file()]
        found.unlink()
        os.chown(found.parent, 0, 0)
        refused = await as_nobody(media, KEEPS_AS_NOBODY)
        assert refused.startswith(
            f"not_writable the file could not be stored: {found.parent} cannot be"
        )


# Prepares a home as an ordinary user, because file modes do not bind root.
PREPARES_AS_NOBODY = """
import os, sys
from pathlib import Path
from perdure.app.config.environment import prepare_home
from perdure.domain.errors import PerdureError
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    prepare_home(Path(sys.argv[1]))
except PerdureError as error:
    print(error.message)
else:
    print("prepared")
"""


async def test_a_home_that_may_not_be_written_is_named() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory(prefix="perdure-modes-") as folder:
        home = Path(folder) / "home"
        Path(folder).chmod(0o755)
        home.mkdir(mode=0o700)
        os.chown(home, 65534, 65534)
        assert await as_nobody(home, PREPARES_AS_NOBODY) == "prepared"
        home.chmod(0o500)
        refused = await as_nobody(home, PREPARES_AS_NOBODY)
        assert refused.startswith(f"{home}: this folder cannot be written to; give the user that")
        (home / "logs").rmdir()
        refused = await as_nobody(home, PREPARES_AS_NOBODY)
        assert refused.startswith(f"{home / 'logs'}: this folder of the home cannot be made (Perm")


async def as_nobody(path: Path, program: str = AS_NOBODY) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(path), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return said.decode().strip()


async def test_where_the_next_message_does_not_fit_a_look_says_so_until_there_is_room(
    small_disk: Path,
) -> None:
    # The disk still reads, and its write-ahead log still has room for a heartbeat.
    async with opened(small_disk / "p.db") as (store, _):
        ada = await person(store)
        await ada.says("before")
        assert await store.condition.look() == ""
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass

        await fill_up(ada, 10)

        for _ in range(3):
            store.condition._looked_s = -math.inf
            assert "the disk is full" in await store.condition.look()
        filler.unlink()
        store.condition._looked_s = -math.inf
        assert await store.condition.look() == ""
        await ada.says("after", queue_max=100_000)


async def starting(home: Path) -> tuple[int | None, str]:
    """Start a gateway that must fail. Returns its exit code, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "perdure", "serve", "--port", "0", "--home", str(home)],
        env={**os.environ, "PERDURE_DISCOVER": "0"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()


@pytest.mark.parametrize("has_run", [False, True], ids=["a fresh home", "one that was used"])
async def test_a_start_on_a_full_disk_says_so(small_disk: Path, has_run: bool) -> None:
    home = small_disk / "home"
    home.mkdir(mode=0o700)
    if has_run:
        (home / "token").write_text("a-long-token\n")
        async with opened(home / "perdure.db"):
            pass
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass

    code, said = await starting(home)

    assert code == 1
    assert "the disk is full; free some space" in said
    assert len(said.splitlines()) == 1


@contextlib.contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_fails_in_a_commit_is_reopened(tmp_path: Path) -> None:
    # The write-ahead log cannot grow, which SQLite only notices at the commit.
    path = tmp_path / "p.db"
    async with opened(path) as (store, _):
        ada = await person(store)
        first = await ada.says("before")
        log_size = path.with_name("p.db-wal").stat().st_size
        with files_no_longer_than(log_size + 50_000):
            taken, refused = await fill_up(ada, 4_000)
            assert isinstance(refused, Ambiguous)
            for _ in range(3):
                async with asyncio.timeout(10):
                    with pytest.raises(Ambiguous):
                        await ada.says("z" * (log_size + 100_000), queue_max=100_000)

        async with asyncio.timeout(10):
            await ada.says("after", queue_max=100_000)

        said = await questions(store, first.session)
        assert said == ["before", *["y" * 4_000] * taken, "after"], "none of them was stored"
        assert await store.diagnostics.integrity() == []


class FailingDisk(apsw.VFS):
    """Makes the write-ahead log fail at the `write`, or at the `sync`, when all of it is
    written."""

    def __init__(self) -> None:
        super().__init__("failing", "unix", makedefault=True, iVersion=2)
        self.fails_at = ""

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's own name
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(
        self, disk: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("unix", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._is_log = path.endswith("-wal")
        self._disk = disk

    def _fail_at(self, what: str) -> None:
        if self._is_log and self._disk.fails_at == what:
            raise apsw.IOError(f"the disk failed at the {what}")

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's own name
        self._fail_at("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's own name
        self._fail_at("sync")
        super().xSync(flags)


@pytest.fixture
def failing_disk() -> Iterator[FailingDisk]:
    disk = FailingDisk()
    try:
        yield disk
    finally:
        disk.unregister()


@pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "with a neighbour"])
@pytest.mark.parametrize("fault", ["write", "sync"])
async def test_after_a_failed_commit_nobody_knows_whether_it_is_stored(
    tmp_path: Path, failing_disk: FailingDisk, fault: str, is_alone: bool
) -> None:
    # The next process may find the transaction: a log that was written and not synced may still
    # become complete. If the store said "not stored", the caller would store it twice.
    path = tmp_path / "p.db"
    async with opened(path, synchronous="FULL") as (store, _):
        ada = await person(store)
        first = await ada.says("before")
        neighbour = Person(store, ada.id, place="elsewhere")
        writing = [ada.says("perhaps"), *([] if is_alone else [neighbour.says("perhaps too")])]
        failing_disk.fails_at = fault

        results = await asyncio.gather(*writing, return_exceptions=True)

        failing_disk.fails_at = ""
        assert [type(result) for result in results] == [Ambiguous] * len(results)
        left = tmp_path / "as a crash leaves it"
        left.mkdir()
        for name in ("p.db", "p.db-wal"):
            shutil.copy(path.with_name(name), left / name)
        await ada.says("after")
        assert (await questions(store, first.session))[-1] == "after"
        assert await store.diagnostics.integrity() == []
    async with opened(left / "p.db") as (store, _):
        found = await questions(store, first.session)
    assert found == (["before", "perhaps"] if fault == "sync" else ["before"])


async def test_a_file_that_is_no_database_is_named_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(os.urandom(100_000))
    store, _ = store_on(path)

    with pytest.raises(Corrupt, match="restore a backup") as refused:
        await store.open()

    assert refused.value.code == "damaged"


async def written(path: Path, count: int) -> SessionId:
    async with opened(path) as (store, _):
        ada = await person(store)
        for n in range(count):
            await ada.says(f"{n} " + "w" * 2000, queue_max=100_000)
        return (await store.conversations.find("home", principal=ada.id)).view.standing.session


def damage(path: Path) -> None:
    """Overwrite the second half of a database. The schema at its beginning stays readable."""
    middle = path.stat().st_size // 4096 // 2 * 4096
    with path.open("r+b") as file:
        file.seek(middle)
        file.write(b"\xff" * (path.stat().st_size - middle))


async def test_a_damaged_page_is_corrupt_and_not_a_wrong_answer(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    session = await written(path, 100)
    damage(path)

    async with opened(path) as (store, _):
        assert await store.diagnostics.integrity() != []
        with pytest.raises(Corrupt, match="restore a backup"):
            await store.diagnostics.record(session)
        assert await store.principals.tokens() == [], "what is whole can still be read"
        with pytest.raises(Corrupt):
            await store.archive.journal(session, after=0, limit=1000)


async def test_a_log_cut_anywhere_costs_only_the_end(tmp_path: Path) -> None:
    # After a power cut, on a disk that reported writes too early, the journal must be complete up
    # to some commit.
    source, texts = tmp_path / "p.db", [f"message {n}" for n in range(30)]
    async with opened(source) as (store, _):
        ada = await person(store)
        (session,) = {(await ada.says(text)).session for text in texts}
        log = source.with_name("p.db-wal").read_bytes()
        database = source.read_bytes()
    lengths = []
    for cut in range(0, len(log) + 1, max(len(log) // 12, 1)):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / "p.db").write_bytes(database)
        (folder / "p.db-wal").write_bytes(log[:cut])
        async with opened(folder / "p.db") as (store, _):
            assert await store.diagnostics.integrity() == []
            try:
                found = await questions(store, session)
            except PerdureError:
                found = []
            assert found == texts[: len(found)]
            lengths.append(len(found))
            ada = await person(store)
            await Person(store, ada.id, place="elsewhere").says("goes on")
        shutil.rmtree(folder)

    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


async def test_a_database_server_may_crash_under_the_store(
    tmp_path: Path, own_postgres: OwnPostgres
) -> None:
    store = Store(
        PostgresDriver(own_postgres.url),
        clock=VirtualClock(),
        entropy=SeededEntropy(),
        media=tmp_path,
    )
    await store.open()
    try:
        await store.nodes.join(name="test")
        ada = await person(store)
        first = await ada.says("before")
        claimed = await claim_one(store)
        await flush(store, claimed.lease, "half")

        await asyncio.to_thread(own_postgres.crash)

        for _ in range(3):
            async with asyncio.timeout(20):
                with pytest.raises((Transient, Ambiguous)):
                    await ada.says("while it is down")
                with pytest.raises(Transient):
                    await store.archive.turn(turn_of(first), principal=None)

        await asyncio.to_thread(own_postgres.start)

        async with asyncio.timeout(20):
            assert await flush(store, claimed.lease, " and more", start=4) == []
            await settle(store, claimed, "half and more")
            await ada.says("after")
        assert await questions(store, first.session) == ["before", "after"]
    finally:
        await store.close()


async def test_a_database_server_that_stands_still_is_asked_anew_afterwards(
    tmp_path: Path,
    own_postgres: OwnPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The time limit's own error has no text, and people must read why nothing was stored.
    monkeypatch.setattr(postgres, "COMMAND_S", 0.5)
    store = Store(
        PostgresDriver(own_postgres.url),
        clock=VirtualClock(),
        entropy=SeededEntropy(),
        media=tmp_path,
    )
    await store.open()
    try:
        await store.nodes.join(name="test")
        ada = await person(store)
        first = await ada.says("before")

        async with asyncio.timeout(20):
            with (
                own_postgres.frozen(),
                pytest.raises((Transient, Ambiguous), match="it does not answer"),
            ):
                await ada.says("while it stands still")
            await ada.says("after")

        assert await questions(store, first.session) == ["before", "after"]
    finally:
        await store.close()


async def test_a_database_server_that_stands_still_is_given_up_after_one_time_limit(
    tmp_path: Path, own_postgres: OwnPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "COMMAND_S", 3)
    monkeypatch.setattr(postgres, "CONNECT_S", 1)
    driver = PostgresDriver(own_postgres.url)
    await driver.open(now_ms=1)

    def slow(seconds: int) -> Op[None]:
        yield Statement("SELECT pg_sleep($1)", (seconds,))

    try:
        with own_postgres.frozen():
            async with asyncio.timeout(5):
                calls = [driver.write(lambda: slow(0)) for _ in range(2)]
                told = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in told] == [Transient, Transient]
        under_way = asyncio.gather(driver.write(lambda: slow(1)), return_exceptions=True)
        await asyncio.sleep(0.5)
        with own_postgres.frozen():
            async with asyncio.timeout(5):
                (error,) = await under_way
        assert isinstance(error, Transient)
        async with asyncio.timeout(20):
            await driver.write(lambda: slow(0))
    finally:
        await driver.close()


# Forks a writer for each line it reads. Prints the writer's pid, and what was acknowledged to it.
NURSERY = """
import asyncio, os, sys
from pathlib import Path
from typing import Protocol
from perdure.app.wiring.system import SystemClock, SystemEntropy
from perdure.store.drivers.sqlite import SqliteDriver
from perdure.store.store import Store
from perdure.testkit.simulator.stores import GO_ON, flush, message, settle

async def write(path, life):
    store = Store(SqliteDriver(path), clock=SystemClock(), entropy=SystemEntropy(), media=path)
    await store.open()
    await store.nodes.join(name="writer")
    ada = await store.principals.ensure("ada", role="member")
    await store.nodes.reap(attempts_max=10_000, limit=10_000)
    await store.nodes.resume(GO_ON, limit=10_000)
    await asyncio.gather(*(talk(store, ada.id, life, place) for place in range(4)))

async def talk(store, principal, life, place):
    for n in range(10_000):
        update = message(principal, "hi", external_id=f"{life}-{place}-{n}", place=f"p{place}")
        accepted = await store.inbox.accept(update, queue_max=100_000)
        os.write(1, f"accepted {accepted.turn}\\n".encode())
        for claimed in await store.turns.claim(limit=2):
            await flush(store, claimed.lease, "half")
            os.write(1, f"shown {claimed.lease.turn}\\n".encode())
            await settle(store, claimed, "half and whole")
            os.write(1, f"settled {claimed.lease.turn}\\n".encode())

for life, _ in enumerate(sys.stdin):
    child = os.fork()
    if not child:
        asyncio.run(write(Path(sys.argv[1]), life))
        os._exit(1)
    os.write(1, f"writer {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""


async def lines(stream: asyncio.StreamReader) -> AsyncIterator[tuple[str, str]]:
    while line := await stream.readline():
        word, _, rest = line.decode().strip().partition(" ")
        yield word, rest


async def kill_writers(path: Path, kills: int, seed: int) -> dict[str, set[str]]:
    """Let writers write, and kill each of them at some point. Returns everything they were told."""
    told: dict[str, set[str]] = {"accepted": set(), "shown": set(), "settled": set()}
    nursery = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        NURSERY,
        str(path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    chance = random.Random(seed)
    for _ in range(kills):
        nursery.stdin.write(b"next\n")
        left, writer = chance.randrange(1, 60), 0
        async for word, rest in lines(nursery.stdout):
            if word == "writer":
                writer = int(rest)
            elif word == "dead":
                break
            else:
                told[word].add(rest)
                left -= 1
            if left == 0:
                os.kill(writer, signal.SIGKILL)
    nursery.stdin.close()
    assert await nursery.wait() == 0
    return told


async def test_what_was_acknowledged_survives_sigkill(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "p.db"

    async with asyncio.timeout(50):
        told = await kill_writers(path, KILLS, seed)

    async with opened(path) as (store, _):
        assert await store.diagnostics.integrity() == []
        await store.nodes.reap(attempts_max=10_000, limit=10_000)
        sessions = await store.archive.sessions(principal=None, page=Page(limit=100))
        records = [await store.diagnostics.record(session.id) for session in sessions]
    assert [problem for record in records for problem in violations(record)] == []
    turns = {turn.id: turn for record in records for turn in record.turns}
    assert told["accepted"] <= set(turns)
    done = {turn for turn, view in turns.items() if view.outcome == "done"}
    assert told["settled"] <= done
    said = {said.turn for record in records for said in only(AssistantSaid, record.events)}
    assert told["shown"] <= said
    assert len(told["settled"]) > KILLS
