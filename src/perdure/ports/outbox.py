"""The one way out."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import PartState, Step
from perdure.domain.ids import MessageId, PartId, TurnId


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is what to show or, of a deletion, the receipt of what to take away; empty where
    nothing has arrived."""

    id: PartId
    message: MessageId
    index: int
    turn: TurnId | None
    address: Address
    text: str
    attempts: int
    step: Step = Step.POST


class Outbox(Protocol):
    """Parts of replies on their way to a platform.

    Guarantees: `take` marks due parts as attempting, in order within a conversation (a part waits
    for the ones before it), and gives each to one caller; `record` moves a part along the states of
    `domain/delivery.py`, and may be repeated, except that what was withdrawn meanwhile expires
    where it would become pending; `release` gives back what this node has taken;
    `stranded` lists parts that an owner who is gone left attempting.
    Requires: the effect is performed only between `take` and `record`.
    Raises: `Conflict` when the part is no longer attempting.
    After a crash: parts left attempting are reconciled where the platform can be asked, else they
    become unknown and are shown.
    """

    async def take(self, *, adapter: str, limit: int) -> list[Part]: ...

    async def record(
        self,
        part: PartId,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
    ) -> None: ...

    async def release(self, *, adapter: str) -> int: ...

    async def stranded(self, *, adapter: str) -> list[Part]: ...

    async def expire(self, *, older_than_s: int) -> int: ...

    async def next_due_ms(self) -> int | None: ...
