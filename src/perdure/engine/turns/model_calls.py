"""Makes the model calls of one attempt, each with a request of its own and room in the budgets.

Text is stored as it comes (`scribe.py`). Before the first word the same agent may be asked again,
or another one (`reaching.py`); after it the call is never repeated. The last answer of a turn is
not appended to the journal here: the transaction that settles the turn does that.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

import msgspec
import structlog

from perdure.domain.errors import Corrupt
from perdure.domain.ids import CallId, MessageId
from perdure.domain.journal.attachments import has_acted
from perdure.domain.journal.events import (
    AnyEvent,
    AssistantSaid,
    Attachment,
    ToolCall,
)
from perdure.domain.journal.model.reach import AT_ONCE
from perdure.domain.journal.model.thoughts import Thoughts
from perdure.domain.journal.session_events import WindowExceeded
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import Measure
from perdure.domain.prompt.prefix import NOTHING_ASKED, RequestOrigin
from perdure.domain.tools.callers import names_in
from perdure.domain.turn.announcing import away_text
from perdure.domain.turn.overflow import refusal_of, room_sought
from perdure.domain.turn.recovery import acknowledgements
from perdure.domain.turn.spent import Spent
from perdure.domain.turn.stream import (
    AgentActed,
    AgentBegan,
    AgentCall,
    AgentFile,
    AgentKept,
    AgentPlan,
    AgentSpent,
    AgentText,
    AgentThoughts,
    AgentTimed,
    AgentTold,
    Stopped,
    Thinking,
)
from perdure.engine.foundation.persist import persist
from perdure.engine.models.budget import Spending
from perdure.engine.models.prompts import Prompted
from perdure.engine.models.reaching import Quest, reach_after
from perdure.engine.models.roster import Backend
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.scribe import Scribe
from perdure.engine.turns.step import CallsAsked, KeptBeside, ModelStep, room_left
from perdure.engine.turns.tools.agent_reports import AgentReports
from perdure.ports.turns.tools import Tools
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

log = structlog.get_logger("turn")


class _OneCall(Protocol):
    """Makes one call to one agent."""

    async def __call__(
        self, backend: Backend, quest: Quest, scribbling: asyncio.TaskGroup, /
    ) -> ModelStep: ...


class ModelCalls:
    """Makes the model calls of one attempt, and holds what they have said, used and cost so far.
    `claimed` is the turn as it is told now."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        ledger: Ledger,
        *,
        thinks: Callable[[], None],
    ) -> None:
        """Set up the calls. `thinks` is called while a model is working and says nothing."""
        self._services = services
        self.claimed = claimed
        self._ledger = ledger
        self._thinks = thinks
        self._prepared: tuple[str, int] | None = None
        self._quest: Quest | None = None
        self._visitor = services.reaching.places.visitor(claimed.principal)
        self._room = room_left(services.limits.bounds, claimed.events)
        untold = claimed.telling.interruptions
        self._acknowledgements = tuple(acknowledgements(ledger.lease.turn, untold))
        self._tools: dict[str, Tools] = {}
        self._reports = AgentReports(services, claimed, ledger)
        self.prompted: Prompted | None = None
        self.spending = Spending()
        self.context_tokens = 0
        self.reach = AT_ONCE
        self.scribe: Scribe | None = None  # of the message that is being written

    @property
    def is_waiting(self) -> bool:
        """Tell whether the turn waits until an agent can be asked. Nothing is said meanwhile."""
        return self._quest is not None and self._quest.is_waiting

    @property
    def spent(self) -> Spent:
        """Return what the calls that have ended have used, as far as their servers said so."""
        agent = self.prompted.basis.agent if self.prompted else self.spending.agent
        return Spent(agent=agent, usage=self.spending.usage, cost=self.spending.cost)

    @property
    def work(self) -> Ledger:
        """Return what agents may know of the turn."""
        return self._ledger

    def is_thinking(self) -> None:
        """Note that a model works and says nothing."""
        self._thinks()

    async def with_tools(self, backend: Backend) -> Backend:
        """Return a backend with its tools as they are now. They stay so for the whole attempt."""
        if not self._ledger.queued.kind.has_tools:
            return backend
        if backend.name not in self._tools:
            self._tools[backend.name] = await backend.tools.current(self.claimed.principal)
        return msgspec.structs.replace(backend, tools=self._tools[backend.name])

    async def ask(
        self,
        backends: Sequence[Backend],
        scribbling: asyncio.TaskGroup,
        *,
        call: _OneCall | None = None,
    ) -> ModelStep:
        """Make one model call, and return what it gave. The call is repeated, or another agent is
        asked, only while nobody has seen anything of an answer. The first call that is too long for
        an agent ends the search, because room is made for it. `call` is what is done with one agent
        instead of asking it for the turn's answer."""
        makes_room = call is not None or room_sought(self._ledger.facts) is None
        reaching = self._services.reaching
        quest = self._quest = reaching.quest(backends, self._tell_of_wait, self._visitor)
        step: ModelStep | None = None
        refused: ModelStep | None = None
        try:
            while (backend := await quest.next()) is not None:
                # `next` may have waited for long: messages that came meanwhile are asked too.
                await self._ledger.take_steers()
                backend = await self.with_tools(backend)
                step = await (call or self._call)(backend, quest, scribbling)
                if step.is_final:
                    return step
                if backend.name not in quest.missed:
                    self._log_failure(step)
                quest.ended(backend, step.stopped)
                if step.is_too_long and makes_room:
                    return step
                if step.is_refused:
                    refused = refused or step
                    quest.refused()
        finally:
            quest.over()
            # Also if the time limit cancels this: the settlement that follows reports the reach.
            self.reach = reach_after(self.reach, quest, step.stopped if step else None)
        if step is not None:
            # That another agent was away does not help the person; that this was refused does.
            return refused or step
        return ModelStep(
            stopped=quest.in_vain, backend=backends[0], scribe=self.new_scribe(scribbling)
        )

    async def note_window(self, step: ModelStep, *, tokens: int, is_summary: bool = False) -> None:
        """Record that a request was longer than the model's window, the first time, and whenever
        the refusal names another window than before. The window is used from then on."""
        backend, stopped = step.backend, step.stopped
        roster = self._services.roster
        is_first = not is_summary and refusal_of(self._ledger.facts) is None
        if not is_first and stopped.window in (0, roster.window(backend)):
            return
        exceeded = WindowExceeded(
            turn=self._ledger.turn,
            agent=backend.name,
            model=backend.model,
            tokens=stopped.asked or tokens,
            window=stopped.window,
            is_summary=is_summary,
        )
        await self._ledger.append([exceeded])
        if stopped.window:
            roster.learn([(backend.name, backend.model, stopped.window)])

    async def keep(self, step: ModelStep) -> None:
        """Append an answer that asks for tools: its message is final, and the turn continues."""
        await self._say(step.scribe, step.text, calls=step.calls, thoughts=step.thoughts)
        self.scribe = None

    def new_scribe(self, scribbling: asyncio.TaskGroup) -> Scribe:
        """Return a scribe for the next message. It carries the acknowledgements not stored yet."""
        services = self._services
        return Scribe(
            self._ledger,
            MessageId(services.mint("msg")),
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
        thoughts: Thoughts | None = None,
        then: Sequence[AnyEvent] = (),
    ) -> None:
        """Append a final message to the journal, with its files, and with its calls and the
        thoughts that led to them; `then` follows it. If the process dies from here on, the next
        attempt can give the thoughts back beside the calls."""
        lease = self._ledger.lease
        said = AssistantSaid(
            turn=lease.turn,
            attempt=lease.attempt,
            message=scribe.message,
            text=text,
            calls=calls,
            attachments=attachments,
            thoughts=thoughts,
        )
        # If no flush has stored the acknowledgements, the scribe still has them, and this message
        # stores them. Later messages of the attempt carry none.
        self._acknowledgements = ()
        await self._ledger.append([*scribe.acknowledgements, said, *then], origin=self._origin())

    async def _insert(
        self,
        scribe: Scribe,
        event: AgentFile | AgentActed,
        measure: Measure,
        scribbling: asyncio.TaskGroup,
        *,
        thoughts: Thoughts | None,
    ) -> Scribe:
        """Write down a file, or what the agent did with a tool of its own, at its place in the
        answer: the text before it becomes a final message with it, and a new message begins.
        Returns the scribe to continue with. If a file is not kept, the text says why."""
        if isinstance(event, AgentActed):
            measure.add(event.name + event.arguments)
            call, ended = await self._reports.taken(event)
            said = await scribe.finish()
            await self._say(scribe, said, calls=(call,), thoughts=thoughts, then=ended)
        else:
            given = await self._services.files.take(
                event, self.claimed.principal, so_far=self._ledger.events
            )
            if isinstance(given, str):
                scribe.add(given)
                return scribe
            said = await scribe.finish()
            await self._say(scribe, said, attachments=(given,), thoughts=thoughts)
        self.scribe = self.new_scribe(scribbling)
        return self.scribe

    def _log_failure(self, step: ModelStep) -> None:
        log.warning(
            "agent failed before its first token",
            turn=self._ledger.lease.turn,
            agent=step.backend.name,
            reason=step.stopped.reason,
            detail=step.stopped.detail,
        )

    async def _tell_of_wait(self, stopped: Stopped) -> None:
        """Tell the person that the model is away. For a program or an errand nobody is told: only
        the end of its turn counts."""
        if self._quest is not None and self._ledger.queued.kind == TurnKind.MESSAGE:
            text = away_text(stopped.reason, stopped.detail, self._quest.patience_s)
            await self._ledger.tell(text)
            self._services.wakes.publish(Topic.OUTBOX)

    async def _prepare(self, backend: Backend) -> Prompted | Stopped:
        """Return the request for this backend's agent, with room reserved in the budgets, or a
        `Stopped` that says why no call can be made. A repeated call uses the same request as long
        as the turn has no new events."""
        key = (backend.name, len(self._ledger.events))
        if self.prompted is not None and self._prepared == key:
            return self.prompted
        try:
            prompted = await persist(
                partial(
                    self._services.prompts.request,
                    backend,
                    self.claimed,
                    turn=self._ledger.events,
                    telling=self.claimed.telling,
                ),
                clock=self._services.clock,
            )
        except Corrupt as error:
            return Stopped(reason=StopReason.AGENT_ERROR, detail=error.message)
        refused = await self._services.budgets.reserve(
            self.claimed, backend.name, prompted.tokens, tariff=backend.tariff, so_far=self.spending
        )
        if refused:
            return Stopped(reason=StopReason.BUDGET, detail=refused)
        # The room is set once, so that all tries send the same request, byte for byte.
        request = msgspec.structs.replace(prompted.request, room=self._room)
        prompted = msgspec.structs.replace(prompted, request=request)
        self._prepared = key
        self.prompted = prompted
        self.context_tokens = prompted.tokens
        return prompted

    async def _call(
        self, backend: Backend, quest: Quest, scribbling: asyncio.TaskGroup
    ) -> ModelStep:
        """Make one call to one agent, and collect what it gives until it stops."""
        scribe = self.scribe = self.new_scribe(scribbling)
        prompted = await self._prepare(backend)
        if isinstance(prompted, Stopped):
            return ModelStep(stopped=prompted, backend=backend, scribe=scribe)
        asked = CallsAsked()
        kept = KeptBeside()
        known = len(self._ledger.events)
        measure = Measure(self._room)
        stopped = Stopped(reason=StopReason.AGENT_ERROR, detail="the agent ended without a word")
        # A process that stood still may have lost the turn, and another node then makes this call.
        # Nothing is awaited between the check and the call.
        await self._services.lease.held()
        async with aclosing(backend.agent.run(prompted.request, self._ledger)) as stream:
            async for event in stream:
                quest.hears(backend, event)
                match event:
                    case AgentText(text=text):
                        scribe.add(measure.text(text))
                    case AgentFile() | AgentActed():
                        scribe = await self._insert(
                            scribe, event, measure, scribbling, thoughts=asked.thoughts
                        )
                        asked.thoughts = None
                    case AgentThoughts() | AgentCall():
                        self._take(event, backend, asked, measure)
                    case Stopped():
                        stopped = event
                    case _:
                        await self._note(event, backend, kept)
                if measure.excess:
                    stopped = Stopped(reason=StopReason.ANSWER_EXCEEDED, detail=measure.excess)
                    asked = CallsAsked()
                    break
        self._room = measure.room_after()
        text = await scribe.finish()
        return ModelStep(
            stopped=stopped,
            backend=backend,
            scribe=scribe,
            text=text,
            calls=tuple(asked.calls),
            thoughts=asked.thoughts,
            has_given=has_acted(self._ledger.events[known:]),
            agent_session=kept.session,
            timings=kept.timings,
            agent_state=kept.state,
        )

    async def _note(
        self,
        event: Thinking | AgentSpent | AgentBegan | AgentPlan | AgentKept | AgentTimed | AgentTold,
        backend: Backend,
        kept: "KeptBeside",
    ) -> None:
        """Take what an agent tells beside its answer."""
        match event:
            case Thinking():
                self._thinks()
            case AgentSpent():
                self._spent(backend, event)
            case AgentBegan():
                self._reports.began(event)
            case AgentPlan():
                await self._reports.plan(event)
            case AgentKept(session=session):
                kept.session = session
            case AgentTimed(timings=timings):
                kept.timings = timings
            case AgentTold(state=state):
                kept.state = state

    def _take(
        self,
        event: AgentThoughts | AgentCall,
        backend: Backend,
        asked: CallsAsked,
        measure: Measure,
    ) -> None:
        """Take a tool call, or the thoughts that led to the calls."""
        if isinstance(event, AgentThoughts):
            asked.thoughts = event.thoughts
            measure.add(event.thoughts.bodies)
            return
        asked.calls.append(self._tool_call(backend, event))
        measure.add(event.name + event.arguments)
        measure.count_calls(len(asked.calls))

    def _spent(self, backend: Backend, spent: AgentSpent) -> None:
        """Add the usage that the provider has counted. That of one call also corrects an estimate
        of the context that was too low."""
        usage = spent.usage
        self.spending.add(usage, backend)
        counted = usage.input_tokens + usage.output_tokens
        if spent.is_of_one_call:
            self.context_tokens = max(self.context_tokens, counted)

    def _tool_call(self, backend: Backend, call: AgentCall) -> ToolCall:
        """Return the call with an id of our own. Every call is found by its id here, and the ids of
        providers repeat between calls."""
        return ToolCall(
            id=CallId(self._services.mint("call")),
            name=call.name,
            arguments=call.arguments,
            repeat=backend.tools.traits(call.name, call.arguments).repeat,
            is_callers=self._is_callers(backend, call.name),
        )

    def _is_callers(self, backend: Backend, name: str) -> bool:
        """Tell whether a tool was brought by the program that asks. A tool of the caller takes the
        place of the agent's tool with the same name, for this call."""
        queued = self._ledger.queued
        return bool(queued.tools) and (
            name in names_in(queued.tools) or not backend.tools.has(name)
        )
