"""Declares the protocol of a driver, which runs operations on one database."""

from typing import Protocol, TypeVar

from perdure.store.drivers.dialect import Dialect
from perdure.store.migrations import Applied
from perdure.store.statement import MakeOp

T = TypeVar("T")


class Driver(Protocol):
    """Runs operations on one database.

    Guarantees: `write` is one durable transaction; `read` sees every write that has returned.
    Requires: `open` before any other call, `close` after the last. Raises: only the errors of
    `domain/errors.py`, and what the operation itself raises. After a crash: each operation has
    happened as a whole or not at all.
    """

    @property
    def dialect(self) -> Dialect:
        """Return the SQL that is specific to this database."""

    async def open(self, *, now_ms: int) -> list[Applied]:
        """Connect and apply pending migrations. Returns the migrations that were applied. Raises
        `Rejected` if the database cannot be used, e.g. because another process has it open."""

    async def write(self, make: MakeOp[T]) -> T:
        """Run an operation as one durable transaction, and return its result. Runs it again if it
        lost a race. Cancelling the caller does not undo it. `Ambiguous` means that it may have been
        committed."""

    async def read(self, make: MakeOp[T]) -> T:
        """Run an operation on one snapshot, which includes every write that has returned."""

    async def read_afresh(self, make: MakeOp[T]) -> T:
        """Run a possibly long operation like `read`, on a connection that was not used before. It
        ends when its caller is cancelled."""

    async def shrink(self) -> None:
        """Release memory that is held only for speed."""

    async def has_room(self) -> bool:
        """Return False if the disk is known to be nearly full."""

    async def close(self) -> None:
        """Finish the writes under way and release the database. A second call does nothing."""
