"""What runs operations."""

from typing import Protocol, TypeVar

from perdure.store.drivers.dialect import Dialect
from perdure.store.migrations import Applied
from perdure.store.statement import MakeOp

T = TypeVar("T")


class Driver(Protocol):
    """One database.

    Guarantees: `write` runs the operation as one durable transaction, again if it lost a race;
    `read` runs it on one snapshot that includes every write that has returned; `read_afresh` does
    so on a connection that nobody has used before, and ends it when its caller is cancelled.
    `shrink` lets go of memory that is only held for speed. `has_room` is false where
    the disk is known to be nearly full. `open` returns the migrations that it applied.
    Requires: `open` before, `close` after.
    Raises: the errors of `domain/errors.py` only.
    After a crash: an operation happened whole or not at all.
    """

    @property
    def dialect(self) -> Dialect: ...

    async def open(self, *, now_ms: int) -> list[Applied]: ...

    async def write(self, make: MakeOp[T]) -> T: ...

    async def read(self, make: MakeOp[T]) -> T: ...

    async def read_afresh(self, make: MakeOp[T]) -> T: ...

    async def shrink(self) -> None: ...

    async def has_room(self) -> bool: ...

    async def close(self) -> None: ...
