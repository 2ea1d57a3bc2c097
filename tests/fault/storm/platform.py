"""Describes a chat platform as the storm uses it: where people write, and how its requests are
read."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.testkit.peers.shown import ShownMessage
from perdure.testkit.processes.faulty_proxy import PlatformRules


class Spot(msgspec.Struct, frozen=True):
    """Describes where one conversation is held: a place, a thread of it, and who writes there.
    `calmness` multiplies the pauses, where the platform's pace would not take more."""

    place: str
    thread: str = ""
    people: tuple[str, ...] = ()
    calmness: float = 1.0


class Sent(msgspec.Struct, kw_only=True):
    """Holds one message of a person. `number` is in its words; `name` is its external id in the
    gateway."""

    number: int
    spot: Spot
    person: str
    name: str
    is_edited: bool = False
    is_deleted: bool = False
    # The external ids of the updates that changed it, or their beginnings.
    changes: list[str] = msgspec.field(default_factory=list)


class Stormy(Protocol):
    """Describes one platform with people on it."""

    @property
    def url(self) -> str: ...

    @property
    def rules(self) -> PlatformRules: ...

    @property
    def spots(self) -> Sequence[Spot]: ...

    @property
    def long_words(self) -> int:
        """Return how many words the longest answers have: more than one message holds, where that
        is not too much."""
        ...

    def section(self, url: str) -> str:
        """Configure a gateway that reaches the platform at this address."""
        ...

    async def ready(self) -> None:
        """Wait until the bot can hear everybody."""
        ...

    async def write(self, spot: Spot, person: str, text: str) -> str:
        """Let a person write. Returns the message's external id."""
        ...

    async def edit(self, sent: Sent, text: str) -> str:
        """Change a message. Returns the external id of the update, or its beginning; an empty
        string if the platform does not repeat the update to a bot that was away."""
        ...

    async def delete(self, sent: Sent) -> str | None:
        """Delete a message. Returns the update's external id like `edit`; None if the platform
        never tells a bot."""
        ...

    async def disturb(self, sent: Sent) -> str:
        """Send a message to the bot again, or cut its connection. Returns which of them."""
        ...

    async def shown(self, spot: Spot) -> list[tuple[str, ShownMessage]]:
        """Return what the bot shows in a place, oldest first, each with its receipt."""
        ...
