"""A chat platform as the storm uses it: where people write, and how its requests are read."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.testkit.faulty_proxy import PlatformRules
from perdure.testkit.peers.shown import ShownMessage


class Spot(msgspec.Struct, frozen=True):
    """Where one conversation is held: a place, a thread of it, and who writes there. `calmness`:
    by how much less is written where the platform's pace would not take more."""

    place: str
    thread: str = ""
    people: tuple[str, ...] = ()
    calmness: float = 1.0


class Sent(msgspec.Struct, kw_only=True):
    """One message of a person's. `number` is in its words; `name` is what the gateway calls it (its
    external id)."""

    number: int
    spot: Spot
    person: str
    name: str
    is_edited: bool = False
    is_deleted: bool = False
    # What the updates that changed it are called, or begin with.
    changes: list[str] = msgspec.field(default_factory=list)


class Stormy(Protocol):
    """One platform with people on it."""

    @property
    def url(self) -> str: ...

    @property
    def rules(self) -> PlatformRules: ...

    @property
    def spots(self) -> Sequence[Spot]: ...

    @property
    def long_words(self) -> int:
        """How long answers get: longer than one message, where that is not too long."""
        ...

    def section(self, url: str) -> str:
        """Configure a gateway that reaches the platform at this address."""
        ...

    async def ready(self) -> None:
        """Wait until the bot can hear everybody."""
        ...

    async def write(self, spot: Spot, person: str, text: str) -> str:
        """Let a person write; return the message's name."""
        ...

    async def edit(self, sent: Sent, text: str) -> str:
        """Change a message. Return what the update is called, or begins with; nothing where it is
        lost to those who do not listen just then."""
        ...

    async def delete(self, sent: Sent) -> str | None:
        """Take a message away, and return the same; None where no bot is ever told of that."""
        ...

    async def disturb(self, sent: Sent) -> str:
        """Tell the bot of a message again, or cut its connection; say which."""
        ...

    async def shown(self, spot: Spot) -> list[tuple[str, ShownMessage]]:
        """Return what the bot shows there, oldest first, by its receipt."""
        ...
