"""Defines the port that tells whether the store takes messages now."""

from collections.abc import Callable
from typing import Protocol


class StoreCondition(Protocol):
    """Knows how the store is doing.

    Guarantees: trouble begins with the first call that the store refuses, and ends only after a
    real write.
    Requires: a node that has joined, because its own row is what `look` writes.
    Raises: nothing. A store that refuses, or does not answer in time, is reported as trouble.
    After a crash: nothing is kept.
    """

    @property
    def trouble(self) -> str:
        """Return in words for people why the store cannot take a message. Returns an empty string
        if it can, as far as is known."""

    @property
    def refusals(self) -> int:
        """Return how many reads and writes the store has refused."""

    async def look(self, *, within_s: float) -> str:
        """Ask the store for a real write, unless that was done a moment ago, and return `trouble`.
        Callers at the same time share one write."""

    def when_changed(self, tell: Callable[[str, float | None], None]) -> None:
        """Have `tell` called once when trouble begins and once when it is over. It is given the
        trouble, and for how many seconds it has lasted; None while it lasts."""
