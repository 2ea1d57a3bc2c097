"""Defines the port of the lists that agents keep of what they still have to do."""

from collections.abc import Sequence
from typing import Protocol

from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.tools.todo import TodoItem


class Todos(Protocol):
    """Keeps one list for each session.

    Guarantees: a list that was put is shown to people, in the transaction that stores it.
    Requires: nothing.
    Raises: `Transient`, `Ambiguous`; putting the same list again is safe.
    After a crash: the list is as it was put last.
    """

    async def get(self, session: SessionId) -> tuple[TodoItem, ...]:
        """Return a session's list; empty if there is none."""

    async def put(
        self, session: SessionId, turn: TurnId, items: Sequence[TodoItem]
    ) -> list[Recorded]:
        """Replace a session's list, and show it: the first time in a turn by a new message, and
        then by changing that message. Returns what was appended."""
