"""Whether the store takes messages at this moment."""

from collections.abc import Callable
from typing import Protocol


class StoreCondition(Protocol):
    """How the store is doing.

    Guarantees: `trouble` says in words for people why the store cannot take a message, and is empty
    while it can, as far as is known. `look` finds out: it asks the store for a real write, unless
    somebody else did so a moment ago, and returns the trouble. Those who ask at the same time share
    one write. `refusals` counts the reads and writes that the store has refused. `when_changed` has
    its argument called once when trouble begins and once when it is over: with what the trouble is
    or was, and how many seconds it has lasted, which is None while it lasts.
    Requires: a node that has joined, for its own row is what is written.
    Raises: nothing. A store that refuses, or does not answer in time, is the answer.
    After a crash: nothing is kept.
    """

    @property
    def trouble(self) -> str: ...

    @property
    def refusals(self) -> int: ...

    async def look(self, *, within_s: float) -> str: ...

    def when_changed(self, tell: Callable[[str, float | None], None]) -> None: ...
