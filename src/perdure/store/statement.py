"""Operations without I/O.

A public operation of the store is one transaction, written once as a generator: it yields
statements and is sent their rows. A driver runs it, on the writer thread for SQLite or over the
wire for PostgreSQL. SQL is the subset that both engines take, with `$1, $2` placeholders numbered
in order of first use, because SQLite binds them by position.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

Value = str | int | bytes | None
Row = tuple[Any, ...]
Rows = list[Row]
T = TypeVar("T")


class RaceLost(Exception):
    """Another transaction got there first and has committed: the driver runs this one again."""


class Statement(NamedTuple):
    sql: str
    values: tuple[Value, ...]


Op = Generator[Statement, Rows, T]
MakeOp = Callable[[], Op[T]]


def rows(sql: str, *values: Value) -> Op[Rows]:
    return (yield Statement(sql, values))


def row(sql: str, *values: Value) -> Op[Row | None]:
    """The first row, if there is one."""
    found = yield Statement(sql, values)
    return found[0] if found else None


def run(sql: str, *values: Value) -> Op[None]:
    yield Statement(sql, values)
