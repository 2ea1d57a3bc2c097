"""Implements the ports of what agents ask people."""

from collections.abc import Sequence
from functools import partial

from perdure.domain.errors import NotFound
from perdure.domain.ids import CallId, GrantId, NodeId, PrincipalId, QuestionId, SessionId, TurnId
from perdure.domain.journal.events import Recorded, ToolCall
from perdure.domain.journal.question_events import GrantOffer
from perdure.domain.journal.records import EffectView, QuestionView
from perdure.domain.outcomes import CallEnding
from perdure.domain.tools.grants import Grant
from perdure.domain.tools.todo import TodoItem
from perdure.ports.records.history import Page
from perdure.ports.turns.questions import GrantView, QuestionReply, QuestionTaken
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.questions import effects, grants, question_rows, todos
from perdure.store.operations.turns import waiting


class StoredQuestions:
    """Implements `Questions`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def answer(self, reply: QuestionReply) -> QuestionTaken:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(waiting.answer, reply, stamp))

    async def expire(self, *, limit: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(waiting.expire, stamp, limit=limit))

    async def void(self, turn: TurnId, *, attempt: int) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(waiting.void, turn, attempt, stamp))

    async def next_deadline_ms(self) -> int | None:
        return await self._driver.read(question_rows.next_deadline)

    async def page(
        self, page: Page, *, principal: PrincipalId | None, is_pending: bool = True
    ) -> list[QuestionView]:
        read = partial(question_rows.page, page, principal=principal, is_pending=is_pending)
        return await self._driver.read(read)

    async def of_turns(
        self, turns: Sequence[TurnId], *, principal: PrincipalId | None
    ) -> list[QuestionView]:
        read = partial(question_rows.of_turns, turns, principal=principal)
        return await self._driver.read(read)

    async def one(self, question: QuestionId, *, principal: PrincipalId | None) -> QuestionView:
        read = partial(question_rows.shown, question, principal=principal)
        found = await self._driver.read(read)
        if found is None:
            raise NotFound(f"there is no question {question}")
        return found


class StoredGrants:
    """Implements `Grants`."""

    def __init__(self, driver: Driver, mint: Mint) -> None:
        self._driver = driver
        self._mint = mint

    async def covering(
        self, principal: PrincipalId, *, offer: GrantOffer, session: SessionId
    ) -> Grant | None:
        at = self._mint.now_ms()
        read = partial(grants.covering, principal, offer=offer, session=session, at=at)
        return await self._driver.read(read)

    async def page(self, page: Page, *, principal: PrincipalId | None) -> list[GrantView]:
        at = self._mint.now_ms()
        return await self._driver.read(partial(grants.page, page, principal=principal, at=at))

    async def revoke(self, grant: GrantId, *, principal: PrincipalId | None) -> GrantView:
        at = self._mint.now_ms()
        return await self._driver.write(partial(grants.revoke, grant, principal=principal, at=at))


class StoredEffects:
    """Implements `Effects`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def page(self, page: Page, *, principal: PrincipalId | None) -> list[EffectView]:
        return await self._driver.read(partial(effects.page, page, principal=principal))

    async def of_turns(
        self, turns: Sequence[TurnId], *, principal: PrincipalId | None
    ) -> list[EffectView]:
        return await self._driver.read(partial(effects.of_turns, turns, principal=principal))

    async def mark(
        self, call: CallId, *, has_happened: bool, by: PrincipalId, principal: PrincipalId | None
    ) -> EffectView:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(
            partial(
                effects.mark, call, stamp, has_happened=has_happened, by=by, principal=principal
            )
        )

    async def late(self, turn: TurnId, call: ToolCall, ending: CallEnding, result: str) -> None:
        at = self._mint.now_ms()
        await self._driver.write(partial(effects.late, turn, call, ending, result, at=at))


class StoredTodos:
    """Implements `Todos`."""

    def __init__(self, driver: Driver, mint: Mint, node: NodeId) -> None:
        self._driver = driver
        self._mint = mint
        self._node = node

    async def get(self, session: SessionId) -> tuple[TodoItem, ...]:
        return await self._driver.read(partial(todos.get, session))

    async def put(
        self, session: SessionId, turn: TurnId, items: Sequence[TodoItem]
    ) -> list[Recorded]:
        stamp = self._mint.stamp(self._node)
        return await self._driver.write(partial(todos.put, session, turn, items, stamp))
