"""Lets a tool ask the model of the agent that has called it.

The model is told nothing but what the tool says: no conversation, no memory, no tools. What it uses
is charged to the turn, and reserved in the budgets before. One call of a tool asks only so often,
and one turn asks nothing twice at the same time, so that each reservation counts. When the call has
ended for its turn, whatever is being asked ends with it. Nothing is kept: after a crash the call is
one that was cut short like any other.
"""

import asyncio
from typing import Final

import structlog

from perdure.domain.errors import PerdureError, Rejected, Transient
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.model.options import Options
from perdure.domain.outcomes import StopReason
from perdure.domain.people.budgets import OUTPUT_ALLOWANCE
from perdure.domain.prompt.bounds import AnswerRoom, Bounds
from perdure.domain.prompt.prompt import ModelRequest, tokens_of_messages
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.stream import Stopped
from perdure.engine.models.roster import Backend
from perdure.engine.turns.beside.plain_answers import plain_answer
from perdure.engine.turns.model_calls import ModelCalls
from perdure.engine.turns.runner_services import RunnerServices
from perdure.ports.turns.tools import WordsAsked, WordsGiven
from perdure.ports.turns.turns import Claimed

# How often one call may ask.
ASKS_MAX: Final = 5
_ROOM: Final = AnswerRoom(bounds=Bounds(answer_bytes=100_000))
# These agents are in the middle of an answer of their own while a tool runs.
_OF_ONE_ANSWER: Final = frozenset({"acp"})
_OVER: Final = "the call has ended, so its model is not asked any more"
log = structlog.get_logger("tools")


class ModelWords:
    """Asks the model of an agent for one call of a tool. The calls of an attempt ask one after
    another, in one `line`."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        calls: ModelCalls,
        backend: Backend,
        call: ToolCall,
        *,
        line: asyncio.Lock,
    ) -> None:
        self._services = services
        self._claimed = claimed
        self._calls = calls
        self._backend = backend
        self._call = call
        self._line = line
        self._asked = 0
        self._is_over = False
        self._scopes: set[asyncio.Timeout] = set()

    async def ask(self, asked: WordsAsked) -> WordsGiven:
        """Ask the model. Raises `Rejected` or `Transient` with words for whoever asks, which say
        nothing of the person."""
        self._asked += 1
        if self._asked > ASKS_MAX:
            raise Rejected(f"one call may ask the model {ASKS_MAX} times")
        if self._backend.kind in _OF_ONE_ANSWER:
            raise Rejected("the agent of this call is a program that answers no such questions")
        # The task is that of the asker, who knows nothing of turns; `end` reaches it here.
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scopes.add(scope)
                async with self._line:
                    return await self._ask(asked)
        except TimeoutError as error:
            raise Rejected(_OVER) from error
        except Rejected:
            raise
        except PerdureError as error:
            log.info("a tool could not ask the model", call=self._call.id, why=error.message)
            raise Transient("the model cannot be asked now") from error
        finally:
            self._scopes.discard(scope)

    def end(self) -> None:
        """End whatever is being asked, and ask nothing from now on."""
        if self._is_over:
            return
        self._is_over = True
        now_s = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now_s)

    async def _ask(self, asked: WordsAsked) -> WordsGiven:
        if self._is_over:
            raise Rejected(_OVER)
        backend, calls = self._backend, self._calls
        tokens_max = min(asked.tokens_max, OUTPUT_ALLOWANCE)
        request = ModelRequest(
            instructions=asked.instructions,
            prefix=b"",
            messages=asked.messages,
            options=backend.fitting(Options(max_tokens=tokens_max, stop=asked.stop)),
            room=_ROOM,
        )
        tokens = tokens_of_messages(asked.messages) + tokens_of(asked.instructions)
        if tokens + tokens_max > backend.context_tokens:
            raise Rejected("this is too long for the model")
        refused = await self._services.budgets.reserve(
            self._claimed, backend.name, tokens, tariff=backend.tariff, so_far=calls.spending
        )
        if refused:
            log.info("a tool could not ask the model", call=self._call.id, why=refused)
            raise Rejected("the day's budget has no room for this")
        log.info("a tool asks the model", call=self._call.id, tool=self._call.name, tokens=tokens)
        stopped, text = await self._answer(request)
        if stopped.reason not in (StopReason.STOP, StopReason.LENGTH):
            log.info("a tool got no words", call=self._call.id, why=stopped.detail)
            raise Rejected("the model gave no answer")
        is_cut = stopped.reason is StopReason.LENGTH
        return WordsGiven(text=text, model=backend.model or backend.name, is_cut=is_cut)

    async def _answer(self, request: ModelRequest) -> tuple[Stopped, str]:
        """Ask until there is an answer, as patiently as for the turn's own."""
        backend = self._backend
        reaching = self._services.reaching
        # Not the turn's own visitor: what is cut off here may end after its next call has begun.
        visitor = reaching.places.visitor(self._claimed.principal)
        quest = reaching.quest([backend], _tell_nobody, visitor)
        try:
            while await quest.next() is not None:
                stopped, text = await plain_answer(
                    self._services, self._calls, backend, request, quest
                )
                if text or stopped.reason.is_finish:
                    return stopped, text
                quest.ended(backend, stopped)
        finally:
            quest.over()
        return quest.in_vain, ""


async def _tell_nobody(stopped: Stopped) -> None:
    """Say nothing: the person waits for the tool, and sees that it runs."""
