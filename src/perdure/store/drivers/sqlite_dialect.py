"""Provides the SQL that is specific to SQLite, and translates shared SQL for it."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

import apsw

from perdure.domain.errors import Corrupt
from perdure.ports.turns.turns import TextPiece
from perdure.store import migrations
from perdure.store.drivers.dialect import INDEXED_TEXT_MAX, Found, Searchable, Written, words_of
from perdure.store.statement import Op, many, one, run

# What PostgreSQL needs for row locks at the end of a query. SQLite has one writer and no such
# locks.
_LOCKING: Final = re.compile(r"(?<!\s)\s+FOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?\s*$")
_PLACEHOLDER: Final = re.compile(r"\$(\d+)")


class SqliteDialect:
    """Provides the SQL that is specific to SQLite."""

    name = "sqlite"
    is_exclusive = True
    # Holding the file lock is the lease, so a lease must never run out. Leases are measured against
    # this constant, which never advances.
    now_ms = "(9007199254740991 - 86400000)"
    # SQLite has one writer, so transactions wait for each other anyway.
    one_at_a_time = "SELECT $1"
    # Text is ordered by its bytes, so ids with the same beginning are one range of the key.
    begins = """
        i.external_id >= $1 AND i.external_id < CAST($1 AS TEXT) || char(1114111)
        AND (CAST($2 AS TEXT) IS NULL OR i.account = $2)"""

    # Records which message an index entry belongs to.
    _INDEX_ROW = """
        INSERT INTO searchable (session_id, seq, message_id, role)
        VALUES ($1, $2, $3, $4)"""
    # Indexes the words of the message that was inserted just before.
    _INDEX_TEXT = """
        INSERT INTO search_index (rowid, scope, text) VALUES (last_insert_rowid(), $1, $2)"""
    # Finds the newest messages that contain all words.
    _SEARCH = """
        SELECT d.id, d.session_id, d.seq
        FROM search_index i JOIN searchable d ON d.id = i.rowid
        JOIN sessions s ON s.id = d.session_id JOIN conversations c ON c.id = s.conversation_id
        WHERE search_index MATCH $1 AND i.rowid < $2 AND (c.hidden_at IS NULL OR $3 = 1)
        ORDER BY i.rowid DESC LIMIT $4"""
    # Writes one piece of text if the epoch is still the lease's; otherwise the SELECT has no row. A
    # late copy of an earlier write never makes a piece shorter.
    _FLUSH = """
        INSERT INTO partials (turn_id, attempt, message_id, start, text, prefix)
        SELECT $1, $2, $3, $4, $5, $6 FROM sessions WHERE id = $7 AND epoch = $8
        ON CONFLICT (turn_id, attempt, message_id, start) DO UPDATE SET text = excluded.text
        WHERE length(excluded.text) >= length(partials.text)
        RETURNING turn_id, attempt"""

    def index(self, message: Searchable) -> Op[None]:
        recorded = message.recorded
        yield from run(
            self._INDEX_ROW, recorded.session, recorded.seq, message.message, message.role
        )
        scope, text = _word(message.scope), words_of(message.text[:INDEXED_TEXT_MAX])
        yield from run(self._INDEX_TEXT, scope, text)

    def search(
        self,
        query: str,
        *,
        scope: str | None,
        before: int | None,
        limit: int,
        with_hidden: bool = False,
    ) -> Op[list[Found]]:
        words = " ".join(f'text:"{word}"' for word in words_of(query).split())
        if not words:
            return []
        if scope is not None:
            words = f'scope:"{_word(scope)}" {words}'
        last = before or 2**62
        return (yield from many(Found, self._SEARCH, words, last, int(with_hidden), limit))

    def flush(self, pieces: Sequence[TextPiece]) -> Op[set[Written]]:
        written: set[Written] = set()
        for piece in pieces:
            lease = piece.lease
            found = yield from one(
                Written,
                self._FLUSH,
                lease.turn, lease.attempt, piece.message, piece.start, piece.text,
                piece.origin.prefix, lease.session, lease.epoch,
            )  # fmt: skip
            if found is not None:
                written.add(found)
        return written


def _word(scope: str) -> str:
    """Return an id as one word of the tokenizer, which would split it at the underscore."""
    return scope.replace("_", "")


@cache
def in_sqlite(sql: str) -> str:
    """Return shared SQL without PostgreSQL's row locks. Asserts that placeholders are numbered in
    order of first use, because SQLite binds them by position."""
    used = list(dict.fromkeys(_PLACEHOLDER.findall(sql)))
    assert used == [str(n + 1) for n in range(len(used))], f"placeholders out of order: {sql}"
    return _LOCKING.sub("", sql)


def insist_on_references(connection: apsw.Connection, migration: migrations.Migration) -> None:
    """Raise `Corrupt` if a migration that recreated tables has left rows whose reference is
    missing. Runs inside the migration's transaction, so raising undoes the migration."""
    if "DROP TABLE" not in migration.sql:
        return
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        raise Corrupt(
            f"migration {migration.number} finds rows of {broken[0]} that refer to nothing in "
            f"{broken[2]}; nothing was changed: restore a backup"
        )


def schema_in_sqlite(migration: migrations.Migration) -> str:
    """Return a migration's SQL for SQLite: its integer type, and strict tables without rowids where
    the table is marked as keyed."""
    if not migration.is_shared:
        return migration.sql
    text = migration.sql.replace("BIGINT", "INTEGER").replace(
        ") /* keyed */;", ") STRICT, WITHOUT ROWID;"
    )
    return re.sub(r"^\);", ") STRICT;", text, flags=re.MULTILINE)
