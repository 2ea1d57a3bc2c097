"""Writes a summary, in as many model calls as that takes.

The errand that was ordered for a summary and a turn that needs room both use it. The agents are
asked in their order: if one fails, breaks off or says nothing, the next one writes the summary. A
conversation that one of them cannot read at once is cut into portions, and each call continues the
summary of the portions before. Nobody sees these texts while they grow, and nothing of them is
stored: after a crash the summary is written anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from perdure.domain.errors import Corrupt
from perdure.domain.journal.events import TurnQueued
from perdure.domain.journal.left_out import MESSAGE_LEFT_OUT
from perdure.domain.journal.model.options import NONE
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.compaction import background
from perdure.domain.prompt.portions import beginning, portions, told_in_words
from perdure.domain.prompt.prompt import (
    ModelRequest,
    PromptMessage,
    Role,
    TextBlock,
    tokens_of_messages,
)
from perdure.domain.prompt.shortening import shortened
from perdure.domain.prompt.tokens import tokens_of
from perdure.domain.turn.errands import summary_order
from perdure.domain.turn.stream import Stopped
from perdure.engine.foundation.persist import persist
from perdure.engine.models.prompts import READABLE_SHARE
from perdure.engine.models.reaching import Quest
from perdure.engine.models.roster import Backend
from perdure.engine.turns.beside.plain_answers import plain_answer
from perdure.engine.turns.model_calls import ModelCalls
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.step import ModelStep
from perdure.ports.turns.turns import Claimed

# The share of a window that a portion takes, together with the summary so far.
PORTION_SHARE: Final = 0.5
# The share of a window that a summary takes at most if it was written in portions.
SUMMARY_SHARE: Final = 0.3
# Longer conversations are shortened before they are cut into portions.
PORTIONS_MAX: Final = 40
# A model that cannot read this many tokens cannot summarise anything.
_PORTION_MIN: Final = 100
# How often portions that a server refuses are divided. After that they are left out whole.
_REFUSED_MAX: Final = 20

# Makes the request for an agent, and says about how many tokens it has.
MakeRequest = Callable[[Backend], Awaitable[tuple[ModelRequest, int]]]


class ToSummarise(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is to be summarised: the `messages`, and words to `focus` on. `whole` makes the
    request that has all of it; None if it is known that this does not fit. `window` is the window
    in which the summary is to be read."""

    messages: Callable[[], Awaitable[Sequence[PromptMessage]]]
    focus: str = ""
    whole: MakeRequest | None = None
    window: int


