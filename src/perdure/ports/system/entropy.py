"""Randomness."""

from typing import Protocol


class Entropy(Protocol):
    """The only source of randomness.

    Guarantees: bytes that nobody can guess, fresh at each call.
    Requires: a positive size.
    Raises: nothing.
    After a crash: nothing is kept.
    """

    def random_bytes(self, size: int) -> bytes: ...
