"""Defines the port that keeps what is remembered about people."""

from typing import Protocol

from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.people.memory import Memory, MemoryId


class Memories(Protocol):
    """Keeps facts about a person, which that person may read, correct and erase.

    Guarantees: each method reads and changes the memories of one principal only. What is forgotten
    is deleted, and so is the text that a correction replaces.
    Requires: keys that nobody else can have chosen: minted ids.
    Raises: `Transient` when nothing was written or read; `Ambiguous` when that is unknown.
    After a crash: a change is stored whole or not at all, and may be made again with the same
    arguments.
    """

    async def recall(self, *, principal: PrincipalId, conversation: ConversationId) -> list[Memory]:
        """Return what holds everywhere and what holds in this conversation, oldest first."""

    async def add(
        self, text: str, *, key: str, principal: PrincipalId, conversation: ConversationId | None
    ) -> Memory:
        """Remember a text in one conversation, or everywhere if that is None. If the key was used,
        or the text is remembered there already, nothing changes and that memory is returned.
        Raises `Rejected` with the code `memory_empty`, `memory_too_long` or `memory_full`, and
        `Conflict` if the key is another person's.
        """

    async def edit(
        self, memory: MemoryId, text: str, *, principal: PrincipalId, conversation: ConversationId
    ) -> Memory:
        """Replace the text of a memory that `recall` shows. Raises `NotFound` for any other, and
        `Rejected` for an empty text or one that is too long."""

    async def forget(
        self, memory: MemoryId, *, principal: PrincipalId, conversation: ConversationId
    ) -> None:
        """Delete a memory that `recall` shows. Raises `NotFound` for any other."""

    async def forget_all(self, *, principal: PrincipalId) -> int:
        """Delete everything remembered about a principal. Returns how many memories that were."""
