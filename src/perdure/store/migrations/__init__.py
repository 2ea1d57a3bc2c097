"""Finds and records the numbered migrations of the schema.

Migrations only go forward, and a file never changes once it was shipped: its checksum is stored
when it is applied. A file without a database in its name serves both databases.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from perdure.domain.errors import Corrupt, Rejected
from perdure.store.statement import Op, many, run

# Creates the table that records which migrations were applied.
_CREATE = """
    CREATE TABLE IF NOT EXISTS schema_migrations (
        number BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
        applied_at BIGINT NOT NULL)"""
# Reads which migrations were applied, and in which form.
_APPLIED = "SELECT number, checksum FROM schema_migrations ORDER BY number"
# Records that a migration was applied.
_RECORD = """
    INSERT INTO schema_migrations (number, name, checksum, applied_at) VALUES ($1, $2, $3, $4)"""


class Migration(NamedTuple):
    """Holds one migration as it was shipped. `is_shared` means that its SQL is written for
    PostgreSQL and must be translated for SQLite."""

    number: int
    name: str
    sql: str
    is_shared: bool = True

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(NamedTuple):
    """Describes a migration that was applied when the store was opened. `copy` names the file or
    folder with the backup made before it; it is empty for a new database, which needs none."""

    number: int
    name: str
    is_new: bool
    copy: str = ""


def shipped(database: str) -> list[Migration]:
    """Return the migrations that this version has for one database, in order."""
    found = []
    for file in Path(__file__).parent.iterdir():
        number, _, rest = file.name.partition("_")
        name, _, suffix = rest.partition(".")
        if suffix in ("sql", f"{database}.sql"):
            is_shared = suffix == "sql"
            found.append(Migration(int(number), name, file.read_text("utf-8"), is_shared))
    return sorted(found)


class _Recorded(NamedTuple):
    number: int
    checksum: str


def pending(migrations: list[Migration]) -> Op[list[Migration]]:
    """Return the migrations that are still to be applied. Raises `Rejected` for a newer schema and
    `Corrupt` for an altered one, before anything is changed."""
    yield from run(_CREATE)
    applied = yield from _checksums()
    known = {migration.number: migration for migration in migrations}
    newer = sorted(set(applied) - set(known))
    if newer:
        raise Rejected(
            f"this database was written by a newer Perdure (schema {newer[-1]}, this one knows up "
            f"to {max(known)}); install version 0.{newer[-1]} or newer, or restore the backup made "
            "before the upgrade",
            code="newer_schema",
        )
    for number, checksum in applied.items():
        if known[number].checksum != checksum:
            raise Corrupt(
                f"migration {number} ({known[number].name}) was applied in another form than this "
                "Perdure ships: the database was made by a build from before version 0.8, whose "
                "schema still changed. Open it with that build, or choose another home with --home"
            )
    return [migration for migration in migrations if migration.number not in applied]


def insist_on_current(migrations: list[Migration]) -> Op[None]:
    """Raise `Rejected` unless the schema is exactly this version's. For readers, which may not
    migrate."""
    applied = yield from _checksums()
    if applied != {migration.number: migration.checksum for migration in migrations}:
        raise Rejected(
            "the running node is of another version than this command; restart it first: "
            "perdure restart",
            code="other_schema",
        )


def _checksums() -> Op[dict[int, str]]:
    """Return the checksums of the migrations that were applied, by number."""
    return {each.number: each.checksum for each in (yield from many(_Recorded, _APPLIED))}


def record(migration: Migration, *, at: int) -> Op[None]:
    """Record a migration as applied. Runs in the migration's own transaction, so that after a crash
    it has happened and is recorded, or neither."""
    yield from run(_RECORD, migration.number, migration.name, migration.checksum, at)
