"""SQLite through apsw: one writer thread owns the file, readers have connections of their own.

All operations that wait share one transaction and so one fsync (group commit), each inside a
savepoint, so that a failed one does not fail its neighbours. A side lock refuses a second process;
it is released by the kernel however this one ends. apsw carries its own SQLite, the same on every
host.
"""

import asyncio
import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

import apsw

from perdure.domain.errors import (
    NO_SPACE,
    Ambiguous,
    Conflict,
    Corrupt,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.store import migrations
from perdure.store.sqlite_dialect import SqliteDialect, in_sqlite, schema_in_sqlite
from perdure.store.statement import MakeOp, Op

T = TypeVar("T")
BATCH_MAX: Final = 2_000
READERS: Final = 4
_PRAGMAS: Final = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = {synchronous};
    PRAGMA busy_timeout = 5000;
    PRAGMA foreign_keys = ON;
    PRAGMA temp_store = MEMORY;
    PRAGMA cache_size = -16000;
    PRAGMA wal_autocheckpoint = 8000;
    PRAGMA journal_size_limit = 67108864;"""


def translate(error: Exception, *, opening: bool = False) -> PerdureError:
    """The one place where SQLite's failures become ours. What cannot be opened or written while we
    run (no file handle is left, the disk was mounted anew) could be a moment ago, and will be."""
    match error:
        case UnicodeEncodeError():
            return Rejected("no database can hold this text; send valid Unicode")
        case apsw.FullError() | OSError() if _is_full(error):
            return Transient(
                "the disk is full; free some space, nothing was stored", code="disk_full"
            )
        case OSError():
            return Rejected(
                f"the database cannot be opened ({error.strerror}: {error.filename}); "
                "check the home folder and its permissions",
                code="not_writable",
            )
        case apsw.NotADBError() | apsw.CorruptError():
            return Corrupt(
                f"the database is damaged ({error}); stop Perdure and restore a backup",
                code="damaged",
            )
        case apsw.ConstraintError():
            return Conflict(f"the store refused a write that breaks a rule: {error}")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            told = f"the database cannot be opened for writing ({error}); check its permissions"
            return (Rejected if opening else Transient)(told, code="not_writable")
        case apsw.IOError() | apsw.BusyError() | apsw.NoMemError():
            return Transient(f"the disk did not take the write ({error}); try again")
        case _:
            return Corrupt(f"the database answered in an unexpected way: {error}")


def _is_full(error: Exception) -> bool:
    return not isinstance(error, OSError) or error.errno in NO_SPACE


class _Job(Generic[T]):
    """One operation on its way through the writer thread. It is never cancelled half-way."""

    __slots__ = ("error", "future", "make", "result")

    def __init__(self, make: MakeOp[T], future: "asyncio.Future[T]") -> None:
        self.make = make
        self.future = future
        self.result: T | None = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class SqliteDriver:
    """Opens, migrates and runs operations on one database file."""

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
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._thread: threading.Thread | None = None
        self._lock_fd: int | None = None
        self._needs_reopening = False

    async def open(self, *, now_ms: int) -> None:
        await asyncio.to_thread(self._open, now_ms)
        loop = asyncio.get_running_loop()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="perdure-read")
        self._thread = threading.Thread(
            target=self._write_until_closed, args=(loop,), name="perdure-write", daemon=True
        )
        self._thread.start()

    def _open(self, now_ms: int) -> None:
        with contextlib.ExitStack() as undo:
            try:
                self._lock()
                undo.callback(self._unlock)
                self._connection = self._connect()
                undo.callback(self._connection.close)
                self._path.chmod(0o600)
                self._migrate(now_ms)
            except (apsw.Error, OSError) as error:
                raise translate(error, opening=True) from error
            undo.pop_all()

    def _lock(self) -> None:
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
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        try:
            connection.execute(_PRAGMAS.format(synchronous=self._synchronous)).fetchall()
        except apsw.IOError as error:
            # Where room is missing for the files beside the database, SQLite tells only the number.
            if connection.system_errno in NO_SPACE:
                raise apsw.FullError(str(error)) from error
            raise
        _keep_plans(connection)
        return connection

    def _migrate(self, now_ms: int) -> None:
        connection = self._connection
        is_new = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        todo = drive(connection, migrations.pending(self._shipped))
        for migration in todo:
            if not is_new:
                self._back_up(migration)
            with connection:
                connection.execute(schema_in_sqlite(migration))
                drive(connection, migrations.record(migration, at=now_ms))

    def _back_up(self, migration: migrations.Migration) -> None:
        """Whole or absent: the copy gets its name only once it is complete and on disk."""
        target = self._path.with_name(f"{self._path.name}.before-{migration.number:04d}")
        unfinished = target.with_name(target.name + ".part")
        unfinished.unlink(missing_ok=True)
        self._connection.execute("VACUUM INTO ?", (str(unfinished),))
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.chmod(0o600)
        unfinished.replace(target)

    async def close(self) -> None:
        """Finish what is queued, then let go of the file."""
        # Nobody may get into the queue behind the end of it: such a write would never be answered.
        thread, self._thread = self._thread, None
        readers, self._readers = self._readers, None
        if thread is None:
            return
        self._jobs.put(None)
        await asyncio.to_thread(thread.join)
        if readers is not None:
            await asyncio.to_thread(readers.shutdown)
        for connection in [*self._opened, self._connection]:
            connection.close()
        self._opened.clear()
        self._unlock()

    async def write(self, make: MakeOp[T]) -> T:
        """Run an operation in the next group commit. Cancelling the caller does not undo it."""
        if self._thread is None:
            raise Transient("the store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(make, future))
        return await future

    async def read(self, make: MakeOp[T]) -> T:
        """Run an operation on a snapshot of its own."""
        if self._readers is None:
            raise Transient("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, make)

    def _read(self, make: MakeOp[T]) -> T:
        try:
            connection = self._reader()
            connection.execute("BEGIN")
            try:
                return drive(connection, make())
            finally:
                # Not COMMIT: after a failure that would fail too, and leave the reader unusable.
                connection.execute("ROLLBACK")
        except (apsw.Error, UnicodeEncodeError) as error:
            raise translate(error) from error

    def _reader(self) -> apsw.Connection:
        """This thread's own connection."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            flags = apsw.SQLITE_OPEN_READONLY
            connection = apsw.Connection(str(self._path), flags=flags)
            connection.execute("PRAGMA busy_timeout = 5000").fetchall()
            _keep_plans(connection)
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    def _write_until_closed(self, loop: asyncio.AbstractEventLoop) -> None:
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
            self._commit(batch)
            with contextlib.suppress(RuntimeError):  # the loop is gone, and so is who waits
                loop.call_soon_threadsafe(_answer_all, batch)

    def _commit(self, batch: list[_Job[Any]]) -> None:
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
            # SQLite rolled the whole transaction back (a full disk does that): the neighbours of
            # the culprit must not suffer, so each gets its own.
            self._commit_one_by_one(batch)

    def _end(self, batch: list[_Job[Any]]) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.IOError as error:
            self._needs_reopening = True
            self._fail(batch, Ambiguous(f"the disk failed during a commit ({error})"))
        except apsw.Error as error:
            self._roll_back()
            self._fail(batch, translate(error))

    def _run_all(self, batch: list[_Job[Any]]) -> bool:
        """Run the jobs as if none could fail, which is nearly always so: a savepoint before each
        would make SQLite copy every page it changes. False when one failed and nothing is kept."""
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
        self._connection.execute("BEGIN IMMEDIATE")
        return all(self._try(job) for job in batch)

    def _try(self, job: _Job[Any]) -> bool:
        """Run one job in a savepoint. False when the transaction itself is gone."""
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
        for job in batch:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                if self._try(job):
                    self._end([job])
            except apsw.Error as error:
                self._roll_back()
                self._fail([job], translate(error))

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            self._needs_reopening = True

    def _reopen(self) -> None:
        """Begin the next batch on a fresh connection; while that fails, batches fail with it."""
        self._connection.close(True)  # noqa: FBT003 - apsw's own signature
        self._connection = self._connect()
        self._needs_reopening = False

    @staticmethod
    def _fail(batch: list[_Job[Any]], error: PerdureError) -> None:
        for job in batch:
            job.error = job.error or error


def _answer_all(batch: list[_Job[Any]]) -> None:
    for job in batch:
        job.answer()


def _keep_plans(connection: apsw.Connection) -> None:
    """Without this SQLite compiles a statement again whenever it is bound to other values."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def drive(connection: apsw.Connection, op: Op[T]) -> T:
    """Run an operation to its end on this connection, in whatever transaction is open."""
    execute: Callable[..., Any] = connection.execute
    try:
        statement = next(op)
        while True:
            found = execute(in_sqlite(statement.sql), statement.values).fetchall()
            statement = op.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
