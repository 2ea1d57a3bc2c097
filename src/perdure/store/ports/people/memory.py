"""Implements the memories port. Each method is one transaction of
`operations/people/memories.py`."""

from functools import partial

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.people.memory import Memory, MemoryId
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.people import memories
from perdure.store.operations.people.memories import MemoryOwner


class StoredMemory:
    """Implements `Memories`."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def recall(self, *, principal: PrincipalId, conversation: ConversationId) -> list[Memory]:
        person = MemoryOwner(principal, conversation)
        return await self._driver.read(partial(memories.recall, person))

    async def add(
        self, text: str, *, key: str, principal: PrincipalId, conversation: ConversationId | None
    ) -> Memory:
        return await self._driver.write(
            partial(
                memories.add,
                text,
                key=key,
                principal=principal,
                conversation=conversation,
                at=self._mint.now_ms(),
            )
        )

    async def edit(
        self, memory: MemoryId, text: str, *, principal: PrincipalId, conversation: ConversationId
    ) -> Memory:
        person, at = MemoryOwner(principal, conversation), self._mint.now_ms()
        return await self._driver.write(partial(memories.edit, memory, text, person, at=at))

    async def forget(
        self, memory: MemoryId, *, principal: PrincipalId, conversation: ConversationId
    ) -> None:
        person = MemoryOwner(principal, conversation)
        await self._driver.write(partial(memories.forget, memory, person))

    async def forget_all(self, *, principal: PrincipalId) -> int:
        return await self._driver.write(partial(memories.forget_all, principal))
