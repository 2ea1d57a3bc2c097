"""Runs one attempt of one turn, from its claim to its settlement.

Nothing that the runner holds in memory is needed after a crash. It asks what the turn needs next
(`domain/turn/next_action.py`), does that, stores it through the turn's ledger, and asks again; it
has no other branch. It may be cancelled, and the process may die, between any two lines. If its
lease is stale (the turn was stopped, or another node took over), the next write raises `Fenced` and
the runner ends: the transaction that moved the epoch has already ended the attempt.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import assert_never

import msgspec
import structlog

from perdure.domain.errors import Fenced, Rejected
from perdure.domain.inbound.named_prompts import NO_PROMPT
from perdure.domain.journal.events import PromptExpanded
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import Interruption, NodeRequest, Outcome, StopReason
from perdure.domain.turn.errands import is_watched
from perdure.domain.turn.next_action import (
    AskModel,
    Await,
    ExpandPrompt,
    LastAnswer,
    MakeRoom,
    RunCalls,
    Say,
    Settle,
    Summarise,
    TurnFacts,
    asks_for_our_tools,
    next_action,
    our_open_calls,
)
from perdure.domain.turn.overflow import lacks_room
from perdure.domain.turn.stream import Stopped
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.models.roster import Backend
from perdure.engine.turns.beside.model_words import ModelWords
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.model_calls import ModelCalls
from perdure.engine.turns.reply_parts import (
    leaving_out,
    measured,
    note_of,
    offered,
    reply_parts,
    spoken,
    with_files,
)
from perdure.engine.turns.room.making_room import MakingRoom
from perdure.engine.turns.room.summarising import Summarising
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.step import ModelStep
from perdure.engine.turns.tools.permissions import Permissions
from perdure.engine.turns.tools.tool_calls import ToolCalls
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.turns import Claimed, Settled, Settlement
from perdure.ports.turns.wakes import Topic

log = structlog.get_logger("turn")


class Runner:
    """Runs one attempt of one turn. Before the pump cancels it for a drain, it sets `interruption`:
    why the attempt ends, and what the node was asked for."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        surface: Surface | None,
        *,
        thinks: Callable[[], None] = lambda: None,
        refusal: str = "",
    ) -> None:
        """Set up the attempt. `thinks` is called while the model is working and says nothing. With
        a `refusal` the turn is settled as refused: no model is asked and nobody gets a reply."""
        self._services = services
        self._claimed = claimed
        self._surface = None if refusal else surface
        self._began_s = services.clock.monotonic_s()
        self._lease = claimed.lease
        self._ledger = Ledger(
            claimed,
            turns=services.turns,
            room=services.room,
            conversations=services.conversations,
            flusher=services.flusher,
            feed=services.feed,
            clock=services.clock,
        )
        self._model = ModelCalls(services, claimed, self._ledger, thinks=thinks)
        self._permissions = Permissions(services, claimed, self._ledger)
        self._tools = ToolCalls(
            services,
            claimed,
            self._ledger,
            self._permissions,
            words=partial(ModelWords, services, claimed, self._model, line=asyncio.Lock()),
            is_ending=lambda: self.interruption is not None,
        )
        is_typed = claimed.is_listed or self._ledger.queued.kind is not TurnKind.CALL
        self._known = TurnFacts(
            refusal=refusal or self._missing_agent(),
            steps_max=services.limits.steps_max,
            # As with commands: a slash means nothing in a call that is a conversation of its own.
            prompt=None if is_typed else NO_PROMPT,
        )
        self._last: ModelStep | None = None  # the model call whose answer ends the turn
        self.interruption: tuple[Interruption, NodeRequest] | None = None
        self._is_waiting = False
        self.is_lost = False  # the failure itself could not be stored
        self.is_parked = False  # the interruption is stored, and the next start continues
        self.is_cut = False  # the interruption is stored, and the turn may go on at once
        self.leaves_more = True  # the session's next turn may be claimable after us

    def _missing_agent(self) -> str:
        """Return why work that was given to one agent is done by none, or an empty string. It was
        given to that one, so no other takes its place."""
        queued = self._ledger.queued
        if queued.kind is not TurnKind.DELEGATED:
            return ""
        try:
            self._services.roster.resolve(queued.agent)
        except Rejected as error:
            return error.message
        return ""

    @property
    def is_waiting(self) -> bool:
        """Tell whether the turn waits until an agent can be asked. Nothing is said meanwhile."""
        return self._model.is_waiting

    def steer(self) -> None:
        """Note that a message for this turn was accepted. The next model call takes it in."""
        self._ledger.steered()

    async def run(self) -> None:
        """Run the attempt until the turn is settled, waits for an answer, or is interrupted."""
        try:
            await self._run_unless_fenced()
        except asyncio.CancelledError:
            if self.interruption is None:
                raise
            self.is_parked = await self._interrupt(*self.interruption)
        finally:
            if not self._is_waiting:
                self._services.roster.let_go(self._lease.turn)

    async def _run_unless_fenced(self) -> None:
        try:
            await self._run_in_time()
        except* Fenced:
            log.info("turn was taken from us", turn=self._lease.turn)

    async def _run_in_time(self) -> None:
        try:
            async with (
                time_limit(self._services.limits.turn_timeout_s),
                self._services.roster.at_work(self._ledger.queued.agent) as backends,
                asyncio.TaskGroup() as scribbling,
            ):
                await self._work(backends, scribbling)
        except TimeoutError:
            limit_s = self._services.limits.turn_timeout_s
            detail = f"the turn took longer than the {limit_s:g} s that [turns] timeout_s allows"
            await self._fail(StopReason.TURN_TIMEOUT, detail)

    async def _work(self, backends: Sequence[Backend], scribbling: asyncio.TaskGroup) -> None:
        """Do what the turn needs next, until it is settled, waits for an answer, or is cut short
        because the program behind its agent is gone."""
        while not self.is_cut and not self._is_waiting:
            if our_open_calls(self._ledger.facts):
                backends = [await self._model.with_tools(backends[0]), *backends[1:]]
                await self._look_at_calls(backends[0])
            action = next_action(self._ledger.facts, self._known)
            match action:
                case AskModel() | MakeRoom() | Summarise():
                    backends = await self._use_model(action, backends, scribbling)
                case ExpandPrompt(text=text):
                    await self._expand(text, backends[0])
                case RunCalls(calls=calls):
                    await self._tools.run(backends[0], calls)
                case Await(questions=questions):
                    await self._wait(questions, backends[0])
                case Say() as known:
                    await self._say(known, backends[0], scribbling)
                    return
                case Settle() as ending:
                    await self._settle(ending)
                    return
                case None:
                    return
                case _:
                    assert_never(action)

    async def _look_at_calls(self, backend: Backend) -> None:
        """Find out what people must be asked before the open calls may run, or go on."""
        questions = await self._permissions.questions(backend)
        delegated = frozenset(order.call for order in self._permissions.work)
        self._known = msgspec.structs.replace(self._known, questions=questions, delegated=delegated)

    async def _expand(self, text: str, backend: Backend) -> None:
        """Fetch the text of the prompt that the message names. Once it is stored, no attempt
        fetches it again, so every request of the turn tells the same."""
        prompts, found = backend.prompts, NO_PROMPT
        if prompts is not None:
            found = await prompts.expand(text, self._claimed.principal)
        if found.text:
            turn, message = self._ledger.turn, self._ledger.queued.message
            expanded = PromptExpanded(turn=turn, message=message, name=found.name, text=found.text)
            await self._ledger.append([expanded])
        self._known = msgspec.structs.replace(self._known, prompt=found)

    async def _wait(self, questions: Sequence[AnswerAwaited], backend: Backend) -> None:
        """End the attempt with questions to people and with work for other agents. The turn goes on
        when it has all that it waits for, and so does an answer that an agent is in the middle of.
        Work that cannot be given away is refused, and the attempt does not end. If the agent is
        lost meanwhile, nobody needs to answer any more."""
        work = self._permissions.work
        live_max = self._services.limits.delegating.per_person
        try:
            await self._ledger.wait(questions, work, spent=self._model.spent, live_max=live_max)
        except Rejected as error:
            self._permissions.refuse_work(error.message)
            return
        self._is_waiting = True
        if questions:
            # After the commit: an agent that was lost before it is noticed now.
            self._services.lost.watch(backend.agent, self._lease)
        self._services.wakes.publish(Topic.QUESTIONS)
        self._services.wakes.publish(Topic.OUTBOX)
        if work:
            self._services.wakes.publish(Topic.TURNS)

    async def _use_model(
        self,
        action: AskModel | MakeRoom | Summarise,
        backends: Sequence[Backend],
        scribbling: asyncio.TaskGroup,
    ) -> Sequence[Backend]:
        """Do what needs a model. Returns the backends for the next model call."""
        match action:
            case AskModel():
                return await self._ask(backends, scribbling)
            case MakeRoom():
                return await self._make_room(backends, scribbling)
            case Summarise():
                await self._summarise(backends, scribbling)
                return backends
            case _:
                assert_never(action)

    async def _ask(
        self, backends: Sequence[Backend], scribbling: asyncio.TaskGroup
    ) -> Sequence[Backend]:
        """Make one model call. Returns the backends for the next one: if the answer asks for tools,
        only the backend that has answered."""
        await self._ledger.take_steers()
        step = await self._model.ask(backends, scribbling)
        if step.stopped.interruption is not None:
            log.warning("agent was lost", turn=self._lease.turn, detail=step.stopped.detail)
            self.is_cut = await self._interrupt(step.stopped.interruption, NodeRequest.NOTHING)
            return backends
        if asks_for_our_tools(step.stopped.reason, step.calls):
            await self._model.keep(step)
            return [step.backend]
        if step.is_too_long:
            await self._model.note_window(step, tokens=self._model.context_tokens)
            if lacks_room(self._ledger.facts):
                others = len(backends) > 1
                self._known = msgspec.structs.replace(self._known, has_others=others)
                return self._fresh(backends)
        self._hear(step)
        return backends

    def _hear(self, step: ModelStep) -> None:
        """Note that the turn ends with this model call."""
        self._last = step
        stopped = step.stopped
        heard = LastAnswer(
            reason=stopped.reason, detail=stopped.detail, is_withheld=step.is_withheld
        )
        self._known = msgspec.structs.replace(self._known, heard=heard)

    def _fresh(self, backends: Sequence[Backend]) -> Sequence[Backend]:
        """Return the backends with the windows that are known by now."""
        return [self._services.roster.fresh(backend) for backend in backends]

    async def _make_room(
        self, backends: Sequence[Backend], scribbling: asyncio.TaskGroup
    ) -> Sequence[Backend]:
        """Make the turn's request shorter. From then on the turn is told as the summary says."""
        making = MakingRoom(
            self._services, self._claimed, self._ledger, self._model, scribbling=scribbling
        )
        self._claimed = self._model.claimed = await making.make(backends)
        return self._fresh(backends)

    async def _summarise(self, backends: Sequence[Backend], scribbling: asyncio.TaskGroup) -> None:
        """Write the summary that this errand was ordered for."""
        queued = self._ledger.queued
        summarising = Summarising(self._services, self._claimed, self._model, scribbling=scribbling)
        async with AsyncExitStack() as stack:
            if queued.stand_in:
                at_work = self._services.roster.at_work(queued.stand_in)
                backends = [*backends, *(await stack.enter_async_context(at_work))]
            task = await summarising.ordered(queued, backends)
            self._hear(await summarising.write(task, backends))

    async def _say(self, known: Say, backend: Backend, scribbling: asyncio.TaskGroup) -> None:
        """Settle the turn with a text that is known already: an errand's result, or a message that
        was sent from elsewhere."""
        self._last = ModelStep(
            stopped=Stopped(reason=known.reason),
            backend=backend,
            scribe=self._model.new_scribe(scribbling),
            text=known.text,
        )
        await self._settle(Settle(outcome=Outcome.DONE, reason=known.reason))

    async def _settle(self, ending: Settle) -> None:
        """Settle the turn with the answer of its last model call or, if there is none, with the
        text that was being written."""
        usage = self._model.spending.usage
        if self._last is not None:
            settlement = self._last.settlement(ending, self._ledger.queued, usage)
            settlement = await leaving_out(settlement, self._last, self._ledger)
            await self._commit(settlement, self._last.backend)
            return
        scribe = self._model.scribe
        text = await scribe.finish() if scribe else ""
        settlement = Settlement(
            outcome=ending.outcome,
            reason=ending.reason,
            detail=ending.detail,
            # Calls of the caller's tools may be all that is left of an answer that was kept before.
            agent=self._model.spent.agent if ending.outcome is Outcome.DONE else "",
            usage=usage,
            message=scribe.message if scribe else None,
            text=text,
            acknowledgements=scribe.acknowledgements if scribe and text else (),
        )
        await self._commit(settlement, None)

    async def _fail(self, reason: StopReason, detail: str) -> None:
        """Settle the turn as failed, and keep what was said."""
        self._last = None
        await self._settle(Settle(outcome=Outcome.FAILED, reason=reason, detail=detail))

    async def fail_unforeseen(self, error: Exception) -> None:
        """Settle the turn after an unexpected exception, so that the person is told and the
        conversation can continue."""
        try:
            await self._fail(StopReason.AGENT_ERROR, f"internal error: {type(error).__name__}")
        except Fenced:
            log.info("turn was taken from us", turn=self._lease.turn)

    async def _commit(self, settlement: Settlement, backend: Backend | None) -> None:
        """Settle the turn with its reply, in one transaction, then do what follows from it."""
        queued = self._ledger.queued
        is_errand = queued.kind.is_errand
        # An errand sends nothing itself: its result goes back to the session that it serves.
        surface = None if is_errand else self._surface
        settlement = msgspec.structs.replace(settlement, reach=self._model.reach)
        settlement = with_files(surface, self._ledger.events, settlement)
        audience = await self._services.alarm.audience(self._claimed, settlement)
        parts = await reply_parts(
            surface,
            self._claimed.address,
            self._lease.turn,
            self._ledger.events,
            settlement,
            audience=audience,
            seconds=self._services.clock.monotonic_s() - self._began_s,
        )
        final = msgspec.structs.replace(
            measured(
                settlement, self._model.prompted, self._model.context_tokens, self._claimed.prefix
            ),
            parts=parts,
            spoken=(
                spoken(self._ledger.events, settlement, parts) if self._services.can_speak else ""
            ),
            note=note_of(self._surface, queued, settlement),
            choices=offered(settlement),
            cost=self._model.spending.cost,
            is_reserved=self._services.budgets.is_limited,
        )
        has_words = bool(parts or final.files or is_errand)  # an errand may post a notice
        await self._ledger.settle(final, partial(self._is_settled, has_words=has_words))
        # The turn is over. If the process dies here, what follows is made up for: a later failure
        # tells the operators, and the next turn orders a title or a summary.
        await self._services.alarm.turn_is_over(self._claimed, final, audience)
        if queued.kind is TurnKind.STICKER:
            self._services.wakes.publish(Topic.FETCHES)  # turns wait for its description
        if queued.kind is TurnKind.SCHEDULED:
            self._services.wakes.publish(Topic.JOBS)  # the next run may begin
        if backend is None or is_errand:
            return
        await self._services.prompts.settled(backend, self._claimed, turn=self._ledger.events)
        await self._services.afterwards.turn_is_over(
            self._claimed,
            backend,
            queued=queued,
            outcome=final.outcome,
            context_tokens=final.context_tokens,
        )

    def _is_settled(self, settled: Settled, *, has_words: bool) -> None:
        """Note the settlement, and wake the outbox. It is called even if the caller was cancelled
        while the settlement was stored, so that the reply does not wait for another wake-up."""
        self.leaves_more = settled.has_more
        if has_words:
            self._services.wakes.publish(Topic.OUTBOX)

    async def _interrupt(self, reason: Interruption, asked: NodeRequest) -> bool:
        """End the attempt before its turn. Text that was not flushed yet is stored too, but not
        that of an errand: nobody sees it, and the next attempt writes it anew. Returns False if the
        turn was ended elsewhere."""
        try:
            scribe = self._model.scribe
            if scribe is not None:
                # Before the interruption: it moves the epoch, so a later flush would be refused.
                await scribe.finish()
                if is_watched(self._ledger.events):
                    await scribe.flush()
            attempts_max = self._services.limits.recovery.attempts_max
            spent = self._model.spent
            await self._ledger.interrupt(reason, asked, attempts_max=attempts_max, spent=spent)
        except Fenced:  # ended elsewhere, or here by a write whose answer was lost
            return False
        return True
