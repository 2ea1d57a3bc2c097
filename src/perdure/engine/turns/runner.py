"""Runs one attempt of one turn, from its claim to its settlement.

The runner holds no truth. It asks what the turn needs next (`domain/turn/next_action.py`), does
that, writes it down through the turn's ledger, and asks again; it has no other branch. It may be
cancelled or die between any two lines. If its lease is stale (the turn was stopped, or another node
took over), the next write says `Fenced` and it simply ends: whoever moved the epoch has already
written the ending.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

import msgspec
import structlog

from perdure.domain.errors import Fenced
from perdure.domain.journal.events import ToolCall, ToolFinished, ToolStarted
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import CallEnding, Interruption, NodeRequest, Outcome, StopReason
from perdure.domain.turn.errands import is_watched
from perdure.domain.turn.next_action import (
    AskModel,
    AwaitAnswer,
    LastAnswer,
    RunCalls,
    Say,
    Settle,
    TurnFacts,
    asks_for_our_tools,
    next_action,
)
from perdure.domain.turn.recovery import closed, may_have_happened
from perdure.domain.turn.stream import Stopped
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.models.roster import Seat
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.model_calls import ModelCalls
from perdure.engine.turns.reply_parts import measured, note_of, reply_parts, with_files
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.step import ModelStep
from perdure.ports.system.time_limits import time_limit
from perdure.ports.turns.tools import ToolCaller
from perdure.ports.turns.turns import Claimed, Settled, Settlement
from perdure.ports.turns.wakes import Topic

log = structlog.get_logger("turn")


class Runner:
    """One attempt. `interruption` is set by the pump before it cancels us at a drain, with what the
    drain is for."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        surface: Surface | None,
        *,
        thinks: Callable[[], None] = lambda: None,
        refusal: str = "",
    ) -> None:
        """`thinks` is told while the model is at work and says nothing. With a `refusal` the turn
        ends before it begins: no model is asked and nobody is told."""
        self._services = services
        self._claimed = claimed
        self._surface = None if refusal else surface
        self._began_s = services.clock.monotonic_s()
        self._lease = claimed.lease
        self._ledger = Ledger(
            claimed,
            turns=services.turns,
            conversations=services.conversations,
            feed=services.feed,
            clock=services.clock,
        )
        self._model = ModelCalls(services, claimed, self._ledger, thinks=thinks)
        self._known = TurnFacts(refusal=refusal, steps_max=services.limits.steps_max)
        self._last: ModelStep | None = None  # the model call that the turn ends with
        self.interruption: tuple[Interruption, NodeRequest] | None = None
        self.is_lost = False  # the failure itself could not be stored
        self.is_parked = False  # the interruption is stored, and the next start goes on
        self.leaves_more = True  # the session's next turn may be claimable after us

    @property
    def is_waiting(self) -> bool:
        """Whether the turn waits for an agent that is away, and has said nothing yet."""
        return self._model.is_waiting

    def steer(self) -> None:
        """A message for this turn has been accepted; it is taken before the next model call."""
        self._ledger.steered()

    async def run(self) -> None:
        try:
            await self._run_unless_fenced()
        except asyncio.CancelledError:
            if self.interruption is None:
                raise
            await self._interrupt(*self.interruption)

    async def _run_unless_fenced(self) -> None:
        try:
            await self._run_in_time()
        except* Fenced:
            log.info("turn was taken from us", turn=self._lease.turn)

    async def _run_in_time(self) -> None:
        try:
            async with (
                time_limit(self._services.limits.turn_timeout_s),
                self._services.roster.at_work(self._ledger.queued.agent) as seats,
                asyncio.TaskGroup() as scribbling,
            ):
                await self._work(seats, scribbling)
        except TimeoutError:
            limit_s = self._services.limits.turn_timeout_s
            detail = f"the turn took longer than the {limit_s:g} s that [turns] timeout_s allows"
            await self._fail(StopReason.TURN_TIMEOUT, detail)

    async def _work(self, seats: Sequence[Seat], scribbling: asyncio.TaskGroup) -> None:
        """Do what the turn needs next, until it is settled or waits for somebody."""
        while True:
            action = next_action(self._ledger.facts, self._known)
            match action:
                case AskModel():
                    seats = await self._ask(seats, scribbling)
                case RunCalls(calls=calls):
                    for call in calls:
                        await self._call_tool(seats[0], call)
                case AwaitAnswer(question=question):
                    await self._ledger.wait(question)
                    return
                case Say() as known:
                    await self._say(known, seats[0], scribbling)
                    return
                case Settle() as ending:
                    await self._settle(ending)
                    return
                case None:
                    return
                case _:
                    assert_never(action)

    async def _ask(self, seats: Sequence[Seat], scribbling: asyncio.TaskGroup) -> Sequence[Seat]:
        """Make one model call. Returns who makes the next one: whoever has answered goes on."""
        await self._ledger.take_steers()
        step = await self._model.ask(seats, scribbling)
        if asks_for_our_tools(self._ledger.queued, step.stopped.reason, step.calls):
            await self._model.keep(step)
            return [step.seat]
        self._last = step
        heard = LastAnswer(reason=step.stopped.reason, detail=step.stopped.detail)
        self._known = msgspec.structs.replace(self._known, heard=heard)
        return seats

    async def _say(self, known: Say, seat: Seat, scribbling: asyncio.TaskGroup) -> None:
        """Settle with what an errand brought back, or somebody sent, as it is."""
        self._last = ModelStep(
            stopped=Stopped(reason=known.reason),
            seat=seat,
            scribe=self._model.new_scribe(scribbling),
            text=known.text,
        )
        await self._settle(Settle(outcome=Outcome.DONE, reason=known.reason))

    async def _settle(self, ending: Settle) -> None:
        usage = self._model.spending.usage
        if self._last is not None:
            settlement = self._last.settlement(ending, self._ledger.queued, usage)
            await self._commit(settlement, self._last.seat)
            return
        scribe = self._model.scribe
        text = await scribe.finish() if scribe else ""
        settlement = Settlement(
            outcome=ending.outcome,
            reason=ending.reason,
            detail=ending.detail,
            usage=usage,
            message=scribe.message if scribe else None,
            text=text,
            acknowledgements=scribe.acknowledgements if scribe and text else (),
        )
        await self._commit(settlement, None)

    async def _call_tool(self, seat: Seat, call: ToolCall) -> None:
        """The call is a fact before it runs, its result before the next model call. One that may
        already have happened in this turn is not made again: only a person can know."""
        if may_have_happened(call, self._ledger.facts):
            await self._ledger.append([closed(self._lease.turn, call.id, CallEnding.UNKNOWN)])
            return
        await self._ledger.append([ToolStarted(turn=self._lease.turn, call=call.id)])
        caller = ToolCaller(
            principal=self._claimed.principal,
            conversation=self._claimed.conversation,
            session=self._lease.session,
            turn=self._lease.turn,
            is_shared=self._claimed.is_shared,
        )
        await self._services.lease.held()
        result = await seat.tools.call(call, caller)
        assert result.ending in (CallEnding.RETURNED, CallEnding.FAILED)
        finished = ToolFinished(
            turn=self._lease.turn, call=call.id, ending=result.ending, result=result.text
        )
        await self._ledger.append([finished])

    async def _fail(self, reason: StopReason, detail: str) -> None:
        """End the turn as failed, keeping what was said."""
        self._last = None
        await self._settle(Settle(outcome=Outcome.FAILED, reason=reason, detail=detail))

    async def fail_unforeseen(self, error: Exception) -> None:
        """The last resort for a failure nobody foresaw: the person sees it, the chat goes on."""
        try:
            await self._fail(StopReason.AGENT_ERROR, f"internal error: {type(error).__name__}")
        except Fenced:
            log.info("turn was taken from us", turn=self._lease.turn)

    async def _commit(self, settlement: Settlement, seat: Seat | None) -> None:
        queued = self._ledger.queued
        is_errand = queued.kind.is_errand
        # What an errand says is for those who sent it.
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
            note=note_of(self._surface, queued, settlement),
            cost=self._model.spending.cost,
            is_reserved=self._services.budgets.is_limited,
        )
        has_words = bool(parts or final.files or is_errand)  # errands leave notices
        await self._ledger.settle(final, partial(self._is_settled, has_words=has_words))
        await self._services.alarm.turn_is_over(self._claimed, final, audience)
        if queued.kind is TurnKind.STICKER:
            self._services.wakes.publish(Topic.FETCHES)  # turns wait to be told its words
        if seat is None or is_errand:
            return
        await self._services.prompts.settled(seat, self._claimed, turn=self._ledger.events)
        await self._services.afterwards.turn_is_over(
            self._claimed,
            seat,
            queued=queued,
            outcome=final.outcome,
            context_tokens=final.context_tokens,
        )

    def _is_settled(self, settled: Settled, *, has_words: bool) -> None:
        self.leaves_more = settled.has_more
        if has_words:
            self._services.wakes.publish(Topic.OUTBOX)

    async def _interrupt(self, reason: Interruption, asked: NodeRequest) -> None:
        """Park the turn for the next start. What was not yet flushed is kept too, unless nobody
        can have seen the text: then it is written anew."""
        try:
            scribe = self._model.scribe
            if scribe is not None:
                await scribe.finish()
                if is_watched(self._ledger.events):
                    await scribe.flush()
            attempts_max = self._services.limits.recovery.attempts_max
            await self._ledger.interrupt(reason, asked, attempts_max=attempts_max)
            self.is_parked = True
        except Fenced:  # ended by someone else, or by us and the answer was lost
            return
