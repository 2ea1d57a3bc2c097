"""Implements the port that tells operators things."""

from functools import partial

from perdure.domain.ids import ConversationId, NodeId, PrincipalId
from perdure.domain.journal.events import Recorded
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.delivery import operators


class StoredOperators:
    """Implements `Operators`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def is_operator(self, principal: PrincipalId) -> bool:
        return await self._driver.read(partial(operators.is_operator, principal))

    async def tell(self, text: str, *, but: ConversationId | None) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(operators.tell, text, stamp, but=but))
