"""Reads a SQLite database over connections that cannot write, each in its own thread.

The writing driver owns some of them. A process that only reads a database, perhaps while a node has
it open, uses one of them alone (`SqliteOnlooker`). In WAL mode readers and the writer do not block
each other.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from perdure.domain.errors import Rejected
from perdure.store import migrations
from perdure.store.drivers.sqlite_dialect import SqliteDialect, in_sqlite
from perdure.store.drivers.sqlite_errors import translate
from perdure.store.statement import MakeOp, NotRun, Op

T = TypeVar("T")
# How long SQLite waits for a lock before it reports `BusyError`.
BUSY_TIMEOUT_MS: Final = 5_000
# How often a cancelled reader is interrupted again until it has stopped.
INTERRUPT_EVERY_S: Final = 0.05


class SqliteReaders:
    """Holds one read-only connection for each reader thread, opened when the thread first reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []

    def open(self, threads: int) -> None:
        """Start the pool of reader threads. They connect later, when they first read."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-read")

    async def close(self) -> None:
        """Wait for the reads under way, then close all connections."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        for connection in self._opened:
            connection.close()
        self._opened.clear()

    def shrink(self) -> None:
        """Empty the connections' page caches. The operating system's cache still has the pages."""
        for connection in tuple(self._opened):
            with contextlib.suppress(apsw.Error):  # the connection is busy, or closed meanwhile
                connection.release_memory()

    async def read(self, make: MakeOp[T]) -> T:
        """Run an operation on a snapshot of its own."""
        if self._threads is None:
            raise NotRun("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, make)

    async def read_afresh(self, make: MakeOp[T]) -> T:
        """Run an operation on a connection opened for it, outside the reader threads, because it
        may take long. It is interrupted when the caller is cancelled."""
        opened: list[apsw.Connection] = []
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(None, self._read_afresh, make, opened)
        try:
            await asyncio.wait({reading})
        except asyncio.CancelledError:
            await _broken_off(reading, opened)
            raise
        return reading.result()

    def _read(self, make: MakeOp[T]) -> T:
        try:
            return _snapshot(self._reader(), make)
        except (apsw.Error, UnicodeEncodeError) as error:
            raise translate(error) from error

    def _read_afresh(self, make: MakeOp[T], opened: list[apsw.Connection]) -> T:
        try:
            with contextlib.closing(self._connect()) as connection:
                opened.append(connection)
                return _snapshot(connection, make)
        except (apsw.Error, UnicodeEncodeError) as error:
            raise translate(error) from error

    def _reader(self) -> apsw.Connection:
        """Return this thread's own connection, opened if needed."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect()
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        keep_plans(connection)
        return connection


class SqliteOnlooker:
    """Reads a database that another process may have open. It takes no lock, changes nothing, and
    refuses a database whose schema is not exactly its own."""

    dialect = SqliteDialect()

    def __init__(self, path: Path) -> None:
        self._readers = SqliteReaders(path)
        self._shipped = migrations.shipped("sqlite")

    async def open(self, *, now_ms: int) -> list[migrations.Applied]:
        """Connect and check the schema. Returns no migrations, since a reader applies none."""
        del now_ms
        self._readers.open(1)
        try:
            await self._readers.read(lambda: migrations.insist_on_current(self._shipped))
        except BaseException:
            await self.close()
            raise
        return []

    async def close(self) -> None:
        await self._readers.close()

    async def write(self, make: MakeOp[T]) -> T:
        """Raise `Rejected`: nothing can be written here."""
        raise Rejected("this database is open for reading only")

    async def read(self, make: MakeOp[T]) -> T:
        return await self._readers.read(make)

    async def read_afresh(self, make: MakeOp[T]) -> T:
        return await self._readers.read_afresh(make)

    async def shrink(self) -> None:
        await asyncio.to_thread(self._readers.shrink)

    async def has_room(self) -> bool:
        """Return True: nothing is written here, so the disk does not matter."""
        return True


async def _broken_off(reading: "asyncio.Future[Any]", opened: list[apsw.Connection]) -> None:
    """Interrupt a reader again and again until it has stopped. One interrupt is not enough: between
    two statements SQLite ignores it."""
    while not reading.done():
        for connection in opened:
            with contextlib.suppress(apsw.Error):  # the connection is closed already
                connection.interrupt()
        await asyncio.wait({reading}, timeout=INTERRUPT_EVERY_S)
    reading.exception()


def _snapshot(connection: apsw.Connection, make: MakeOp[T]) -> T:
    """Run an operation in one read transaction, so that all its queries see the same state."""
    connection.execute("BEGIN")
    try:
        return drive(connection, make())
    finally:
        # Not COMMIT: after a failed statement COMMIT would fail too, and the connection would stay
        # inside the transaction, unusable for the next read.
        connection.execute("ROLLBACK")


def keep_plans(connection: apsw.Connection) -> None:
    """Let SQLite keep compiled statements: otherwise it compiles a statement again whenever it is
    bound to other values."""
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def drive(connection: apsw.Connection, op: Op[T]) -> T:
    """Run an operation to its end on this connection, in the transaction that is open."""
    execute: Callable[..., Any] = connection.execute
    try:
        statement = next(op)
        while True:
            found = execute(in_sqlite(statement.sql), statement.values).fetchall()
            statement = op.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
