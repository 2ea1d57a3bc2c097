"""Makes the model calls of one attempt, each with a request of its own and room in the budgets.

Text is written down as it comes (`scribe.py`). Until the first word somebody else may be asked, or
the same agent again (`reaching.py`); from then on the call is what it is. The last answer of a turn
is not journalled here: the transaction that settles the turn does that.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial

import msgspec
import structlog

from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId
from perdure.domain.journal.attachments import given_in
from perdure.domain.journal.events import AssistantSaid, Attachment, ToolCall, Usage
from perdure.domain.journal.reach import AT_ONCE
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import Measure
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.turn.announcing import away_text
from perdure.domain.turn.recovery import acknowledgements
from perdure.domain.turn.stream import (
    AgentCall,
    AgentFile,
    AgentSpent,
    AgentText,
    Stopped,
    Thinking,
)
from perdure.engine.foundation.persist import persist
from perdure.engine.models.budget import Spending
from perdure.engine.models.prompts import Prompted
from perdure.engine.models.reaching import Quest, reach_after
from perdure.engine.models.roster import Seat
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.scribe import Scribe
from perdure.engine.turns.step import ModelStep, room_left
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

log = structlog.get_logger("turn")


class ModelCalls:
    """Knows what the model calls of one attempt have said, taken and cost so far."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        ledger: Ledger,
        *,
        thinks: Callable[[], None],
    ) -> None:
        """`thinks` is called while a model is at work and says nothing."""
        self._services = services
        self._claimed = claimed
        self._ledger = ledger
        self._thinks = thinks
        self._prepared: tuple[str, int] | None = None
        self._quest: Quest | None = None
        self._room = room_left(services.limits.bounds, claimed.events)
        untold = claimed.telling.interruptions
        self._acknowledgements = tuple(acknowledgements(ledger.lease.turn, untold))
        self.prompted: Prompted | None = None
        self.spending = Spending()
        self.context_tokens = 0
        self.reach = AT_ONCE
        self.scribe: Scribe | None = None  # of the message that is being written

    @property
    def is_waiting(self) -> bool:
        """Whether the turn waits for an agent that is away, and has said nothing yet."""
        return self._quest is not None and self._quest.is_waiting

    async def ask(self, seats: Sequence[Seat], scribbling: asyncio.TaskGroup) -> ModelStep:
        """Make one model call. It is made again, or another agent is asked, only while nobody has
        seen anything."""
        quest = self._quest = self._services.reaching.quest(seats, self._tell_of_wait)
        step: ModelStep | None = None
        try:
            while (seat := await quest.next()) is not None:
                await self._ledger.take_steers()
                step = await self._call(seat, quest, scribbling)
                if step.is_final:
                    return step
                if seat.name not in quest.missed:
                    self._log_failure(step)
                quest.ended(seat, step.stopped)
        finally:
            self.reach = reach_after(self.reach, quest, step.stopped if step else None)
        if step is not None:
            return step
        return ModelStep(stopped=quest.in_vain, seat=seats[0], scribe=self.new_scribe(scribbling))

    async def keep(self, step: ModelStep) -> None:
        """Journal an answer that asks for tools: its message is final, and the turn goes on."""
        await self._say(step.scribe, step.text, calls=step.calls)
        self.scribe = None

    def new_scribe(self, scribbling: asyncio.TaskGroup) -> Scribe:
        """Return a scribe for the next message, which carries what is to be acknowledged."""
        services = self._services
        return Scribe(
            self._ledger,
            MessageId(services.mint("msg")),
            flusher=services.flusher,
            scribbling=scribbling,
            acknowledgements=self._acknowledgements,
            origin=self._origin,
        )

    def _origin(self) -> RequestOrigin:
        """Return what the newest request was made from."""
        return self.prompted.origin if self.prompted else NOTHING_ASKED

    async def _say(
        self,
        scribe: Scribe,
        text: str,
        *,
        calls: tuple[ToolCall, ...] = (),
        attachments: tuple[Attachment, ...] = (),
    ) -> None:
        lease = self._ledger.lease
        said = AssistantSaid(
            turn=lease.turn,
            attempt=lease.attempt,
            message=scribe.message,
            text=text,
            calls=calls,
            attachments=attachments,
        )
        # What the first model event of the attempt acknowledges, if no flush has carried it yet.
        self._acknowledgements = ()
        await self._ledger.append([*scribe.acknowledgements, said], origin=self._origin())

    async def _give(self, scribe: Scribe, file: AgentFile, scribbling: asyncio.TaskGroup) -> Scribe:
        """A file stands where it came: what was said before it is final with it."""
        given = await self._services.files.take(
            file, self._claimed.principal, so_far=self._ledger.events
        )
        if isinstance(given, str):
            scribe.add(given)
            return scribe
        await self._say(scribe, await scribe.finish(), attachments=(given,))
        self.scribe = self.new_scribe(scribbling)
        return self.scribe

    def _log_failure(self, step: ModelStep) -> None:
        log.warning(
            "agent failed before its first token",
            turn=self._ledger.lease.turn,
            agent=step.seat.name,
            reason=step.stopped.reason,
            detail=step.stopped.detail,
        )

    async def _tell_of_wait(self, stopped: Stopped) -> None:
        """Tell the person that the model is away. Programs that called are told by the end."""
        if self._quest is not None and self._ledger.queued.kind == TurnKind.MESSAGE:
            text = away_text(stopped.reason, stopped.detail, self._quest.patience_s)
            await self._ledger.tell(text)
            self._services.wakes.publish(Topic.OUTBOX)

    async def _prepare(self, seat: Seat) -> Prompted | Stopped:
        """Return the request for a seat's agent with room for it in the budgets, or why there is
        none. A call that is made again is not prepared again while the turn stands where it did."""
        key = (seat.name, len(self._ledger.events))
        if self.prompted is not None and self._prepared == key:
            return self.prompted
        try:
            prompted = await persist(
                partial(
                    self._services.prompts.request,
                    seat,
                    self._claimed,
                    turn=self._ledger.events,
                    telling=self._claimed.telling,
                ),
                clock=self._services.clock,
            )
        except Corrupt as error:
            return Stopped(reason=StopReason.AGENT_ERROR, detail=error.message)
        refused = await self._services.budgets.reserve(
            self._claimed, seat.name, prompted.tokens, tariff=seat.tariff, so_far=self.spending
        )
        if refused:
            return Stopped(reason=StopReason.BUDGET, detail=refused)
        # Once for all tries: it is the same request, byte for byte.
        request = msgspec.structs.replace(prompted.request, room=self._room)
        prompted = msgspec.structs.replace(prompted, request=request)
        self._prepared = key
        self.prompted = prompted
        self.context_tokens = prompted.tokens
        return prompted

    async def _call(self, seat: Seat, quest: Quest, scribbling: asyncio.TaskGroup) -> ModelStep:
        scribe = self.scribe = self.new_scribe(scribbling)
        prompted = await self._prepare(seat)
        if isinstance(prompted, Stopped):
            return ModelStep(stopped=prompted, seat=seat, scribe=scribe)
        calls: list[ToolCall] = []
        known = len(self._ledger.events)
        measure = Measure(self._room)
        stopped = Stopped(reason=StopReason.AGENT_ERROR, detail="the agent ended without a word")
        await self._services.lease.held()
        async with aclosing(seat.agent.run(prompted.request, self._ledger)) as stream:
            async for event in stream:
                quest.hears(seat, event)
                match event:
                    case AgentText(text=text):
                        scribe.add(measure.text(text))
                    case AgentFile() as file:
                        scribe = await self._give(scribe, file, scribbling)
                    case Thinking():
                        self._thinks()
                    case AgentCall() as call:
                        calls.append(self._tool_call(seat, call))
                        measure.add(call.name + call.arguments)
                        measure.count_calls(len(calls))
                    case AgentSpent(usage=usage):
                        self._spent(seat, usage)
                    case Stopped():
                        stopped = event
                if measure.excess:
                    stopped = Stopped(reason=StopReason.ANSWER_EXCEEDED, detail=measure.excess)
                    calls.clear()
                    break
        self._room = measure.room_after()
        text = await scribe.finish()
        return ModelStep(
            stopped=stopped,
            seat=seat,
            scribe=scribe,
            text=text,
            calls=tuple(calls),
            has_given=any(given_in(self._ledger.events[known:])),
        )

    def _spent(self, seat: Seat, usage: Usage) -> None:
        """What the provider has counted is better than what we have estimated."""
        self.spending.add(usage, seat.tariff)
        counted = usage.input_tokens + usage.output_tokens
        self.context_tokens = max(self.context_tokens, counted)

    def _tool_call(self, seat: Seat, call: AgentCall) -> ToolCall:
        """Our own id: providers' ids repeat between calls, and everything here is found by id."""
        return ToolCall(
            id=CallId(self._services.mint("call")),
            name=call.name,
            arguments=call.arguments,
            repeat=seat.tools.repeat(call.name),
        )
