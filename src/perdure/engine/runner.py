"""Runs one attempt of one turn, from its claim to its settlement.

The runner holds no truth: it reads the chain, lets the agent speak, and writes each thing down
before it goes on. It may be cancelled or die between any two lines. If its lease is stale (the turn
was stopped, or another node took over), the next write says `Fenced` and it simply ends: whoever
moved the epoch has already written the ending.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

import msgspec
import structlog

from perdure.domain.delivery import Capabilities, plan
from perdure.domain.errands import errand_of
from perdure.domain.errors import Corrupt, Fenced
from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    Recorded,
    SteerAccepted,
    SteerTaken,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    TurnSettled,
    Usage,
)
from perdure.domain.ids import CallId, MessageId
from perdure.domain.outcomes import Ending, Interruption, Outcome, StopReason
from perdure.domain.prefix import break_between, written
from perdure.domain.recovery import (
    acknowledgements,
    closing_text,
    may_have_happened,
    untold,
)
from perdure.domain.stream import Call, Spent, Stopped, Text
from perdure.domain.tokens import tokens_of
from perdure.domain.transcript import reply_text
from perdure.engine.budget import Spending
from perdure.engine.desk import Desk
from perdure.engine.persist import persist
from perdure.engine.prompts import Prompted, Telling
from perdure.engine.roster import Seat
from perdure.engine.scribe import Scribe
from perdure.ports.tools import Caller
from perdure.ports.turns import Claimed, Settled, Settlement

log = structlog.get_logger("turn")


class Step(msgspec.Struct, kw_only=True):
    """What one model call gave."""

    stopped: Stopped
    seat: Seat
    scribe: Scribe
    text: str = ""
    calls: tuple[ToolCall, ...] = ()


class Runner:
    """One attempt. `interruption` is set by the pump before it cancels us at a drain."""

    def __init__(self, desk: Desk, claimed: Claimed, capabilities: Capabilities) -> None:
        self._desk = desk
        self._claimed = claimed
        self._capabilities = capabilities
        self._lease = claimed.lease
        self._events: list[Recorded] = list(claimed.events)
        self._spending = Spending()
        self._prompted: Prompted | None = None
        self._context_tokens = 0
        interruptions = untold([claimed.before, claimed.events])
        self._telling = Telling(interruptions, claimed.before)
        self._acknowledgements = tuple(acknowledgements(self._lease.turn, interruptions))
        self._has_steers = False
        self._scribe: Scribe | None = None
        self.interruption: Interruption | None = None
        # Whether the session's next turn may be claimable after us; unless the store says no.
        self.leaves_more = True

    async def run(self) -> None:
        try:
            await self._run_unless_fenced()
        except asyncio.CancelledError:
            if self.interruption is None:
                raise
            await self._interrupt(self.interruption)

    async def _run_unless_fenced(self) -> None:
        try:
            await self._run_in_time()
        except* Fenced:
            log.info("turn was taken from us", turn=self._lease.turn)

    async def _run_in_time(self) -> None:
        try:
            async with asyncio.timeout(self._desk.limits.turn_timeout_s):
                async with asyncio.TaskGroup() as scribbling:
                    await self._converse(scribbling)
        except TimeoutError:
            detail = f"the turn took longer than {self._desk.limits.turn_timeout_s:g} s"
            await self._fail(StopReason.TURN_TIMEOUT, detail)

    async def _converse(self, scribbling: asyncio.TaskGroup) -> None:
        """Model calls and tool calls in turn, until the model is finished or something failed."""
        queued = self._queued
        seats = self._desk.roster.candidates(queued.agent)
        if queued.answer:
            await self._settle(self._answered(queued, seats[0], scribbling))
            return
        for _ in range(self._desk.limits.steps_max):
            await self._take_steers()
            step = await self._step_with_fallbacks(seats, scribbling)
            is_ours = bool(step.calls) and not queued.tools
            if step.stopped.reason is not StopReason.TOOL_CALLS or not is_ours:
                await self._settle(step)
                return
            await self._append(
                [
                    *self._acknowledged(step.scribe),
                    AssistantSaid(
                        turn=self._lease.turn,
                        attempt=self._lease.attempt,
                        message=step.scribe.message,
                        text=step.text,
                        calls=step.calls,
                    ),
                ]
            )
            self._scribe = None
            for call in step.calls:
                await self._call_tool(step.seat, call)
            seats = [step.seat]
        limit = self._desk.limits.steps_max
        await self._fail(StopReason.STEPS_EXCEEDED, f"the turn took more than {limit} steps")

    def _answered(self, queued: TurnQueued, seat: Seat, scribbling: asyncio.TaskGroup) -> Step:
        """What an errand brought back is said as it is."""
        return Step(
            stopped=Stopped(reason=StopReason.STOP),
            seat=seat,
            scribe=self._new_scribe(scribbling),
            text=queued.answer,
        )

    @property
    def _queued(self) -> TurnQueued:
        return next(r.event for r in self._events if isinstance(r.event, TurnQueued))

    async def _step_with_fallbacks(
        self, seats: Sequence[Seat], scribbling: asyncio.TaskGroup
    ) -> Step:
        """One model call. The next agent is tried only while nobody has seen anything."""
        for seat in seats:
            step = await self._step(seat, scribbling)
            reason = step.stopped.reason
            is_silent = not step.text and not step.calls and reason is not StopReason.BUDGET
            if reason.is_finish or not is_silent or seat is seats[-1]:
                return step
            log.warning(
                "agent failed before its first token, trying the next",
                turn=self._lease.turn,
                agent=seat.name,
                reason=step.stopped.reason,
                detail=step.stopped.detail,
            )
        raise AssertionError("a turn has at least one agent")

    async def _step(self, seat: Seat, scribbling: asyncio.TaskGroup) -> Step:
        scribe = self._scribe = self._new_scribe(scribbling)
        try:
            prompted = await persist(
                partial(
                    self._desk.prompts.request,
                    seat,
                    self._claimed,
                    turn=self._events,
                    telling=self._telling,
                ),
                clock=self._desk.clock,
            )
        except Corrupt as error:
            stopped = Stopped(reason=StopReason.AGENT_ERROR, detail=error.message)
            return Step(stopped=stopped, seat=seat, scribe=scribe)
        refused = await self._desk.budgets.reserve(
            self._claimed, seat.name, prompted.tokens, tariff=seat.tariff, so_far=self._spending
        )
        if refused:
            stopped = Stopped(reason=StopReason.BUDGET, detail=refused)
            return Step(stopped=stopped, seat=seat, scribe=scribe)
        self._prompted = prompted
        self._context_tokens = prompted.tokens
        calls: list[ToolCall] = []
        stopped = Stopped(reason=StopReason.AGENT_ERROR, detail="the agent ended without a word")
        async with aclosing(seat.agent.run(prompted.request)) as stream:
            async for event in stream:
                match event:
                    case Text(text=text):
                        scribe.add(text)
                    case Call() as call:
                        calls.append(self._tool_call(seat, call))
                    case Spent(usage=usage):
                        self._spent(seat, usage)
                    case Stopped():
                        stopped = event
        text = await scribe.finish()
        return Step(stopped=stopped, seat=seat, scribe=scribe, text=text, calls=tuple(calls))

    def _spent(self, seat: Seat, usage: Usage) -> None:
        """What the provider has counted is better than what we have estimated."""
        self._spending.add(usage, seat.tariff)
        counted = usage.input_tokens + usage.output_tokens
        self._context_tokens = max(self._context_tokens, counted)

    def _new_scribe(self, scribbling: asyncio.TaskGroup) -> Scribe:
        desk = self._desk
        return Scribe(
            self._lease,
            MessageId(desk.mint("msg")),
            turns=desk.turns,
            flusher=desk.flusher,
            feed=desk.feed,
            clock=desk.clock,
            scribbling=scribbling,
            written=self._find_written,
            record=self._took_effect,
            acknowledgements=self._acknowledgements,
        )

    def _tool_call(self, seat: Seat, call: Call) -> ToolCall:
        """Our own id: providers' ids repeat between calls, and everything here is found by id."""
        return ToolCall(
            id=CallId(self._desk.mint("call")),
            name=call.name,
            arguments=call.arguments,
            repeat=seat.tools.repeat(call.name),
        )

    async def _call_tool(self, seat: Seat, call: ToolCall) -> None:
        """The call is a fact before it runs, its result before the next model call. One that may
        already have happened in this turn is not made again: only a person can know."""
        if may_have_happened(call, [recorded.event for recorded in self._events]):
            unknown = ToolFinished(
                turn=self._lease.turn,
                call=call.id,
                ending=Ending.UNKNOWN,
                result=closing_text(Ending.UNKNOWN),
            )
            await self._append([unknown])
            return
        await self._append([ToolStarted(turn=self._lease.turn, call=call.id)])
        caller = Caller(
            principal=self._claimed.principal,
            conversation=self._claimed.conversation,
            session=self._lease.session,
            turn=self._lease.turn,
        )
        result = await seat.tools.call(call, caller)
        assert result.ending in (Ending.RETURNED, Ending.FAILED)
        finished = ToolFinished(
            turn=self._lease.turn, call=call.id, ending=result.ending, result=result.text
        )
        await self._append([finished])

    def _acknowledged(self, scribe: Scribe) -> tuple[AnyEvent, ...]:
        """For the first model event of the attempt, if no flush has carried it yet."""
        self._acknowledgements = ()
        return scribe.acknowledgements

    def steer(self) -> None:
        """A message for this turn has been accepted; it is taken before the next model call."""
        self._has_steers = True

    async def _take_steers(self) -> None:
        if not self._has_steers and not self._waits_for_steers():
            return
        self._has_steers = False
        taken = await persist(
            partial(self._desk.turns.take_steers, self._lease),
            clock=self._desk.clock,
            happened=self._find_taken,
        )
        self._took_effect(taken)

    async def _find_taken(self) -> list[Recorded] | None:
        new = await self._stored_since()
        return new if any(isinstance(each.event, SteerTaken) for each in new) else None

    def _waits_for_steers(self) -> bool:
        """Steers that came before this attempt began."""
        taken = {r.event.message for r in self._events if isinstance(r.event, SteerTaken)}
        return any(
            isinstance(recorded.event, SteerAccepted) and recorded.event.message not in taken
            for recorded in self._events
        )

    async def _append(self, events: Sequence[AnyEvent]) -> None:
        recorded = await persist(
            partial(self._desk.turns.append, self._lease, events),
            clock=self._desk.clock,
            happened=partial(self._find_written, events[-1]),
        )
        self._took_effect(recorded)

    async def _find_written(self, last: AnyEvent) -> list[Recorded] | None:
        """After a write of unknown fate: what of it is in the journal."""
        new = await self._stored_since()
        return new if any(recorded.event == last for recorded in new) else None

    async def _stored_since(self) -> list[Recorded]:
        """This turn's events that we do not know of."""
        known = self._events[-1].seq
        (stored,) = await persist(
            partial(self._desk.conversations.chain, self._lease.turn, limit=1),
            clock=self._desk.clock,
        )
        return [recorded for recorded in stored if recorded.seq > known]

    def _took_effect(self, recorded: Sequence[Recorded]) -> None:
        self._events += recorded
        # An errand's ending has news for the session that sent it.
        self._desk.feed.publish_recorded(recorded)

    async def _settle(self, step: Step) -> None:
        stopped = step.stopped
        is_reached = stopped.reason.is_finish or bool(step.text or step.calls)
        is_asked = not self._queued.answer
        outcome = Outcome.DONE if stopped.reason.is_finish else Outcome.FAILED
        if stopped.reason is StopReason.BUDGET:
            outcome = Outcome.REFUSED
        settlement = Settlement(
            outcome=outcome,
            reason=stopped.reason,
            detail=stopped.detail,
            agent=step.seat.name,
            usage=self._spending.usage,
            message=step.scribe.message,
            text=step.text,
            calls=step.calls,
            acknowledgements=step.scribe.acknowledgements if is_reached and is_asked else (),
        )
        await self._commit(settlement, step.seat)

    async def _fail(self, reason: StopReason, detail: str) -> None:
        """End the turn as failed, keeping what was said."""
        scribe = self._scribe
        text = await scribe.finish() if scribe else ""
        settlement = Settlement(
            outcome=Outcome.FAILED,
            reason=reason,
            detail=detail,
            usage=self._spending.usage,
            message=scribe.message if scribe else None,
            text=text,
            acknowledgements=scribe.acknowledgements if scribe and text else (),
        )
        await self._commit(settlement, None)

    async def fail_unforeseen(self, error: Exception) -> None:
        """The last resort for a failure nobody foresaw: the person sees it, the chat goes on."""
        try:
            await self._fail(StopReason.AGENT_ERROR, f"internal error: {type(error).__name__}")
        except Fenced:
            log.info("turn was taken from us", turn=self._lease.turn)

    async def _commit(self, settlement: Settlement, seat: Seat | None) -> None:
        queued = self._queued
        said = [reply_text(self._events), settlement.text.strip() and settlement.text]
        if settlement.outcome is Outcome.REFUSED:
            said.append(settlement.detail)
        whole = "\n\n".join(text for text in said if text)
        # What an errand says is for those who sent it.
        parts = () if errand_of(queued.kind) else plan(whole, self._capabilities)
        final = msgspec.structs.replace(
            self._measured(settlement),
            parts=parts,
            cost=self._spending.cost,
            is_reserved=self._desk.budgets.is_limited,
        )
        settled = await asyncio.shield(
            persist(
                partial(self._desk.turns.settle, self._lease, final),
                clock=self._desk.clock,
                happened=self._find_settled,
            )
        )
        self.leaves_more = settled.has_more
        self._took_effect(settled.recorded)
        if parts or errand_of(queued.kind):  # an errand may have left a notice
            self._desk.outbox_wake()
        if seat is None or errand_of(queued.kind):
            return
        await self._desk.prompts.settled(seat, self._claimed, turn=self._events)
        await self._desk.afterwards.turn_is_over(
            self._claimed,
            seat,
            queued=queued,
            outcome=final.outcome,
            context_tokens=final.context_tokens,
        )

    def _measured(self, settlement: Settlement) -> Settlement:
        """With how much the model reads to know all this, and what its request began with."""
        prompted = self._prompted
        if prompted is None:
            return settlement
        return msgspec.structs.replace(
            settlement,
            agent=settlement.agent or prompted.prefix.agent,
            context_tokens=self._context_tokens + tokens_of(settlement.text),
            prefix=written(prompted.prefix),
            prefix_break=break_between(self._claimed.prefix, prompted.prefix),
        )

    async def _find_settled(self) -> Settled | None:
        new = await self._stored_since()
        is_settled = any(isinstance(recorded.event, TurnSettled) for recorded in new)
        return Settled(recorded=new, has_more=True) if is_settled else None

    async def _interrupt(self, reason: Interruption) -> None:
        """Park the turn for the next start. What was not yet flushed is kept too."""
        try:
            if self._scribe is not None:
                await self._scribe.finish()
                await self._scribe.flush()
            attempts_max = self._desk.limits.recovery.attempts_max
            recorded = await persist(
                partial(self._desk.turns.interrupt, self._lease, reason, attempts_max=attempts_max),
                clock=self._desk.clock,
            )
        except Fenced:  # ended by someone else, or by us and the answer was lost
            return
        self._took_effect(recorded)
