"""Implements the port that lists places and sends to them."""

from functools import partial

from perdure.domain.address import Address
from perdure.domain.ids import ConversationId, MessageId, NodeId, PrincipalId, TurnId
from perdure.ports.people.places import OutgoingMessage, PlaceView, SentMessage, TurnPosting
from perdure.ports.records.history import Page
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.accepting import postings, send
from perdure.store.operations.sessions import destinations, relocating
from perdure.store.operations.turn_context import Fresh


class StoredPlaces:
    """Implements `Places`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def send(self, sending: OutgoingMessage, *, queue_max: int) -> SentMessage:
        fresh = Fresh(turn=TurnId(self._mint.id("trn")), message=MessageId(self._mint.id("msg")))
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(send.send, sending, fresh, stamp, queue_max=queue_max)
        )

    async def open(self, sending: OutgoingMessage) -> ConversationId:
        return await self._driver.write(
            partial(send.open_place, sending, self._mint.stamp(self._node))
        )

    async def relocate(self, place: Address, *, to: str) -> None:
        stamp = self._mint.stamp(self._node)
        await self._driver.write(partial(relocating.relocate, place, to, stamp))

    async def find(self, posting: TurnPosting) -> str:
        return await self._driver.read(partial(postings.find, posting))

    async def known(self, *, principal: PrincipalId | None, page: Page) -> list[PlaceView]:
        return await self._driver.read(partial(destinations.known, principal=principal, page=page))
