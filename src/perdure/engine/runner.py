"""Runs one attempt of one turn, from its claim to its settlement.

The runner holds no truth: it reads the chain, lets the agent speak, and writes each thing down
before it goes on. It may be cancelled or die between any two lines. If its lease is stale (the turn
was stopped, or another node took over), the next write says `Fenced` and it simply ends: whoever
moved the epoch has already written the ending.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial

import msgspec
import structlog

from perdure.domain.attachments import given_in
from perdure.domain.errands import Errand, errand_of, is_watched
from perdure.domain.errors import Corrupt, Fenced
from perdure.domain.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    ToolCall,
    ToolFinished,
    ToolStarted,
    TurnQueued,
    Usage,
)
from perdure.domain.ids import CallId, MessageId
from perdure.domain.outcomes import Asked, Ending, Interruption, Outcome, StopReason
from perdure.domain.recovery import (
    acknowledgements,
    closed,
    may_have_happened,
)
from perdure.domain.stream import Call, File, Spent, Stopped, Text, Thinking
from perdure.engine.budget import Spending
from perdure.engine.desk import Desk
from perdure.engine.ledger import Ledger
from perdure.engine.persist import persist
from perdure.engine.prompts import Prompted
from perdure.engine.replying import measured, reply_parts, with_files
from perdure.engine.roster import Seat
from perdure.engine.scribe import Scribe
from perdure.engine.step import Step
from perdure.engine.surfaces import Surface
from perdure.ports.tools import Caller
from perdure.ports.turns import Claimed, Settled, Settlement

log = structlog.get_logger("turn")


class Runner:
    """One attempt. `interruption` is set by the pump before it cancels us at a drain, with what the
    drain is for."""

    def __init__(
        self,
        desk: Desk,
        claimed: Claimed,
        surface: Surface | None,
        *,
        thinks: Callable[[], None] = lambda: None,
        refusal: str = "",
    ) -> None:
        """`thinks` is told while the model is at work and says nothing. With a `refusal` the turn
        ends before it begins: no model is asked and nobody is told."""
        self._desk = desk
        self._claimed = claimed
        self._surface = None if refusal else surface
        self._thinks = thinks
        self._refusal = refusal
        self._began_s = desk.clock.monotonic_s()
        self._lease = claimed.lease
        self._ledger = Ledger(
            claimed,
            turns=desk.turns,
            conversations=desk.conversations,
            feed=desk.feed,
            clock=desk.clock,
        )
        self._spending = Spending()
        self._prompted: Prompted | None = None
        self._context_tokens = 0
        untold = claimed.telling.interruptions
        self._acknowledgements = tuple(acknowledgements(self._lease.turn, untold))
        self._has_steers = False
        self._scribe: Scribe | None = None
        self.interruption: tuple[Interruption, Asked] | None = None
        self.is_lost = False  # the failure itself could not be stored
        self.leaves_more = True  # the session's next turn may be claimable after us

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
        if self._refusal:
            await self._commit(Settlement(outcome=Outcome.REFUSED, reason=self._refusal), None)
            return
        try:
            async with (
                asyncio.timeout(self._desk.limits.turn_timeout_s),
                self._desk.roster.at_work(self._ledger.queued.agent) as seats,
                asyncio.TaskGroup() as scribbling,
            ):
                await self._converse(seats, scribbling)
        except TimeoutError:
            limit_s = self._desk.limits.turn_timeout_s
            detail = f"the turn took longer than the {limit_s:g} s that [turns] timeout_s allows"
            await self._fail(StopReason.TURN_TIMEOUT, detail)

    async def _converse(self, seats: list[Seat], scribbling: asyncio.TaskGroup) -> None:
        """Model calls and tool calls in turn, until the model is finished or something failed."""
        queued = self._ledger.queued
        if queued.answer:
            step = self._answered(queued, seats[0], scribbling)
            await self._commit(step.settlement(queued, self._spending.usage), step.seat)
            return
        for _ in range(self._desk.limits.steps_max):
            await self._take_steers()
            step = await self._step_with_fallbacks(seats, scribbling)
            is_ours = bool(step.calls) and not queued.tools
            if step.stopped.reason is not StopReason.TOOL_CALLS or not is_ours:
                await self._commit(step.settlement(queued, self._spending.usage), step.seat)
                return
            await self._say(step.scribe, step.text, calls=step.calls)
            self._scribe = None
            for call in step.calls:
                await self._call_tool(step.seat, call)
            seats = [step.seat]
        limit = self._desk.limits.steps_max
        await self._fail(StopReason.STEPS_EXCEEDED, f"the turn took more than {limit} steps")

    def _answered(self, queued: TurnQueued, seat: Seat, scribbling: asyncio.TaskGroup) -> Step:
        """What an errand brought back is said as it is."""
        return Step(
            stopped=Stopped(reason=StopReason(queued.finish or StopReason.STOP)),
            seat=seat,
            scribe=self._new_scribe(scribbling),
            text=queued.answer,
        )

    async def _say(
        self,
        scribe: Scribe,
        text: str,
        *,
        calls: tuple[ToolCall, ...] = (),
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        """A message is final, and the turn goes on."""
        said = AssistantSaid(
            turn=self._lease.turn,
            attempt=self._lease.attempt,
            message=scribe.message,
            text=text,
            calls=calls,
            attachments=attachments,
        )
        await self._ledger.append([*self._acknowledged(scribe), said])

    async def _give(self, scribe: Scribe, file: File, scribbling: asyncio.TaskGroup) -> Scribe:
        """A file stands where it came: what was said before it is final with it."""
        given = await self._desk.files.take(
            file, self._claimed.principal, so_far=self._ledger.events
        )
        if isinstance(given, str):
            scribe.add(given)
            return scribe
        await self._say(scribe, await scribe.finish(), attachments=(given,))
        self._scribe = self._new_scribe(scribbling)
        return self._scribe

    async def _step_with_fallbacks(
        self, seats: Sequence[Seat], scribbling: asyncio.TaskGroup
    ) -> Step:
        """One model call. The next agent is tried only while nobody has seen anything."""
        for seat in seats:
            step = await self._step(seat, scribbling)
            reason = step.stopped.reason
            is_silent = not step.has_spoken and reason is not StopReason.BUDGET
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
                    turn=self._ledger.events,
                    telling=self._claimed.telling,
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
        known = len(self._ledger.events)
        stopped = Stopped(reason=StopReason.AGENT_ERROR, detail="the agent ended without a word")
        async with aclosing(seat.agent.run(prompted.request)) as stream:
            async for event in stream:
                match event:
                    case Text(text=text):
                        scribe.add(text)
                    case File() as file:
                        scribe = await self._give(scribe, file, scribbling)
                    case Thinking():
                        self._thinks()
                    case Call() as call:
                        calls.append(self._tool_call(seat, call))
                    case Spent(usage=usage):
                        self._spent(seat, usage)
                    case Stopped():
                        stopped = event
        text = await scribe.finish()
        return Step(
            stopped=stopped,
            seat=seat,
            scribe=scribe,
            text=text,
            calls=tuple(calls),
            has_given=any(given_in(self._ledger.events[known:])),
        )

    def _spent(self, seat: Seat, usage: Usage) -> None:
        """What the provider has counted is better than what we have estimated."""
        self._spending.add(usage, seat.tariff)
        counted = usage.input_tokens + usage.output_tokens
        self._context_tokens = max(self._context_tokens, counted)

    def _new_scribe(self, scribbling: asyncio.TaskGroup) -> Scribe:
        desk = self._desk
        return Scribe(
            self._ledger,
            MessageId(desk.mint("msg")),
            flusher=desk.flusher,
            feed=desk.feed,
            clock=desk.clock,
            scribbling=scribbling,
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
        if may_have_happened(call, [recorded.event for recorded in self._ledger.events]):
            await self._ledger.append([closed(self._lease.turn, call.id, Ending.UNKNOWN)])
            return
        await self._ledger.append([ToolStarted(turn=self._lease.turn, call=call.id)])
        caller = Caller(
            principal=self._claimed.principal,
            conversation=self._claimed.conversation,
            session=self._lease.session,
            turn=self._lease.turn,
            is_shared=self._claimed.is_shared,
        )
        result = await seat.tools.call(call, caller)
        assert result.ending in (Ending.RETURNED, Ending.FAILED)
        finished = ToolFinished(
            turn=self._lease.turn, call=call.id, ending=result.ending, result=result.text
        )
        await self._ledger.append([finished])

    def _acknowledged(self, scribe: Scribe) -> tuple[AnyEvent, ...]:
        """For the first model event of the attempt, if no flush has carried it yet."""
        self._acknowledgements = ()
        return scribe.acknowledgements

    def steer(self) -> None:
        """A message for this turn has been accepted; it is taken before the next model call."""
        self._has_steers = True

    async def _take_steers(self) -> None:
        if self._has_steers or self._ledger.has_untaken_steers:
            self._has_steers = False
            await self._ledger.take_steers()

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
        queued = self._ledger.queued
        errand = errand_of(queued.kind)
        # What an errand says is for those who sent it.
        surface = None if errand else self._surface
        settlement = with_files(surface, self._ledger.events, settlement)
        audience = await self._desk.alarm.audience(self._claimed, settlement)
        parts = await reply_parts(
            surface,
            self._claimed.address,
            self._lease.turn,
            self._ledger.events,
            settlement,
            audience=audience,
            seconds=self._desk.clock.monotonic_s() - self._began_s,
        )
        final = msgspec.structs.replace(
            measured(settlement, self._prompted, self._context_tokens, self._claimed.prefix),
            parts=parts,
            cost=self._spending.cost,
            is_reserved=self._desk.budgets.is_limited,
        )
        has_words = bool(parts or final.files or errand)  # errands leave notices
        await self._ledger.settle(final, partial(self._is_settled, has_words=has_words))
        await self._desk.alarm.turn_is_over(self._claimed, final, audience)
        if errand is Errand.STICKER:
            self._desk.fetch_wake()  # turns wait to be told its words
        if seat is None or errand:
            return
        await self._desk.prompts.settled(seat, self._claimed, turn=self._ledger.events)
        await self._desk.afterwards.turn_is_over(
            self._claimed,
            seat,
            queued=queued,
            outcome=final.outcome,
            context_tokens=final.context_tokens,
        )

    def _is_settled(self, settled: Settled, *, has_words: bool) -> None:
        self.leaves_more = settled.has_more
        if has_words:
            self._desk.outbox_wake()

    async def _interrupt(self, reason: Interruption, asked: Asked) -> None:
        """Park the turn for the next start. What was not yet flushed is kept too, unless nobody
        can have seen the text: then it is written anew."""
        try:
            if self._scribe is not None:
                await self._scribe.finish()
                if is_watched(self._ledger.events):
                    await self._scribe.flush()
            attempts_max = self._desk.limits.recovery.attempts_max
            await self._ledger.interrupt(reason, asked, attempts_max=attempts_max)
        except Fenced:  # ended by someone else, or by us and the answer was lost
            return
