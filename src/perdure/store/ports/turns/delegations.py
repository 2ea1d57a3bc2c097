"""Implements the port of work that one agent gives to another."""

from functools import partial

from perdure.domain.ids import NodeId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.ports.agents.delegations import WorkDone
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.questions import delegation_rows
from perdure.store.operations.turns.ordering import delegating


class StoredDelegations:
    """Implements `Delegations`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def result(self, errand: TurnId) -> WorkDone | None:
        return await self._driver.read(partial(delegating.result_of, errand))

    async def expire(self, *, limit: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(delegating.expire, stamp, limit=limit))

    async def next_deadline_ms(self) -> int | None:
        return await self._driver.read(delegation_rows.next_deadline)

    async def unwanted(self, *, limit: int) -> list[TurnId]:
        return await self._driver.read(partial(delegation_rows.unwanted, limit=limit))

    async def stop(self, errand: TurnId) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(delegating.stop, errand, stamp))
