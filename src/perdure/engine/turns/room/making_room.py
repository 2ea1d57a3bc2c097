"""Makes room for a turn whose request was longer than the model's window.

The older turns are summarised under the turn's own lease, and what came of it is recorded in one
transaction. The turn's own messages stay as they are. An errand is not part of the conversation
that it looks at, so nothing is summarised for it: its next request leaves out more.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import msgspec
import structlog

from perdure.domain.ids import TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.journal.session_events import WindowExceeded
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Outcome
from perdure.domain.prompt.compaction import KEEP_SHARE
from perdure.domain.prompt.portions import divided_at, tokens_told
from perdure.domain.prompt.prompt import messages_of, tokens_of_messages
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.endings import Audience, visible_reason
from perdure.domain.turn.overflow import NOTHING_OLDER, limit_of, refusal_of, room_sought
from perdure.engine.foundation.persist import persist
from perdure.engine.models.prompts import CHAIN_MAX
from perdure.engine.models.reaching import TELL_AFTER_S
from perdure.engine.models.roster import Backend
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.model_calls import ModelCalls
from perdure.engine.turns.room.summarising import SUMMARY_SHARE, Summarising, ToSummarise
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.step import ModelStep
from perdure.ports.turns.room import RoomMade
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

log = structlog.get_logger("turn")
TAKES_A_WHILE: Final = (
    "This conversation is too long for the model. Its older part is being summarised first, which"
    " takes a moment; nothing of it is deleted."
)


class MakingRoom:
    """Makes room for one attempt of a turn."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        ledger: Ledger,
        calls: ModelCalls,
        *,
        scribbling: asyncio.TaskGroup,
    ) -> None:
        self._services = services
        self._claimed = claimed
        self._ledger = ledger
        self._calls = calls
        self._scribbling = scribbling
        self._summarising = Summarising(services, claimed, calls, scribbling=scribbling)

    async def make(self, backends: Sequence[Backend]) -> Claimed:
        """Make room, and record what came of it. Returns the turn as it is told from now on."""
        refused = refusal_of(self._ledger.facts)
        assert refused is not None
        backend = next((each for each in backends if each.name == refused.agent), backends[0])
        async with self._told_if_long():
            made = await self._made(refused, backend)
        await self._ledger.make_room(made)
        sought = room_sought(self._ledger.facts)
        assert sought is not None
        if sought.problem:
            turn, detail = self._ledger.turn, sought.detail
            log.warning("no room was made", turn=turn, problem=sought.problem, detail=detail)
        if sought.compaction is None:
            return self._claimed
        return msgspec.structs.replace(self._claimed, view=sought.compaction)

    async def _made(self, refused: WindowExceeded, backend: Backend) -> RoomMade:
        """Return a summary of the older turns, or why there is none."""
        if self._ledger.queued.kind.is_errand:
            return RoomMade()
        limit = limit_of(refused)
        chain = await self._chain()
        last = self._chosen(chain, backend, limit) if chain else None
        if last is None:
            # Now that the window is known, less room is kept for the answer, and it may fit.
            return RoomMade(problem="" if refused.tokens < limit else NOTHING_OLDER)
        clock = self._services.clock
        messages = partial(persist, partial(self._services.prompts.told, last), clock=clock)
        task = ToSummarise(messages=messages, window=limit)
        before = self._calls.spending.cost
        async with AsyncExitStack() as stack:
            at_work = self._services.roster.at_work
            writers = [backend]
            if backend.compact_agent:
                first, *_ = await stack.enter_async_context(at_work(backend.compact_agent))
                writers = [first, backend]
            step = await self._summarising.write(task, writers)
        cost = self._calls.spending.cost - before
        problem, detail = _problem(step)
        return RoomMade(
            upto=last,
            summary=step.text,
            tokens=tokens_told(chain, upto=last),
            cost=cost,
            problem=problem,
            detail=detail,
        )

    async def _chain(self) -> list[list[Recorded]]:
        """Return the turns before this one, from the newest summary on."""
        parent = self._claimed.parent
        if parent is None:
            return []
        read = partial(self._services.conversations.window, parent, limit=CHAIN_MAX)
        return await persist(read, clock=self._services.clock)

    def _chosen(self, chain: list[list[Recorded]], backend: Backend, limit: int) -> TurnId | None:
        """Return the turn up to which everything is to be summarised, so that what is left, the
        summary and the turn itself fit into the limit."""
        own = tokens_of(backend.instructions) + tokens_of_messages(messages_of(self._ledger.events))
        left = int(limit * (1 - KEEP_SHARE - SUMMARY_SHARE)) - own
        history = tokens_of_messages(each for turn in chain for each in messages_of(turn))
        return divided_at(
            chain,
            keep_tokens=max(min(left, int(limit * KEEP_SHARE)), 0),
            again=history > limit * SUMMARY_SHARE,
        )

    @asynccontextmanager
    async def _told_if_long(self) -> AsyncIterator[None]:
        """Tell the person what is done, if it takes longer than a few seconds."""
        telling = self._scribbling.create_task(self._tell_later())
        try:
            yield
        finally:
            telling.cancel()

    async def _tell_later(self) -> None:
        await self._services.clock.sleep(TELL_AFTER_S)
        if self._ledger.queued.kind == TurnKind.MESSAGE:
            await self._ledger.tell(TAKES_A_WHILE)
            self._services.wakes.publish(Topic.OUTBOX)


def _problem(step: ModelStep) -> tuple[str, str]:
    """Return why there is no summary, for everybody and for operators; both are empty if there is
    one."""
    stopped = step.stopped
    if stopped.reason.is_finish:
        return "", ""
    why = visible_reason(Outcome.FAILED, stopped.reason, stopped.detail, Audience.PEOPLE)
    return f"its older part could not be summarised: {why or stopped.reason}", stopped.detail
