"""Defines the port that keeps how people order their conversations."""

from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId


class Shelving(msgspec.Struct, frozen=True, kw_only=True):
    """Says what a person wants to do with a conversation in their list. None leaves a thing as it
    is. `is_seen`: everything that is there now was seen."""

    pinned: bool | None = None
    archived: bool | None = None
    hidden: bool | None = None
    is_seen: bool = False


class Shelves(Protocol):
    """Keeps how people order their conversations.

    Guarantees: a wish is recorded in one transaction. The same wish again changes nothing.
    Requires: the caller has decided whether its client may order this conversation.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: all recorded wishes stand.
    """

    async def shelve(self, conversation: ConversationId, wish: Shelving) -> None:
        """Record what a person did with a conversation."""
