"""Defines how text becomes speech."""

from typing import Protocol


class Voice(Protocol):
    """Reads text aloud.

    Guarantees: the recording says the words that were given, as Opus in an Ogg file of a bounded
    size.
    Requires: words that are not empty.
    Raises: `Transient` if it may work later, `Permanent` if it cannot work as it is configured.
    After a crash: nothing was kept; asking again makes another recording.
    """

    async def speak(self, words: str) -> bytes:
        """Return a recording of these words."""
        ...
