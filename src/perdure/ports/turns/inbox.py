"""Defines the port through which everything comes in."""

from typing import Protocol

import msgspec

from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Recorded
from perdure.domain.people.menu import PLAIN, Menu
from perdure.ports.turns.turns import Claimed


class Reception(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an update that was accepted. With `claimed`, this node also has its turn already."""

    accepted: Accepted
    claimed: Claimed | None = None


class Inbox(Protocol):
    """Stores what people send, and stops and changes it.

    Guarantees: each method is one transaction, and returns once it is durable. `by` None may touch
    any turn (operators), a principal only its own.
    Requires: text that passed `storable`; `menu` is what commands may choose from.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: either all of a change is stored or none; the sender repeats with the same id.
    """

    async def accept(self, update: Update, *, queue_max: int, menu: Menu = PLAIN) -> Accepted:
        """Store an update with its conversation, session, message and queued turn, or carry out its
        command, and end what the message replaces.

        The same identity again changes nothing and returns the first ids. Raises `Conflict` with
        the code `id_conflict` for another text under a known identity, and `Rejected` with the code
        `queue_full` if too many turns wait.
        """

    async def accept_and_start(
        self, update: Update, *, queue_max: int, menu: Menu = PLAIN
    ) -> Reception:
        """Accept an update as `accept` does, and in the same transaction claim its turn if nothing
        is before it."""

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> list[Recorded]:
        """Replace the text of a message that still waits. Returns what was appended. Raises
        `NotFound` for an unknown turn, `Conflict` if it has begun, and `Rejected` for an empty
        text."""

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> list[Recorded]:
        """Settle a turn as stopped. Returns what was appended.

        Flushed text becomes the final message, open calls are closed, and the epoch moves, so that
        no late write of its runner is taken. Raises `NotFound` for an unknown turn, and `Conflict`
        if it is settled already.
        """
