"""Stores the files that agents give.

A file goes into the library first, and then into the journal of the turn that gave it. If the
process dies in between, the bytes and their row are stored and belong to no message. The next
attempt gives the file again, and only files that a turn's journal names are ever sent.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from perdure.domain.errors import Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.attachments import NAME_MAX, file_name, given_in
from perdure.domain.journal.events import Attachment, Recorded
from perdure.domain.people.quotas import OverQuota
from perdure.domain.reading.kinds import HEAD_BYTES, kind_of
from perdure.domain.text import storable
from perdure.domain.turn.stream import AgentFile
from perdure.engine.foundation.persist import persist
from perdure.ports.records.media import NOT_WRITABLE, Media, MediaLibrary
from perdure.ports.system.clock import Clock

FILES_MAX: Final = 20
log = structlog.get_logger("media")


class AgentFiles:
    """Puts the files of agents into the library, each of at most `bytes_max` bytes."""

    def __init__(self, library: MediaLibrary, *, clock: Clock, bytes_max: int) -> None:
        self._library = library
        self._clock = clock
        self._bytes_max = bytes_max

    async def take(
        self,
        file: AgentFile,
        principal: PrincipalId,
        *,
        so_far: Sequence[Recorded],
        more: int = 0,
    ) -> Attachment | str:
        """Store a file and return it as an attachment, or return a text for the reply that says why
        it was not kept. `so_far` holds the turn's events, which count the files already given;
        `more` files were taken that are not in them yet."""
        name = file_name(Attachment(name=storable(file.name)))[:NAME_MAX]
        if len(file.data) > self._bytes_max:
            return f"\n\n(The file {name} was not kept: it is over {self._bytes_max:,} bytes.)"
        if len(given_in(so_far)) + more >= FILES_MAX:
            return f"\n\n(The file {name} was not kept: a turn gives at most {FILES_MAX} files.)"
        mime = kind_of(file.data[:HEAD_BYTES], name=name, declared=file.mime)
        keep = partial(self._put, file.data, mime=mime, name=name, principal=principal)
        media = await persist(keep, clock=self._clock)
        if media is None:
            return f"\n\n(The file {name} was not kept: this gateway cannot store files now.)"
        return Attachment(media=media.id, mime=media.mime, name=media.name, size=media.size)

    async def keep(self, text: str, tool: str, principal: PrincipalId) -> Media | None:
        """Store the long result of a tool, or return None if it cannot be kept."""
        name = file_name(Attachment(name=f"{storable(tool)[: NAME_MAX - 4]}.txt"))
        keep = partial(self._put, text.encode(), mime="text/plain", name=name, principal=principal)
        return await persist(keep, clock=self._clock)

    async def _put(
        self, data: bytes, *, mime: str, name: str, principal: PrincipalId
    ) -> Media | None:
        """Put a file into the library. Returns None if the folder is not writable or the person's
        quota is used up: only people can change that, so the turn must not wait for it."""
        try:
            return await self._library.put(
                data, mime=mime, name=name, principal=principal, is_loose=False
            )
        except OverQuota as error:
            log.info("a file of an agent's is not kept", error=error.message)
            return None
        except Transient as error:
            if error.code != NOT_WRITABLE:
                raise
            log.warning("files cannot be stored", error=error.message)
            return None
