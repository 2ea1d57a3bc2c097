"""Fetches the files of one platform, and keeps the waits that the platform names.

A file is asked for like everything else: not while the platform wants no requests of the account,
and a wait that is named for files is stored, so that the next process keeps it as well.
"""

from collections.abc import AsyncGenerator
from typing import Final

from perdure.domain.errors import Transient
from perdure.engine.delivery.surfaces import Surface
from perdure.ports.records.media import Fetcher

# Stands for a place in the waits that a platform names for files. Such a wait delays no messages.
FILES: Final = "(files)"


class PatientFetcher:
    """Implements the `Fetcher` port for the files of one account."""

    def __init__(self, source: Fetcher, surface: Surface) -> None:
        self._source = source
        self._surface = surface

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of one file. Raises `Transient` without asking while a wait is not
        over."""
        if held_s := self._surface.pacer.held_s(FILES):
            raise Transient("the platform wants no requests for now", retry_after_s=held_s)
        try:
            async for piece in self._source.fetch(reference):
                yield piece
        except Transient as error:
            await self._surface.heed(error, FILES)
            raise
