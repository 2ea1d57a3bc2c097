"""Defines the port of randomness."""

from typing import Protocol


class Entropy(Protocol):
    """Provides randomness. There is no other source of it.

    Guarantees: bytes that nobody can guess, fresh at each call.
    Requires: a positive size.
    Raises: nothing.
    After a crash: nothing is kept.
    """

    def random_bytes(self, size: int) -> bytes:
        """Return so many random bytes."""
