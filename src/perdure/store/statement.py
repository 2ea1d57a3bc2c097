"""Defines how an operation of the store is written: as a generator without I/O.

A public operation is one transaction. It yields statements and is sent their rows; a driver runs
it, on the writer thread for SQLite or over the network for PostgreSQL. Because the operation itself
does no I/O, a driver may run it again from the start when the transaction was rolled back.

SQL is the subset that both databases accept. Placeholders (`$1, $2`) are numbered in order of first
use, because SQLite binds them by position.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, TypeVar

from perdure.domain.errors import Transient

SqlValue = str | int | bytes | None
Row = tuple[Any, ...]
Rows = list[Row]
T = TypeVar("T")
R = TypeVar("R")


class RaceLost(Exception):
    """Says that another transaction committed a change of the same rows first. Raised by
    operations; the driver rolls this one back and runs it again from the start."""


class NotRun(Transient):
    """Says that an operation was not run for a reason that tells nothing about the database's
    health: the store is closed, or too many transactions competed for the same rows. Nothing was
    written."""


class Statement(NamedTuple):
    """Holds one SQL statement and the values of its placeholders."""

    sql: str
    values: tuple[SqlValue, ...]


Op = Generator[Statement, Rows, T]
MakeOp = Callable[[], Op[T]]


def sql_list(words: Iterable[str]) -> str:
    """Return constant words as a quoted list in brackets, for `IN (...)`. The words are never user
    input: they are not escaped."""
    inside = ", ".join(f"'{word}'" for word in words)
    return f"({inside})"


def listed(first: int, count: int) -> str:
    """Return `count` placeholders in brackets, numbered from `first`, for `IN (...)`."""
    return f"({', '.join(f'${number}' for number in range(first, first + count))})"


def many(kind: Callable[..., R], sql: str, *values: SqlValue) -> Op[list[R]]:
    """Return all rows of a query, each passed to `kind`, with the columns as arguments in order."""
    return [kind(*each) for each in (yield Statement(sql, values))]


def one(kind: Callable[..., R], sql: str, *values: SqlValue) -> Op[R | None]:
    """Return the first row of a query, passed to `kind` as arguments, or None if there is no
    row."""
    found = yield Statement(sql, values)
    return kind(*found[0]) if found else None


def exists(sql: str, *values: SqlValue) -> Op[bool]:
    """Tell whether a query returned a row, or whether an UPDATE with RETURNING changed one."""
    return bool((yield Statement(sql, values)))


def run(sql: str, *values: SqlValue) -> Op[None]:
    """Run a statement whose rows nobody needs."""
    yield Statement(sql, values)
