"""Reading a SQLite database: connections that cannot write, each in a thread of its own.

The writing driver has some of them. Somebody who only looks at a database, also while a node has it
open, has one and nothing else (`SqliteOnlooker`): the write-ahead log lets them read beside each
other.
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
BUSY_TIMEOUT_MS: Final = 5_000
INTERRUPT_EVERY_S: Final = 0.05


class SqliteReaders:
    """Connections for reading, at most as many as there are threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []

    def open(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="perdure-read")

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        for connection in self._opened:
            connection.close()
        self._opened.clear()

    def shrink(self) -> None:
        """Empty the page caches; the system's own still has the pages."""
        for connection in tuple(self._opened):
            with contextlib.suppress(apsw.Error):  # it is at work, or closed by now
                connection.release_memory()

    async def read(self, make: MakeOp[T]) -> T:
        """Run an operation on a snapshot of its own."""
        if self._threads is None:
            raise NotRun("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, make)

    async def read_afresh(self, make: MakeOp[T]) -> T:
        """Run an operation on a connection that is opened for it, in none of the readers' threads:
        it may take long. It is broken off when the caller is cancelled."""
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
        """This thread's own connection."""
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
    """A driver that reads a database which another process may have open. It takes no lock, changes
    nothing, and refuses a database of another schema than its own."""

    dialect = SqliteDialect()

    def __init__(self, path: Path) -> None:
        self._readers = SqliteReaders(path)
        self._shipped = migrations.shipped("sqlite")

    async def open(self, *, now_ms: int) -> list[migrations.Applied]:
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
        raise Rejected("this database is open for reading only")

    async def read(self, make: MakeOp[T]) -> T:
        return await self._readers.read(make)

    async def read_afresh(self, make: MakeOp[T]) -> T:
        return await self._readers.read_afresh(make)

    async def shrink(self) -> None:
        await asyncio.to_thread(self._readers.shrink)

    async def has_room(self) -> bool:
        """Nothing is written here, so there is room enough."""
        return True


async def _broken_off(reading: "asyncio.Future[Any]", opened: list[apsw.Connection]) -> None:
    """Interrupt a reader until it has noticed: between two statements nobody listens."""
    while not reading.done():
        for connection in opened:
            with contextlib.suppress(apsw.Error):  # it is closed already
                connection.interrupt()
        await asyncio.wait({reading}, timeout=INTERRUPT_EVERY_S)
    reading.exception()


def _snapshot(connection: apsw.Connection, make: MakeOp[T]) -> T:
    connection.execute("BEGIN")
    try:
        return drive(connection, make())
    finally:
        # Not COMMIT: after a failure that would fail too, and leave the reader unusable.
        connection.execute("ROLLBACK")


def keep_plans(connection: apsw.Connection) -> None:
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
