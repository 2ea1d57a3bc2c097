"""A chat platform, as the outbox sees it."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import Capabilities
from perdure.domain.ids import PartId


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """One part to send. `key` is the same at every try: where the platform takes one, it is the
    idempotency key."""

    key: PartId
    address: Address
    text: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The platform's proof: its own id of what it now shows."""

    external_id: str


class Adapter(Protocol):
    """Performs one platform effect at a time.

    Guarantees: `perform` returns only with the platform's receipt; `find` asks the platform whether
    a key arrived and returns its receipt, or None when it certainly did not; `delete` takes away
    what a receipt stands for, and is content when that is gone already.
    Requires: `capabilities` hold for the place addressed; `find` is called only where `can_find`,
    `delete` only where `can_delete`.
    Raises: `Transient` (not sent, try later), `Permanent` (never), `Ambiguous` (may have arrived).
    After a crash: the same key may be offered again only where `takes_key`, or after `find`; a
    deletion may always be repeated.
    """

    name: str
    capabilities: Capabilities

    async def perform(self, post: Post) -> Receipt: ...

    async def find(self, key: PartId) -> Receipt | None: ...

    async def delete(self, receipt: str, address: Address) -> None: ...
