"""What runs operations."""

from typing import Protocol, TypeVar

from perdure.store.dialect import Dialect
from perdure.store.statement import MakeOp

T = TypeVar("T")


class Driver(Protocol):
    """One database.

    Guarantees: `write` runs the operation as one durable transaction, again if it lost a race;
    `read` runs it on one snapshot that includes every write that has returned.
    Requires: `open` before, `close` after.
    Raises: the errors of `domain/errors.py` only.
    After a crash: an operation happened whole or not at all.
    """

    @property
    def dialect(self) -> Dialect: ...

    async def open(self, *, now_ms: int) -> None: ...

    async def write(self, make: MakeOp[T]) -> T: ...

    async def read(self, make: MakeOp[T]) -> T: ...

    async def close(self) -> None: ...
