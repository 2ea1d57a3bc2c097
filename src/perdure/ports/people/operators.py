"""Defines the port that knows the operators and tells them what concerns them."""

from typing import Protocol

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.journal.events import Recorded


class Operators(Protocol):
    """Knows the people who run the gateway, and tells them things.

    Guarantees: each method is one transaction or one snapshot.
    Requires: text that passed `storable`.
    Raises: `Transient` when nothing was written or read; `Ambiguous` when that is unknown.
    After a crash: either all operators were told, or none.
    """

    async def is_operator(self, principal: PrincipalId) -> bool:
        """Tell whether a principal is an operator now."""

    async def tell(self, text: str, *, but: ConversationId | None) -> list[Recorded]:
        """Post a notice in the home conversation of each operator, except in `but`. Returns what
        was journalled."""
