"""The one way in."""

from typing import Protocol

import msgspec

from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import Recorded
from perdure.domain.people.menu import PLAIN, Menu
from perdure.ports.turns.turns import Claimed


class Reception(msgspec.Struct, frozen=True, kw_only=True):
    """The update is committed; with `claimed` its turn is ours already."""

    accepted: Accepted
    claimed: Claimed | None = None


class Inbox(Protocol):
    """Stores what people send, and what they want stopped.

    Guarantees: `accept` has committed the update, its conversation, session, user message and
    queued turn when it returns, and has ended what the message replaces; the same identity again
    changes nothing and returns the first ids. `accept_and_start` also claims the turn if nothing
    is before it, in the same transaction. `stop` settles the turn in its own transaction: flushed
    text becomes the final message, open calls are closed, the epoch moves so that nothing late is
    written. `amend` rewrites a message that still waits. All return what they appended. `by` None
    may touch any turn (operators), a principal only its own.
    Requires: text that passed `storable`; `menu` is what commands may choose from.
    Raises: `Conflict` code `id_conflict` for another body under a known id; `Rejected` code
    `queue_full`; `NotFound` for an unknown turn; `Conflict` for one that is settled.
    After a crash: either all of it is there or none; the sender repeats with the same id.
    """

    async def accept(self, update: Update, *, queue_max: int, menu: Menu = PLAIN) -> Accepted: ...

    async def accept_and_start(
        self, update: Update, *, queue_max: int, menu: Menu = PLAIN
    ) -> Reception: ...

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> list[Recorded]: ...

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> list[Recorded]: ...
