"""Runs operations on PostgreSQL through asyncpg. This is the driver for several nodes.

An operation is one transaction on one pooled connection. Row locks and unique keys make concurrent
operations wait for each other; an operation that loses a race is run again. Leases are measured
with the server's clock only, so the clocks of the nodes do not matter.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TypeVar

import asyncpg

from perdure.domain.errors import (
    NO_FILES,
    OUT_OF_FILES,
    OUT_OF_FILES_CODE,
    Ambiguous,
    Conflict,
    Corrupt,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.ports.turns.turns import TextPiece
from perdure.store import migrations
from perdure.store.drivers.dialect import INDEXED_TEXT_MAX, Found, Searchable, Written, words_of
from perdure.store.statement import MakeOp, NotRun, Op, RaceLost, Statement, many, run

T = TypeVar("T")
# How often an operation is run that keeps losing races. Then the caller gets `NotRun`.
RETRIES = 10
# No single statement of an operation may take longer.
COMMAND_S = 60
# How long a new connection may take. A server that stands still takes connections and is silent.
CONNECT_S = 10
MIGRATION_S = 86_400  # large tables take long, and another node may migrate first
_MIGRATION_LOCK = 0x7065726475726531  # an arbitrary key: one node migrates under this lock


class PostgresDialect:
    """Provides the SQL that is specific to PostgreSQL."""

    name = "postgres"
    is_exclusive = False
    now_ms = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    one_at_a_time = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
    # The key's order depends on the database's collation, so a prefix cannot be searched as a range
    # of the key (as in SQLite). Instead each possible external id is looked up as a whole.
    begins = """
        i.external_id IN (
            SELECT CAST($1 AS TEXT) UNION ALL SELECT $1 || w.place FROM conversations w
            WHERE w.adapter = 'http' AND (CAST($2 AS TEXT) IS NULL OR w.account = $2))
        AND (CAST($2 AS TEXT) IS NULL OR i.account = $2)"""

    # The column `principal_id` holds the scope: a person's or a conversation's id.
    _INDEX = """
        INSERT INTO searchable (session_id, seq, message_id, role, principal_id, words)
        VALUES ($1, $2, $3, $4, $5, to_tsvector('simple', $6))"""
    # A condition: the conversation of message `d` is not hidden. It is looked up for each message:
    # joined, the server would sometimes read all conversations for one page.
    _SEEN = """
        (SELECT c.hidden_at FROM sessions s JOIN conversations c ON c.id = s.conversation_id
         WHERE s.id = d.session_id) IS NULL"""
    # Finds messages that contain all words among the newest ones. The index of words knows no
    # order: it would read all messages with a common word for one page.
    _AMONG_NEWEST = f"""
        SELECT d.id, d.session_id, d.seq
        FROM (SELECT id, session_id, seq, words FROM searchable
              WHERE id < $1 {{whose}} ORDER BY id DESC LIMIT $2) d
        WHERE d.words @@ plainto_tsquery('simple', $3)
          AND (CAST($4 AS BIGINT) = 1 OR {_SEEN})
        ORDER BY d.id DESC LIMIT $5"""
    _NEWEST = _AMONG_NEWEST.format(whose="")
    _NEWEST_OF = _AMONG_NEWEST.format(whose="AND principal_id = $6")
    # How many messages are looked through before the index of words is asked.
    _NEWEST_MAX = 2_000
    # Finds the newest messages that contain all words.
    _SEARCH = f"""
        SELECT d.id, d.session_id, d.seq FROM searchable d
        WHERE d.words @@ plainto_tsquery('simple', $1) AND d.id < $2
          AND (CAST($3 AS TEXT) IS NULL OR d.principal_id = $3)
          AND (CAST($4 AS BIGINT) = 1 OR {_SEEN})
        ORDER BY d.id DESC LIMIT $5"""
    # Writes the flushes of many sessions in one statement, with one array for each column. The join
    # on the epoch drops pieces whose lease was lost. A late copy of an earlier write, as after a
    # lost connection, never makes a piece shorter.
    _FLUSH = """
        INSERT INTO partials (turn_id, attempt, message_id, start, text, prefix)
        SELECT p.turn_id, p.attempt, p.message_id, p.start, p.text, p.prefix
        FROM unnest(CAST($1 AS TEXT[]), CAST($2 AS BIGINT[]), CAST($3 AS TEXT[]),
                    CAST($4 AS BIGINT[]), CAST($5 AS TEXT[]), CAST($6 AS TEXT[]),
                    CAST($7 AS TEXT[]), CAST($8 AS BIGINT[]))
             AS p (turn_id, attempt, message_id, start, text, prefix, session_id, epoch)
        JOIN sessions s ON s.id = p.session_id AND s.epoch = p.epoch
        ON CONFLICT (turn_id, attempt, message_id, start) DO UPDATE SET text = excluded.text
        WHERE length(excluded.text) >= length(partials.text)
        RETURNING turn_id, attempt"""
    # Locks the sessions of a flush against a change of their epochs, always in the order of ids.
    _SHARE = """
        SELECT id FROM sessions WHERE id = ANY (CAST($1 AS TEXT[])) ORDER BY id FOR SHARE"""

    def index(self, message: Searchable) -> Op[None]:
        recorded = message.recorded
        yield from run(
            self._INDEX,
            recorded.session, recorded.seq, message.message, message.role, message.scope,
            words_of(message.text[:INDEXED_TEXT_MAX]),
        )  # fmt: skip

    def search(
        self,
        query: str,
        *,
        scope: str | None,
        before: int | None,
        limit: int,
        with_hidden: bool = False,
    ) -> Op[list[Found]]:
        words, last = words_of(query), before or 2**62
        hidden = int(with_hidden)
        near = (last, self._NEWEST_MAX, words, hidden, limit)
        if scope is None:
            found = yield from many(Found, self._NEWEST, *near)
        else:
            found = yield from many(Found, self._NEWEST_OF, *near, scope)
        if len(found) == limit:
            return found
        return (yield from many(Found, self._SEARCH, words, last, scope, hidden, limit))

    def flush(self, pieces: Sequence[TextPiece]) -> Op[set[Written]]:
        """Write the pieces whose lease still holds. Locks the sessions first: otherwise an epoch
        could move between this check and the commit, and text of a lost lease would be written."""
        if not pieces:
            return set()
        # One statement cannot write a row twice. Of two copies of a piece the later one is longer.
        pieces = list(
            {(p.lease.turn, p.lease.attempt, p.message, p.start): p for p in pieces}.values()
        )
        yield Statement(self._SHARE, ([p.lease.session for p in pieces],))  # type: ignore[arg-type]
        columns = zip(
            *(
                (
                    piece.lease.turn, piece.lease.attempt, piece.message, piece.start, piece.text,
                    piece.origin.prefix, piece.lease.session, piece.lease.epoch,
                )
                for piece in pieces
            ),
            strict=True,
        )  # fmt: skip
        found = yield Statement(self._FLUSH, tuple(list(column) for column in columns))  # type: ignore[misc]
        return {Written(*each) for each in found}


def translate(error: BaseException, *, committing: bool = False) -> PerdureError:
    """Return the error that tells the caller what a failure means. If the connection broke during
    COMMIT (`committing`), nobody knows whether it happened: the result is `Ambiguous`."""
    match error:
        case asyncpg.DiskFullError():
            return Transient("the database's disk is full; nothing was stored", code="disk_full")
        case asyncpg.DataError():
            return Rejected("no database can hold this value; send valid Unicode without U+0000")
        case asyncpg.IntegrityConstraintViolationError():
            return Conflict(f"the store refused a write that breaks a rule: {error}")
        case asyncpg.InvalidAuthorizationSpecificationError() | asyncpg.InvalidCatalogNameError():
            return Rejected(f"PostgreSQL refuses the connection: {error}; check [store] url")
        case (
            asyncpg.PostgresConnectionError()
            | OSError()
            | asyncpg.InterfaceError()
            | asyncpg.InternalClientError()
        ):
            if committing:
                return Ambiguous(f"PostgreSQL went away during a commit ({_why(error)})")
            return _unreached(error)
        case (
            asyncpg.OperatorInterventionError()
            | asyncpg.InsufficientResourcesError()
            # A standby server answers like this until it has taken over as primary.
            | asyncpg.ReadOnlySQLTransactionError()
            # Another node has migrated the schema; the next call prepares the statement again.
            | asyncpg.InvalidCachedStatementError()
        ):
            return Transient(f"PostgreSQL cannot serve now: {error}")
        case _:
            return Corrupt(f"PostgreSQL answered in an unexpected way: {error}")


def _unreached(error: BaseException) -> Transient:
    """Return the error for a connection that could not be used before the commit: nothing
    happened."""
    if isinstance(error, OSError) and error.errno in NO_FILES:
        return Transient(f"PostgreSQL was not asked: {OUT_OF_FILES}", code=OUT_OF_FILES_CODE)
    return Transient(f"PostgreSQL cannot be reached ({_why(error)}); is it running?")


def _why(error: BaseException) -> str:
    """Return the words of an error. One that means a time limit has none of its own."""
    return str(error) or "it does not answer"


_FOREIGN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


class PostgresDriver:
    """Connects to one PostgreSQL database, migrates it and runs operations on it."""

    dialect = PostgresDialect()

    def __init__(
        self,
        url: str,
        *,
        backups: Path | None = None,
        shipped: list[migrations.Migration] | None = None,
        connections: int = 16,
    ) -> None:
        self._url = url
        self._backups = backups
        self._shipped = shipped or migrations.shipped("postgres")
        self._connections = connections
        self._pool: asyncpg.Pool | None = None

    async def open(self, *, now_ms: int) -> list[migrations.Applied]:
        """Connect to the server, then migrate. Closes the pool again if either fails."""
        try:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._connections,
                command_timeout=COMMAND_S,
                timeout=CONNECT_S,
                reset=_nothing_to_reset,
            )
            async with self._pool.acquire() as connection:
                return await self._migrate(connection, now_ms)
        except _FOREIGN as error:
            await self.close()
            raise translate(error) from error
        except PerdureError:
            await self.close()
            raise

    async def _migrate(
        self, connection: asyncpg.Connection, now_ms: int
    ) -> list[migrations.Applied]:
        """Apply pending migrations, each in one transaction, while other nodes wait for the lock.
        If the process dies, the server releases the lock, and the next node goes on with the first
        migration that is not recorded."""
        lock = "SELECT pg_advisory_lock($1)"
        await connection.execute(lock, _MIGRATION_LOCK, timeout=MIGRATION_S)
        try:
            todo = await drive(connection, migrations.pending(self._shipped))
            is_new = len(todo) == len(self._shipped)
            applied = []
            for migration in todo:
                async with connection.transaction():
                    copy = "" if is_new else await self._back_up(connection, migration)
                    await connection.execute(migration.sql, timeout=MIGRATION_S)
                    await drive(connection, migrations.record(migration, at=now_ms))
                applied.append(migrations.Applied(migration.number, migration.name, is_new, copy))
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1)", _MIGRATION_LOCK)
        return applied

    async def _back_up(
        self, connection: asyncpg.Connection, migration: migrations.Migration
    ) -> str:
        """Copy every table as it stands in this transaction, into one binary COPY file each.
        Returns the name of the folder, or an empty string if no backups are wanted."""
        if self._backups is None:
            return ""
        folder = self._backups / f"postgres.before-{migration.number:04d}"
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        tables = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        )
        for (table,) in tables:
            await connection.copy_from_table(
                table, output=folder / table, format="binary", timeout=MIGRATION_S
            )
        return folder.name

    async def shrink(self) -> None:
        """Do nothing: the caches belong to the server."""

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def write(self, make: MakeOp[T]) -> T:
        """Run an operation as one transaction. Cancelling the caller does not undo it."""
        # A task of its own: a cancelled caller must not interrupt a COMMIT, or nobody would know
        # whether it happened.
        writing = asyncio.ensure_future(self._write(make))  # noqa: TID251 - `close` waits for it
        writing.add_done_callback(_hear)
        await asyncio.wait({writing})
        return writing.result()

    async def _write(self, make: MakeOp[T]) -> T:
        """Run an operation until it does not lose a race, `RETRIES` times at most."""
        for _ in range(RETRIES):
            with contextlib.suppress(
                RaceLost, asyncpg.DeadlockDetectedError, asyncpg.SerializationError
            ):
                return await self._transact(make)
        raise NotRun("the store is too contended; try again")

    async def _transact(self, make: MakeOp[T]) -> T:
        """Run an operation once, as one transaction."""
        committing = False
        try:
            async with self._connected() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    result = await drive(connection, make())
                except (asyncpg.InternalClientError, OSError):
                    raise  # the connection is closed, and the transaction with it
                except BaseException:
                    await transaction.rollback()
                    raise
                # From here on a broken connection leaves it unknown whether the commit happened.
                committing = True
                await transaction.commit()
                return result
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
            raise
        except _FOREIGN as error:
            raise translate(error, committing=committing) from error

    async def read(self, make: MakeOp[T]) -> T:
        """Run an operation on a snapshot of its own."""
        try:
            async with (
                self._connected() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                return await drive(connection, make())
        except _FOREIGN as error:
            raise translate(error) from error

    async def read_afresh(self, make: MakeOp[T]) -> T:
        """Run an operation like `read`: connections to a server hold no old state, so any will
        do."""
        return await self.read(make)

    async def has_room(self) -> bool:
        """Return True: only the server knows its disk, and it reports a full one on a write."""
        return True

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncpg.Connection]:
        """Lend a pooled connection. Raises `NotRun` if the store is closed."""
        if self._pool is None:
            raise NotRun("the store is closed")
        async with self._pool.acquire() as connection:
            try:
                yield connection
            except (asyncpg.InternalClientError, OSError):
                # The connection was cut while it was idle and asyncpg has not noticed fully, or the
                # server did not answer in time, and nobody knows in which transaction it stands.
                # Close it, so that the pool does not lend it again.
                with contextlib.suppress(asyncpg.InterfaceError):  # the pool was faster
                    connection.terminate()
                raise


def _hear(writing: "asyncio.Task[T]") -> None:
    """Retrieve the result of a write, so that asyncio does not report an unread exception when the
    caller was cancelled and does not wait for it."""
    if not writing.cancelled():
        writing.exception()


async def _nothing_to_reset(_: asyncpg.Connection) -> None:
    """Do nothing when a connection returns to the pool. Operations change no connection settings,
    and asyncpg's usual reset would cost one more round trip for each operation."""


async def drive(connection: asyncpg.Connection, op: Op[T]) -> T:
    """Run an operation to its end on this connection, in the transaction that is open."""
    try:
        statement = next(op)
        while True:
            found = await connection.fetch(statement.sql, *statement.values)
            statement = op.send(found)
    except StopIteration as end:
        result: T = end.value
        return result
