"""Runs operations on SQLite through apsw. One writer thread owns the file; readers have their own
connections.

All operations that wait share one transaction and so one fsync (group commit). They are first run
as if none could fail. When one fails, the batch is rolled back and run again, each operation in its
own savepoint, so that a failed one does not fail its neighbours. A caller is answered only after
COMMIT has returned: if the process dies before, nothing of the batch has happened and nobody was
told that it had.

A lock file refuses a second process. The kernel releases the lock however this process ends. apsw
carries its own SQLite, the same on every host.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

import apsw

from perdure.domain.errors import NO_SPACE, Ambiguous, PerdureError, Rejected, Transient
from perdure.store import migrations
from perdure.store.drivers import sqlite_pages as pages
from perdure.store.drivers.sqlite_dialect import (
    SqliteDialect,
    insist_on_references,
    schema_in_sqlite,
)
from perdure.store.drivers.sqlite_errors import DISK_FULL, translate
from perdure.store.drivers.sqlite_log import WriteAheadLog
from perdure.store.drivers.sqlite_readers import BUSY_TIMEOUT_MS, SqliteReaders, drive, keep_plans
from perdure.store.statement import MakeOp, NotRun

T = TypeVar("T")
# Operations of one commit. More would make the first caller wait long for the last operation: if
# thousands of messages come at once, the first turns begin while the last messages are stored.
BATCH_MAX: Final = 200
# Threads, and so connections, that read at the same time.
READERS: Final = 4
# `synchronous = FULL` makes COMMIT wait for the disk: what was answered survives a power failure.
_PRAGMAS: Final = """
    PRAGMA page_size = {page_bytes};
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = {synchronous};
    PRAGMA busy_timeout = {busy_timeout_ms};
    PRAGMA foreign_keys = ON;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -16000;"""


class _Job(Generic[T]):
    """Holds one operation on its way through the writer thread. It is never cancelled half-way."""

    __slots__ = ("error", "future", "make", "result")

    def __init__(self, make: MakeOp[T], future: "asyncio.Future[T]") -> None:
        self.make = make
        self.future = future
        self.result: T | None = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        """Give the caller the result or the error. Does nothing if the caller was cancelled. Runs
        on the event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class SqliteDriver:
    """Opens and migrates one database file, and runs operations on it."""

    dialect = SqliteDialect()

    def __init__(
        self,
        path: Path,
        *,
        shipped: list[migrations.Migration] | None = None,
        synchronous: str = "FULL",
    ) -> None:
        self._path = path
        self._shipped = shipped or migrations.shipped("sqlite")
        self._synchronous = synchronous
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._readers = SqliteReaders(path)
        self._thread: threading.Thread | None = None
        self._lock_fd: int | None = None
        self._needs_reopening = False

    async def open(self, *, now_ms: int) -> list[migrations.Applied]:
        """Open the file, migrate it, and start the writer thread. Returns the applied
        migrations."""
        applied = await asyncio.to_thread(self._open, now_ms)
        loop = asyncio.get_running_loop()
        self._readers.open(READERS)
        self._thread = threading.Thread(
            target=self._write_until_closed, args=(loop,), name="perdure-write", daemon=True
        )
        self._thread.start()
        return applied

    def _open(self, now_ms: int) -> list[migrations.Applied]:
        """Lock the file, connect, make room and migrate. If a step fails, the steps before it are
        undone."""
        with contextlib.ExitStack() as undo:
            try:
                self._lock()
                undo.callback(self._unlock)
                self._connection = self._connect()
                undo.callback(self._connection.close)
                self._path.chmod(0o600)
                # Before migrating: after a kill on a full disk, only the copied log gives back the
                # space that everything else at start needs.
                self._recover_room()
                applied = self._migrate(now_ms)
                if pages.resize(self._connection):
                    self._begin_log(self._connection)
                self._log.tend()
            except (apsw.Error, OSError) as error:
                raise translate(error, opening=True) from error
            undo.pop_all()
        return applied

    def _lock(self) -> None:
        """Take the lock that makes this the only process on the database. Raises `Rejected` with
        the number of the process that holds it."""
        path = self._path.with_name(self._path.name + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode().strip() or "unknown"
            os.close(descriptor)
            raise Rejected(
                f"another Perdure (process {holder}) is using {self._path}; "
                "stop it first, or choose another home with --home",
                code="in_use",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._lock_fd = descriptor

    def _unlock(self) -> None:
        """Release the lock by closing its file. The file stays: deleting it could let two processes
        lock two different files of the same name."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _connect(self) -> apsw.Connection:
        """Open the writing connection and set it up."""
        _insist_on_writable(self._path)
        connection = apsw.Connection(str(self._path))
        pragmas = _PRAGMAS.format(
            page_bytes=pages.PAGE_BYTES,
            synchronous=self._synchronous,
            busy_timeout_ms=BUSY_TIMEOUT_MS,
        )
        try:
            connection.execute(pragmas).fetchall()
            self._begin_log(connection)
        except apsw.IOError as error:
            # If there is no room for the -wal or -shm file, SQLite reports a plain I/O error; only
            # the system's error number tells that the disk is full.
            if connection.system_errno in NO_SPACE:
                raise apsw.FullError(str(error)) from error
            raise
        keep_plans(connection)
        return connection

    def _begin_log(self, connection: apsw.Connection) -> None:
        """Start to manage the write-ahead log of this connection."""
        self._log = WriteAheadLog(connection, self._path, busy_timeout_ms=BUSY_TIMEOUT_MS)

    def _recover_room(self) -> None:
        """Copy what a killed process left in the log into the database, if the disk is nearly
        full. That frees the space that the start needs. Raises `Transient` if the log cannot be
        copied."""
        left = self._log.bytes
        if not left or not self._log.is_cramped:
            return
        self._log.make_room()
        if self._log.is_stuck:
            raise Transient(
                f"the disk is full; free some space, about {left // 2**20 + 1} MB: what stands in "
                f"{self._path.name}-wal has to fit into {self._path}",
                code=DISK_FULL,
            )

    def _migrate(self, now_ms: int) -> list[migrations.Applied]:
        """Apply pending migrations, each in one transaction after a backup. If the process dies,
        the next start goes on with the first migration that is not recorded."""
        connection = self._connection
        is_new = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        applied = []
        # A migration may recreate a table that others refer to. While the table is missing, checks
        # of foreign keys would fail; `insist_on_references` checks them all at the end instead.
        connection.execute("PRAGMA foreign_keys = OFF")
        for migration in drive(connection, migrations.pending(self._shipped)):
            copy = "" if is_new else self._back_up(migration)
            with connection:
                connection.execute(schema_in_sqlite(migration))
                drive(connection, migrations.record(migration, at=now_ms))
                insist_on_references(connection, migration)
            applied.append(migrations.Applied(migration.number, migration.name, is_new, copy))
        connection.execute("PRAGMA foreign_keys = ON")
        return applied

    def _back_up(self, migration: migrations.Migration) -> str:
        """Copy the database before a migration. The copy gets its final name only once it is
        complete and on disk, so after a crash there is either a whole copy or a `.part` file, which
        the next attempt deletes."""
        target = self._path.with_name(f"{self._path.name}.before-{migration.number:04d}")
        unfinished = target.with_name(target.name + ".part")
        unfinished.unlink(missing_ok=True)
        pages.keep(self._connection)
        self._connection.execute("VACUUM INTO ?", (str(unfinished),))
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.chmod(0o600)
        unfinished.replace(target)
        return target.name

    async def shrink(self) -> None:
        """Empty the page caches of all connections."""
        await asyncio.to_thread(self._readers.shrink)
        with contextlib.suppress(apsw.Error):  # the connection is busy, or closed meanwhile
            await asyncio.to_thread(self._connection.release_memory)

    async def close(self) -> None:
        """Finish the queued writes, then release the file. A second call does nothing."""
        # Refuse new writes before the end marker is queued: a write queued behind the marker would
        # never be answered.
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._jobs.put(None)
        await asyncio.to_thread(thread.join)
        await self._readers.close()
        self._connection.close()
        self._unlock()

    async def write(self, make: MakeOp[T]) -> T:
        """Run an operation in the next group commit. Cancelling the caller does not undo it."""
        if self._thread is None:
            raise NotRun("the store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(make, future))
        return await future

    async def read(self, make: MakeOp[T]) -> T:
        """Run an operation on a snapshot of its own."""
        return await self._readers.read(make)

    async def read_afresh(self, make: MakeOp[T]) -> T:
        """Run an operation on a connection of its own, which is closed when the caller is
        cancelled."""
        return await self._readers.read_afresh(make)

    async def has_room(self) -> bool:
        """Tell whether the next message certainly fits on the disk."""
        return await asyncio.to_thread(self._log.has_room)

    def _write_until_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit batches of queued operations until the end marker comes. Runs in the writer
        thread."""
        is_open = True
        while is_open:
            job = self._jobs.get()
            batch: list[_Job[Any]] = []
            while job is not None:
                batch.append(job)
                if len(batch) == BATCH_MAX:
                    break
                try:
                    job = self._jobs.get_nowait()
                except Empty:
                    break
            is_open = job is not None
            # Answer after the commit, never before: an answer means that the operation is durable.
            self._commit(batch)
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the callers with it
                loop.call_soon_threadsafe(_answer_all, batch)
            self._tend_log()

    def _tend_log(self) -> None:
        """Checkpoint the log if it has grown enough. Runs after the callers were answered, so that
        no caller waits for a checkpoint."""
        if not self._needs_reopening:
            self._log.tend()

    def _commit(self, batch: list[_Job[Any]]) -> None:
        """Commit a batch. Operations that a full disk refused are tried once more if copying the
        log into the database frees some space."""
        self._try_to_commit(batch)
        refused = [job for job in batch if _is_for_room(job.error)]
        if not refused or self._needs_reopening or not self._log.make_room():
            return
        for job in refused:
            job.error = None
        self._try_to_commit(refused)
        if any(_is_for_room(job.error) for job in refused) and not self._needs_reopening:
            self._log.make_room()  # the failed write filled the log again

    def _try_to_commit(self, batch: list[_Job[Any]]) -> None:
        """Run a batch and commit it once. Each job then has a result or an error."""
        if not batch:
            return
        try:
            if self._needs_reopening:
                self._reopen()
            is_whole = self._run_all(batch) or self._try_all(batch)
        except apsw.Error as error:
            self._roll_back()
            self._fail(batch, translate(error))
            return
        if is_whole:
            self._end(batch)
        else:
            # SQLite rolled the whole transaction back (it does so when the disk is full). The
            # neighbours of the failed operation must not fail with it, so each gets its own
            # transaction.
            self._commit_one_by_one(batch)

    def _end(self, batch: list[_Job[Any]]) -> None:
        """Commit the open transaction. After an I/O error nobody knows whether the commit reached
        the disk: the callers get `Ambiguous`, and the next batch begins on a new connection."""
        try:
            self._connection.execute("COMMIT")
        except apsw.IOError as error:
            self._needs_reopening = True
            self._fail(batch, Ambiguous(f"the disk failed during a commit ({error})"))
        except apsw.Error as error:
            self._roll_back()
            self._fail(batch, translate(error))

    def _run_all(self, batch: list[_Job[Any]]) -> bool:
        """Run the jobs as if none could fail, which is nearly always true: a savepoint before each
        would make SQLite copy every page it changes. Returns False if one failed; everything is
        rolled back."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in batch:
                job.result = drive(connection, job.make())
        except Exception:  # noqa: BLE001 - which one, and why, the second run tells
            self._roll_back()
            return False
        return True

    def _try_all(self, batch: list[_Job[Any]]) -> bool:
        """Run each job in its own savepoint, in one transaction. Returns False if the transaction
        is gone."""
        self._connection.execute("BEGIN IMMEDIATE")
        return all(self._try(job) for job in batch)

    def _try(self, job: _Job[Any]) -> bool:
        """Run one job in a savepoint. Returns False if SQLite rolled back the whole transaction."""
        connection = self._connection
        job.error = None
        connection.execute("SAVEPOINT op")
        try:
            job.result = drive(connection, job.make())
        except Exception as error:  # noqa: BLE001 - the caller's; this thread outlives it
            is_foreign = isinstance(error, apsw.Error | UnicodeEncodeError)
            job.error = translate(error) if is_foreign else error
            if not connection.in_transaction:
                return False
            connection.execute("ROLLBACK TO op")
        connection.execute("RELEASE op")
        return True

    def _commit_one_by_one(self, batch: list[_Job[Any]]) -> None:
        """Run and commit each job in its own transaction."""
        for job in batch:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                if self._try(job):
                    self._end([job])
            except apsw.Error as error:
                self._roll_back()
                self._fail([job], translate(error))

    def _roll_back(self) -> None:
        """End the open transaction. If even that fails, the connection is replaced before the next
        batch."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            self._needs_reopening = True

    def _reopen(self) -> None:
        """Replace the connection. While that fails, every batch fails with it and tries it
        again."""
        self._connection.close(True)  # noqa: FBT003 - apsw's own signature
        self._connection = self._connect()
        self._needs_reopening = False

    @staticmethod
    def _fail(batch: list[_Job[Any]], error: PerdureError) -> None:
        """Give this error to all jobs that have no error of their own."""
        for job in batch:
            job.error = job.error or error


def _insist_on_writable(path: Path) -> None:
    """Raise `PermissionError` for a database that may not be written, before SQLite creates files
    beside it. Such files would get the database's mode and stay read-only after that is repaired;
    if they exist already, make them writable again."""
    if not path.exists():
        return
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be written", str(path))
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and not os.access(beside, os.W_OK):
            beside.chmod(0o600)


def _is_for_room(error: BaseException | None) -> bool:
    """Tell whether a job failed because the disk is full."""
    return isinstance(error, Transient) and error.code == DISK_FULL


def _answer_all(batch: list[_Job[Any]]) -> None:
    for job in batch:
        job.answer()
