"""Those who run the gateway, and where they read what concerns them."""

from typing import Protocol

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.journal.events import Recorded


class Operators(Protocol):
    """Who runs the gateway, and telling them something.

    Guarantees: `is_operator` is as the store knows it now. `tell` posts a notice into the home
    conversation of each operator, except the one named by `but`, in one transaction.
    Requires: text that passed `storable`.
    Raises: `Transient`, `Ambiguous`.
    After a crash: all of them were told, or none.
    """

    async def is_operator(self, principal: PrincipalId) -> bool: ...

    async def tell(self, text: str, *, but: ConversationId | None) -> list[Recorded]: ...
