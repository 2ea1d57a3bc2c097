"""Defines the port that keeps what a group says without the bot, until the bot is called."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.content.overheard import Overheard


class HeardLine(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a message of a group that was not meant for the bot. `person` is the sender's id on the
    platform, and `line` what a model is told of it."""

    address: Address
    external_id: str
    person: str
    line: Overheard


class Overhearing(Protocol):
    """Keeps what people of a group say among themselves. The transaction that accepts the next
    message to the bot in the same thread takes it (`Inbox`).

    Guarantees: each method is one transaction. A place keeps so many lines and bytes, of everybody
    and of each person, and nothing that is older than a day (`domain/content/overheard.py`). What
    was taken is gone, also if its message is offered again.
    Requires: the place is a group, and its people may be heard there.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: a line is kept or not; the platform offers its message again.
    """

    async def note(self, heard: HeardLine) -> None:
        """Keep a line. The same message again changes nothing."""

    async def reword(self, heard: HeardLine) -> None:
        """Give the line of a message, if it is still kept and of the same person, other words."""

    async def drop(self, address: Address, external_id: str) -> None:
        """Drop the line of a message that was deleted."""

    async def forget(self, address: Address) -> None:
        """Forget everything that was said in a place and its threads."""
