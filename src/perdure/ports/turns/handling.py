"""Defines the port that tells which arrival a process was handling when it died."""

from typing import Protocol

from perdure.domain.address import Address


class Handling(Protocol):
    """Counts how often the handling of an arrival was begun and not ended.

    Guarantees: a count is stored before its method returns.
    Requires: the address names adapter and account.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: what was being handled is still counted.
    """

    async def begin(self, address: Address, external_id: str) -> int:
        """Count one more handling of an arrival. Returns the count since it was last ended."""

    async def end(self, address: Address, external_id: str) -> None:
        """Delete the count of an arrival."""
