"""Operations without I/O.

A public operation of the store is one transaction, written once as a generator: it yields
statements and is sent their rows. A driver runs it, on the writer thread for SQLite or over the
wire for PostgreSQL. SQL is the subset that both engines take, with `$1, $2` placeholders numbered
in order of first use, because SQLite binds them by position.
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
    """Another transaction got there first and has committed: the driver runs this one again."""


class NotRun(Transient):
    """An operation was given up for a reason that says nothing about the database: the store is
    closed, or too many transactions were after the same rows."""


class Statement(NamedTuple):
    sql: str
    values: tuple[SqlValue, ...]


Op = Generator[Statement, Rows, T]
MakeOp = Callable[[], Op[T]]


def quoted(words: Iterable[str]) -> str:
    """Return words of our own in brackets, for a constant statement that compares with each."""
    inside = ", ".join(f"'{word}'" for word in words)
    return f"({inside})"


def listed(first: int, count: int) -> str:
    """Return so many placeholders in brackets, numbered from `first`."""
    return f"({', '.join(f'${number}' for number in range(first, first + count))})"


def many(kind: Callable[..., R], sql: str, *values: SqlValue) -> Op[list[R]]:
    """Return all rows of a query, each as one of a kind: its columns in the order of the fields."""
    return [kind(*each) for each in (yield Statement(sql, values))]


def one(kind: Callable[..., R], sql: str, *values: SqlValue) -> Op[R | None]:
    """Return the first row of a query as one of a kind, if there is one."""
    found = yield Statement(sql, values)
    return kind(*found[0]) if found else None


def exists(sql: str, *values: SqlValue) -> Op[bool]:
    """Tell whether a query finds a row, or a change one to change."""
    return bool((yield Statement(sql, values)))


def rows(sql: str, *values: SqlValue) -> Op[Rows]:
    return (yield Statement(sql, values))


def row(sql: str, *values: SqlValue) -> Op[Row | None]:
    """The first row, if there is one."""
    found = yield Statement(sql, values)
    return found[0] if found else None


def run(sql: str, *values: SqlValue) -> Op[None]:
    yield Statement(sql, values)
