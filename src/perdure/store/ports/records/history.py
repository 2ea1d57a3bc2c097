"""Implements the reading ports. Each method is one snapshot, except `search`, which first indexes
what waits."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import LeftOut, Recorded
from perdure.domain.journal.records import (
    AnswerSoFar,
    PartView,
    SessionRecord,
    SessionView,
    ToldTurn,
    TurnView,
)
from perdure.domain.journal.spoken import TurnVersions
from perdure.domain.journal.transcript import RunningText
from perdure.domain.turn.rebuilding import StoredRequest
from perdure.domain.turn.watching import Move
from perdure.ports.records.history import (
    PAGE_BYTES,
    ContextView,
    ConversationView,
    Counts,
    Explanation,
    Hit,
    NoticedPage,
    Page,
    Shelf,
    Snapshot,
)
from perdure.store.drivers.driver import Driver
from perdure.store.operations import journal, others
from perdure.store.operations.reading import (
    answers,
    asking,
    chains,
    diagnostics,
    explaining,
    history,
    noticed,
    pieces,
    search,
    transcripts,
    versions,
)
from perdure.store.operations.sessions import contexts, moves
from perdure.store.ports.records.audit import StoredAudit

# Turns that one transaction indexes. Other writers wait for that transaction, so it must be short.
INDEX_AT_ONCE: Final = 500


class StoredConversations:
    """Implements `Conversations`: reads conversations and chains of turns."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def find(self, name: str, *, principal: PrincipalId, sees_all: bool = False) -> Snapshot:
        return await self._driver.read(
            partial(others.find, name, principal=principal, sees_all=sees_all)
        )

    async def snapshot(self, conversation: ConversationId) -> Snapshot:
        return await self._driver.read(partial(history.snapshot, conversation))

    async def anybodys(self, name: str) -> Snapshot:
        return await self._driver.read(partial(others.anybodys, name))

    async def moves(
        self, conversation: ConversationId, *, after: int, upto: int, limit: int
    ) -> list[Move]:
        return await self._driver.read(
            partial(moves.since, conversation, after=after, upto=upto, limit=limit)
        )

    async def recent(
        self, *, principal: PrincipalId, page: Page, shelf: Shelf = Shelf.SHOWN
    ) -> list[ConversationView]:
        return await self._driver.read(
            partial(history.list_conversations, principal=principal, page=page, shelf=shelf)
        )

    async def chain(
        self, head: TurnId, *, limit: int, until: TurnId | None = None
    ) -> list[list[Recorded]]:
        return await self._driver.read(
            partial(chains.chain, head, limit=limit, until=until, bytes_max=PAGE_BYTES)
        )

    async def window(self, head: TurnId, *, limit: int) -> list[list[Recorded]]:
        return await self._driver.read(partial(chains.window, head, limit=limit))

    async def left_out(self, head: TurnId) -> tuple[LeftOut, ...]:
        return await self._driver.read(partial(chains.left_out, head))

    async def turn_on_chain(self, head: TurnId, entry: str) -> TurnId:
        return await self._driver.read(partial(chains.turn_on_chain, head, entry))

    async def exchange(self, turn: TurnId) -> list[Recorded]:
        return await self._driver.read(partial(pieces.exchange, turn))


class StoredArchive:
    """Implements `Archive`: reads turns, sessions, journals and transcripts, and searches them."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def turn(self, turn: TurnId, *, principal: PrincipalId | None) -> TurnView:
        return await self._driver.read(partial(history.turn, turn, scope=principal))

    async def versions(self, turns: Sequence[TurnId]) -> Mapping[TurnId, TurnVersions]:
        return await self._driver.read(partial(versions.versions, turns))

    async def sessions(self, *, principal: PrincipalId | None, page: Page) -> list[SessionView]:
        return await self._driver.read(partial(history.sessions, principal=principal, page=page))

    async def context(self, conversation: ConversationId) -> ContextView:
        return await self._driver.read(partial(contexts.context, conversation))

    async def sessions_of(
        self, conversation: ConversationId, *, limit: int, after: int | None = None
    ) -> list[SessionView]:
        return await self._driver.read(
            partial(history.sessions_of, conversation, limit=limit, after=after)
        )

    async def session(self, session: SessionId, *, principal: PrincipalId | None) -> SessionView:
        return await self._driver.read(partial(history.session, session, scope=principal))

    async def journal(self, session: SessionId, *, after: int, limit: int) -> list[Recorded]:
        return await self._driver.read(
            partial(journal.since, session, after, limit=limit, bytes_max=PAGE_BYTES)
        )

    async def running(self, session: SessionId) -> RunningText | None:
        return await self._driver.read(partial(history.running, session))

    async def told(
        self,
        session: SessionId,
        *,
        before: TurnId | None = None,
        before_seq: int = 0,
        limit: int,
        with_left: bool = False,
    ) -> list[ToldTurn]:
        return await self._driver.read(
            partial(
                transcripts.told,
                session,
                before=before,
                before_seq=before_seq,
                limit=limit,
                with_left=with_left,
                bytes_max=PAGE_BYTES,
            )
        )

    async def noticed(
        self,
        session: SessionId,
        *,
        before: str | None = None,
        limit: int,
        is_whole: bool = False,
    ) -> NoticedPage:
        return await self._driver.read(
            partial(
                noticed.noticed,
                session,
                before=before,
                limit=limit,
                bytes_max=PAGE_BYTES,
                is_whole=is_whole,
            )
        )

    async def answer(self, external_id: str, *, adapter: str) -> AnswerSoFar | None:
        return await self._driver.read(partial(answers.answer, adapter, external_id))

    async def search(
        self,
        query: str,
        *,
        principal: PrincipalId | None,
        before: int | None,
        limit: int,
        with_hidden: bool = False,
    ) -> list[Hit]:
        """Index everything that waits, then search. So nothing that is over is missed."""
        while await self._driver.write(
            partial(search.index_waiting, self._driver.dialect, limit=INDEX_AT_ONCE)
        ):
            pass
        return await self._driver.read(
            partial(
                search.search,
                self._driver.dialect,
                query,
                scope=principal,
                before=before,
                limit=limit,
                with_hidden=with_hidden,
            )
        )


class StoredIndex:
    """Implements `Index`: keeps the full-text index up to date."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def catch_up(self) -> bool:
        """Index some of the waiting turns. Returns whether there may be more."""
        return await self._driver.write(
            partial(search.index_waiting, self._driver.dialect, limit=INDEX_AT_ONCE)
        )


class StoredDiagnostics:
    """Implements `Diagnostics`: reads for operators and the checker."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def explain(self, any_id: str, *, principal: PrincipalId | None) -> Explanation:
        dialect = self._driver.dialect
        return await self._driver.read(
            partial(explaining.explain, dialect, any_id, scope=principal)
        )

    async def asked(self, turn: TurnId) -> StoredRequest:
        return await self._driver.read(partial(asking.asked, turn))

    async def counts(self) -> Counts:
        return await self._driver.read(diagnostics.counts)

    async def record(self, session: SessionId) -> SessionRecord:
        return await self._driver.read(partial(diagnostics.record, session))

    async def parked(self, *, limit: int) -> list[PartView]:
        return await self._driver.read(partial(diagnostics.parked_parts, limit=limit))

    async def integrity(self) -> list[str]:
        audit = StoredAudit(self._driver)
        return [each for table in await audit.tables() for each in await audit.integrity(table)]