class Summarising:
    """Writes the summaries of one attempt of a turn."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        calls: ModelCalls,
        *,
        scribbling: asyncio.TaskGroup,
    ) -> None:
        self._services = services
        self._claimed = claimed
        self._calls = calls
        self._scribbling = scribbling
        self._tokens = 0  # of the newest request

    async def ordered(self, queued: TurnQueued, backends: Sequence[Backend]) -> ToSummarise:
        """Return the task of an errand that was ordered for a summary."""
        upto, clock = self._claimed.parent, self._services.clock
        assert upto is not None, "a summary is ordered for turns"
        prompts = self._services.prompts
        count = partial(prompts.tokens_before, backends[0], self._claimed)
        fits = await persist(count, clock=clock) <= backends[0].context_tokens * READABLE_SHARE
        return ToSummarise(
            messages=partial(persist, partial(prompts.told, upto), clock=clock),
            focus=queued.text,
            whole=self._whole if fits else None,
            window=min(backend.context_tokens for backend in backends),
        )

    async def _whole(self, backend: Backend) -> tuple[ModelRequest, int]:
        """Make a request as for any other turn, which begins like those of the conversation."""
        prompted = await persist(
            partial(
                self._services.prompts.request,
                backend,
                self._claimed,
                turn=self._calls.work.events,
                telling=self._claimed.telling,
            ),
            clock=self._services.clock,
        )
        self._calls.prompted = prompted
        return prompted.request, prompted.tokens

    async def write(self, task: ToSummarise, backends: Sequence[Backend]) -> ModelStep:
        """Return the call that ended the summary, with the whole summary as its text; or, if no
        agent has written one, the call that failed last."""
        rest = list({backend.name: backend for backend in backends}.values())
        while True:
            step = await self._try(task, rest)
            rest = [backend for backend in rest if backend.name != step.backend.name]
            # If nobody has said anything, all of them were asked.
            is_silent = not step.has_spoken and not step.stopped.reason.is_finish
            is_over = step.stopped.reason is StopReason.BUDGET or (
                is_silent and not step.is_too_long
            )
            if _is_done(step) or is_over or not rest:
                return step

    async def _try(self, task: ToSummarise, backends: Sequence[Backend]) -> ModelStep:
        if task.whole is not None:
            step = await self._ask(backends, task.whole)
            if not step.is_too_long and not step.is_refused:
                return step
            others = [backend for backend in backends if backend.name != step.backend.name]
            backends = [self._services.roster.fresh(step.backend), *others]
        return await self._in_portions(task, backends)

    async def _in_portions(self, task: ToSummarise, backends: Sequence[Backend]) -> ModelStep:
        """Write the summary of one portion after another, each with the summary so far. A portion
        that is too long for the model is divided again, and so is one that its server refuses: as
        little as possible is left out of the summary."""
        size = int(min(task.window, backends[0].context_tokens) * PORTION_SHARE)
        # A summary that is as long as a portion leaves no room for the turns after it.
        limit = int(self._window(task, backends) * SUMMARY_SHARE)
        messages = shortened(await task.messages(), tokens_max=max(size, 1) * PORTIONS_MAX)
        text, told, so_far = told_in_words(messages), 0, ""
        step: ModelStep | None = None
        done: ModelStep | None = None
        refused, part = 0, size
        while step is None or told < len(text):
            room = min(max(size - tokens_of(so_far), size // 3, 1), part)
            portion = next(portions(text[told:], tokens_max=room), "")
            make = partial(self._portion, so_far, portion, task.focus, min(limit, size))
            step = await self._ask(backends, make)
            if step.is_too_long:
                size = self._smaller(size, tokens_of(portion), step)
                so_far = beginning(so_far, tokens_max=size // 2)
                if size < _PORTION_MIN:
                    return step
                continue
            if step.is_refused and portion:
                refused, part = refused + 1, tokens_of(portion) // 2
                if part < _PORTION_MIN or refused > _REFUSED_MAX:
                    told, part = told + len(portion), size
                    so_far = f"{so_far}\n{MESSAGE_LEFT_OUT}".strip()
                continue
            if not _is_done(step):
                return step
            done, part = step, size
            told += len(portion)
            so_far = beginning(step.text, tokens_max=max(size // 2, 1))
        if done is None:
            return step
        step = msgspec.structs.replace(done, text=so_far)
        limit = int(self._window(task, backends) * SUMMARY_SHARE)
        step.text = beginning(step.text, tokens_max=min(limit, size))
        return step

    def _window(self, task: ToSummarise, backends: Sequence[Backend]) -> int:
        """Return the smallest window that the summary must fit into, as far as it is known."""
        known = (self._services.roster.fresh(backend).context_tokens for backend in backends)
        return min(task.window, *known)

    def _smaller(self, size: int, portion: int, step: ModelStep) -> int:
        """Return a size for the portions that is smaller than one that was refused."""
        half = min(size, portion) // 2
        named = int(step.stopped.window * PORTION_SHARE)
        return min(half, named) if named else half

    async def _portion(
        self, so_far: str, portion: str, focus: str, tokens_max: int, backend: Backend
    ) -> tuple[ModelRequest, int]:
        before = [TextBlock(background(so_far))] if so_far else []
        words = [TextBlock(focus)] if focus.strip() else []
        order = summary_order(tokens_max=tokens_max)
        asked = PromptMessage(
            role=Role.USER, blocks=(*before, TextBlock(portion or "(nothing)"), *words, order)
        )
        request = ModelRequest(
            instructions="",
            prefix=b"",
            messages=(asked,),
            options=backend.fitting(NONE),
            purpose=TurnKind.SUMMARY,
        )
        return request, tokens_of_messages([asked])

    async def _ask(self, backends: Sequence[Backend], make: MakeRequest) -> ModelStep:
        """Make one call. A window that a refusal names is remembered."""
        listen = partial(self._listen, make)
        step = await self._calls.ask(backends, self._scribbling, call=listen)
        if step.is_too_long:
            await self._calls.note_window(step, tokens=self._tokens, is_summary=True)
        return step

    async def _listen(
        self, make: MakeRequest, backend: Backend, quest: Quest, scribbling: asyncio.TaskGroup
    ) -> ModelStep:
        """Make one call to one agent, and collect its text."""
        scribe = self._calls.new_scribe(scribbling)
        request = await self._prepare(make, backend)
        if isinstance(request, Stopped):
            return ModelStep(stopped=request, backend=backend, scribe=scribe)
        stopped, text = await plain_answer(self._services, self._calls, backend, request, quest)
        return ModelStep(stopped=stopped, backend=backend, scribe=scribe, text=text)

    async def _prepare(self, make: MakeRequest, backend: Backend) -> ModelRequest | Stopped:
        """Return the request, with room reserved in the budgets, or why no call can be made."""
        try:
            request, self._tokens = await make(backend)
        except Corrupt as error:
            return Stopped(reason=StopReason.AGENT_ERROR, detail=error.message)
        refused = await self._services.budgets.reserve(
            self._claimed,
            backend.name,
            self._tokens,
            tariff=backend.tariff,
            so_far=self._calls.spending,
        )
        return Stopped(reason=StopReason.BUDGET, detail=refused) if refused else request


def _is_done(step: ModelStep) -> bool:
    """Tell whether a call has ended a summary that has words."""
    return step.stopped.reason.is_finish and bool(step.text.strip())
