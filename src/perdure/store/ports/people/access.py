"""Implements the port that remembers who may speak."""

from functools import partial

from perdure.domain.errors import NotFound
from perdure.domain.ids import NodeId
from perdure.ports.people.access import CallerStanding, DeadLetter, PairingView, PlacedArrival
from perdure.ports.people.principals import LONGEST
from perdure.ports.records.history import Page
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.delivery import dead_letters
from perdure.store.operations.people import access


class StoredAccess:
    """Implements `AccessRecords`: pairings, refusals and dead letters."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def standing(self, caller: PlacedArrival) -> CallerStanding:
        return await self._driver.read(partial(access.standing, caller))

    async def ask(self, caller: PlacedArrival, code: str) -> bool:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(access.ask, caller, code, stamp))

    async def refuse(self, caller: PlacedArrival, reason: str, *, told: str = "") -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(access.refuse, caller, reason, stamp, told=told))

    async def park(self, letter: DeadLetter) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(dead_letters.park, letter, stamp))

    async def pairings(self, page: Page = LONGEST) -> list[PairingView]:
        return await self._driver.read(partial(access.pairings, page, at=self._mint.now_ms()))

    async def approve(self, code: str, *, by: str) -> PairingView:
        """Let in the person who got this code. Raises `NotFound` for a wrong code; it is raised
        after the commit, so that the wrong code is counted."""
        stamp = self._mint.stamp(self._node)
        approved = await self._driver.write(partial(access.approve, code, stamp, by=by))
        if approved is None:
            raise NotFound(
                "no request has this code, or its hour is over; ask the person to write to the "
                "bot again, and see `perdure pair list`"
            )
        return approved

    async def revoke(self, pairing: str, *, by: str) -> PairingView:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(access.revoke, pairing, stamp, by=by))
