"""Implements the audit port with many short reads of `operations/reading/auditing.py`."""

from collections.abc import Sequence
from functools import partial

from perdure.domain.errors import Corrupt
from perdure.domain.ids import SessionId
from perdure.domain.journal.records import SessionRecord
from perdure.ports.records.audit import SessionMark
from perdure.store.drivers.driver import Driver
from perdure.store.operations.reading import auditing, diagnostics


class StoredAudit:
    """Implements `Audit`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def count(self, *, only_new: bool) -> int:
        return await self._driver.read(partial(auditing.count, only_new=only_new))

    async def batch(self, *, after: SessionId | None, only_new: bool) -> list[SessionId]:
        return await self._driver.read(partial(auditing.batch, after=after, only_new=only_new))

    async def records(self, first: SessionId, last: SessionId) -> list[SessionRecord]:
        return await self._driver.read(partial(auditing.records, first, last))

    async def suspects(self) -> list[SessionId]:
        """Return the sessions with updates whose turn is in another session. Reads all updates, in
        short reads."""
        found: set[SessionId] = set()
        position: auditing._AuditPosition | None = auditing.BEGINNING
        while position is not None:
            astray, position = await self._driver.read(partial(auditing.suspects, position))
            found |= astray
        return sorted(found)

    async def tables(self) -> list[str]:
        return await self._driver.read(partial(diagnostics.tables, self._driver.dialect))

    async def integrity(self, table: str) -> list[str]:
        """Return what the database's own check finds in one table. Uses a fresh connection, because
        it may take long and must see the file as it is."""
        try:
            return await self._driver.read_afresh(partial(diagnostics.integrity, table))
        except Corrupt as error:  # so damaged that the check itself fails
            return [f"{table}: {error.message}"]

    async def note(self, sound: Sequence[SessionMark]) -> None:
        await self._driver.write(partial(auditing.note, sound))
