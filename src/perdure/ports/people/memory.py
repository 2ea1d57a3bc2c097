"""What is remembered about people."""

from typing import Protocol

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.people.memory import Memory, MemoryId


class Memories(Protocol):
    """Facts about a person, which are that person's to read, correct and erase.

    Guarantees: everything is limited to one principal; nobody reads or touches another's. `recall`
    gives what holds everywhere and in the given conversation, oldest first. `add` keeps a text
    everywhere, or in one `conversation`; a `key` that was used, or a text that is kept there
    already, changes nothing and returns what is there. `edit` and `forget` reach what `recall`
    shows, `forget_all` everything of the principal's, and returns how much that was. What is
    forgotten is deleted, and so is what a correction replaces.
    Requires: keys that nobody else can have chosen: ids that were minted.
    Raises: `Rejected` code `memory_empty`, `memory_too_long` or `memory_full`; `NotFound` for what
    is not there or not the caller's.
    After a crash: a change is there whole or not at all, and may be made again with the same
    arguments.
    """

    async def recall(
        self, *, principal: PrincipalId, conversation: ConversationId
    ) -> list[Memory]: ...

    async def add(
        self, text: str, *, key: str, principal: PrincipalId, conversation: ConversationId | None
    ) -> Memory: ...

    async def edit(
        self, memory: MemoryId, text: str, *, principal: PrincipalId, conversation: ConversationId
    ) -> Memory: ...

    async def forget(
        self, memory: MemoryId, *, principal: PrincipalId, conversation: ConversationId
    ) -> None: ...

    async def forget_all(self, *, principal: PrincipalId) -> int: ...
