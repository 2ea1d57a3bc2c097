"""Implements the port that orders titles and summaries."""

from functools import partial

from perdure.domain.ids import NodeId, SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.turns.ordering import automatic_errands


class StoredErrands:
    """Implements `Errands`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def entitle(self, session: SessionId, *, at: TurnId, agent: str) -> list[Recorded]:
        return await self._driver.write(
            partial(
                automatic_errands.entitle,
                session,
                at,
                agent,
                self._mint.stamp(self._node),
            )
        )

    async def compact(
        self, session: SessionId, *, keep_tokens: int, agent: str, stand_in: str = ""
    ) -> list[Recorded]:
        return await self._driver.write(
            partial(
                automatic_errands.compact,
                session,
                agent,
                self._mint.stamp(self._node),
                keep_tokens=keep_tokens,
                stand_in=stand_in,
            )
        )
