"""What a process was at when it died."""

from typing import Protocol

from perdure.domain.address import Address


class Handling(Protocol):
    """Counts how often the handling of something that came in was begun and not ended.

    Guarantees: `begin` returns how often this one was begun since it was last ended, this time
    included; `end` forgets it.
    Requires: the address names adapter and account.
    Raises: `Transient`, `Ambiguous`.
    After a crash: what was being handled is still counted.
    """

    async def begin(self, address: Address, external_id: str) -> int: ...

    async def end(self, address: Address, external_id: str) -> None: ...
