"""Answers turns by an external agent that speaks ACP: a program of its own, which keeps sessions.

The journal stays the truth. A session of the agent is used as long as it was told exactly what the
journal holds; otherwise it is given up, and a new one gets the record of the conversation. The
agent's calls of the gateway's tools, and its questions for permission, go through the turn like the
calls of any model, while its prompt stays in flight (`flight.py`).
"""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from perdure.agents.acp.binding import Binding, Calls
from perdure.agents.acp.flight import Flight
from perdure.agents.acp.kept_notes import KeptNote, KeptNotes
from perdure.agents.acp.pool.seam import AgentPool, AgentSession
from perdure.agents.acp.translation.endings import lost, unopened
from perdure.agents.acp.translation.transcript import (
    Told,
    added_words,
    changed_words,
    encoded,
    goes_on_from,
    instructions_digest,
    new_words,
    results_of,
    told_by,
    whole_words,
)
from perdure.agents.acp.watch import StopWatch
from perdure.domain.errors import NotFound, PerdureError
from perdure.domain.ids import SessionId, TurnId
from perdure.domain.journal.events import TurnSettled
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.turn.stream import AgentEvent, AgentKept, AgentTold, Stopped
from perdure.ports.agents.bridge import Bridge
from perdure.ports.agents.client import ClientCalls
from perdure.ports.system.clock import Clock
from perdure.ports.turns.agent import Work

# How many sessions are kept bound. The pool takes back what it needs before that.
BOUND_MAX: Final = 1_000
log = structlog.get_logger("agent")


class AcpTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is configured about one external agent. An empty `cwd` means a folder for each
    conversation. `silence_s` is how long it may say nothing while nobody lets it wait."""

    name: str
    cwd: str = ""
    silence_s: float = 600.0


class _UnderWay(msgspec.Struct):
    """Holds a turn whose prompt is in flight. `told` is what its session was told by now.
    `is_new`: the session was opened for this turn."""

    binding: Binding
    flight: Flight
    told: Told
    is_new: bool


class AcpAgent:
    """Implements the `Agent` port by the sessions of one pool."""

    def __init__(
        self,
        terms: AcpTerms,
        *,
        pool: AgentPool,
        bridge: Bridge,
        clock: Clock,
        notes: Path,
        calls: ClientCalls | None = None,
    ) -> None:
        """Set up the agent. `notes` is a folder of its own, for what sessions were told. By `calls`
        its hidden tools hand over what the agent has asked its client for."""
        self._calls = calls or ClientCalls()
        self._terms = terms
        self._pool = pool
        self._bridge = bridge
        self._clock = clock
        self._notes = KeptNotes(notes, clock)
        self._bound: dict[SessionId, Binding] = {}
        self._under_way: dict[TurnId, _UnderWay] = {}

    def encode(self, message: PromptMessage) -> bytes:
        return encoded(message)

    async def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        """Go on with the answer that is in flight for this turn, or begin one."""
        if stopped := self._lost_meanwhile(work.turn):
            self.let_go(work.turn)
            yield stopped
            return
        while True:
            try:
                way = self._go_on(request, work) or await self._begin(request, work)
            except PerdureError as error:
                yield unopened(error)
                return
            try:
                async for event in way.flight.events():
                    if isinstance(event, Stopped):
                        if event.reason is StopReason.PROVIDER_UNREACHABLE and not way.is_new:
                            break  # its process has died meanwhile; nothing was sent
                        if not way.flight.is_parked and (state := way.binding.newly_told()):
                            yield AgentTold(state)
                        if kept := await self._ended(way, event, request, work.session):
                            yield kept
                        yield event
                        return
                    yield event
            finally:
                self._leave(way, work.turn)

    def _lost_meanwhile(self, turn: TurnId) -> Stopped | None:
        """Return how an attempt ends whose process has died while it waited for the turn, or
        None."""
        way = self._under_way.get(turn)
        loss = way.flight.loss if way is not None else None
        return lost(loss) if loss is not None else None

    def _go_on(self, request: ModelRequest, work: Work) -> _UnderWay | None:
        """Give an answer that is in flight for this turn what it waits for. Returns None if there
        is none, or if it waits for something else."""
        way = self._under_way.get(work.turn)
        results = results_of(request)
        if way is None or way.flight.is_lost or not way.flight.fits(results):
            self.let_go(work.turn)
            return None
        way.told = told_by(request)
        way.flight.go_on(results, added_words(request))
        return way

    async def _begin(self, request: ModelRequest, work: Work) -> _UnderWay:
        """Send a prompt: in the session that has heard everything before, or in a new one."""
        binding, is_new = self._bound.pop(work.session, None), False
        try:
            note = await self._notes.take(work.session)
            if binding is None or not await self._may_go_on(binding, request, work):
                binding, is_new = await self._opened(binding, note, request, work)
            words = self._words(binding, request)
            opening = binding.session.times if is_new else None
            watch = StopWatch(self._clock, opening)
            flight = binding.begin(
                request.tools,
                watch,
                silence_s=self._terms.silence_s,
                handed=partial(self._calls.take, work.turn),
            )
            flight.send(words)
        except BaseException:
            if binding is not None:
                binding.close()
            raise
        way = _UnderWay(binding=binding, flight=flight, told=told_by(request), is_new=is_new)
        self._under_way[work.turn] = way
        self._calls.expect(work.turn)
        return way

    def _words(self, binding: Binding, request: ModelRequest) -> str:
        """Return what a session is told now."""
        if binding.note is None:
            return whole_words(request)
        if binding.note.instructions == instructions_digest(request):
            return new_words(request)
        return f"{changed_words(request.instructions)}\n\n{new_words(request)}"

    async def _may_go_on(self, binding: Binding, request: ModelRequest, work: Work) -> bool:
        """Tell whether a bound session is the right one for this turn."""
        is_right = (
            binding.session.is_usable
            and binding.flight is None
            and binding.group == self._group(work)
            and binding.can_have(request.tools)
        )
        return is_right and await self._agrees(binding.note, request, work)

    async def _agrees(self, note: KeptNote | None, request: ModelRequest, work: Work) -> bool:
        """Tell whether the journal and a session hold the same: it has heard the turn before to its
        end, and nothing was changed since."""
        if note is None or not goes_on_from(note.told, request):
            return False
        chain = await work.chain(limit=1)
        settled = [r.event for r in chain[-1] if isinstance(r.event, TurnSettled)] if chain else []
        return any(
            each.outcome is Outcome.DONE and each.agent_session == note.kept_as for each in settled
        )

    async def _opened(
        self,
        old: Binding | None,
        note: KeptNote | None,
        request: ModelRequest,
        work: Work,
    ) -> tuple[Binding, bool]:
        """Open a session: the one that the agent has kept, if it agrees with the journal, or a new
        one."""
        is_lost = old is not None and not old.session.is_usable
        note = old.note if old is not None and is_lost else note
        if old is not None:
            old.close()
        group = self._group(work)
        cwd = self._terms.cwd
        folder = Path(cwd) if cwd else self._pool.folder(group, work.session)
        calls = Calls()
        has_tools = request.tools and self._pool.takes_tools
        try:
            if has_tools:
                calls.bridge = await self._bridge.bind(
                    request.tools, hear=calls.hear, is_cancelled=calls.give_up
                )
            is_same = await self._agrees(note, request, work)
            session = await self._session(group, folder, calls, note if is_same else None)
        except BaseException:
            if calls.bridge is not None:
                calls.bridge.close()
            raise
        tools = request.tools if has_tools else ""
        binding = Binding(session[0], calls, group=group, folder=folder, tools=tools)
        binding.note = session[1]
        return binding, True

    async def _session(
        self, group: str, folder: Path, calls: Calls, note: KeptNote | None
    ) -> tuple[AgentSession, KeptNote | None]:
        """Open the session that a note names or, if that is gone, a new one. Returns it with what
        it was told."""
        bridge = calls.bridge.address if calls.bridge is not None else None
        if note is not None:
            try:
                kept = await self._pool.session(
                    group, cwd=folder, bridge=bridge, kept_as=note.kept_as
                )
            except NotFound as error:
                log.info("an agent's session is gone", agent=self._terms.name, why=error.message)
            else:
                return kept, note
        return await self._pool.session(group, cwd=folder, bridge=bridge), None

    def _group(self, work: Work) -> str:
        """Return with whom the session may share a process."""
        return "" if self._pool.is_shared else str(work.principal)

    async def _ended(
        self, way: _UnderWay, stopped: Stopped, request: ModelRequest, session: SessionId
    ) -> AgentKept | None:
        """Keep the session of an answer that is finished, if a later turn may go on there."""
        if way.flight.is_parked:
            return None
        self._log(way, stopped)
        is_alone = bool(request.purpose or request.context)
        if is_alone or stopped.reason not in (StopReason.STOP, StopReason.LENGTH):
            return None
        note = way.binding.rests(way.told, instructions_digest(request))
        self._bound[session] = way.binding
        self._prune()
        await self._notes.put(session, note)
        return AgentKept(session=note.kept_as)

    def _prune(self) -> None:
        """Give back the sessions that nobody can use any more, and the oldest one if there are too
        many."""
        for session, binding in list(self._bound.items()):
            is_too_much = len(self._bound) > BOUND_MAX
            if is_too_much or not binding.session.is_usable:
                del self._bound[session]
                binding.close()

    def _leave(self, way: _UnderWay, turn: TurnId) -> None:
        """End what nobody listens to any more. A prompt whose agent waits for us stays."""
        if way.flight.is_parked:
            return
        self._under_way.pop(turn, None)
        self._calls.drop(turn)
        if way.binding.flight is way.flight:
            way.binding.close()

    def _log(self, way: _UnderWay, stopped: Stopped) -> None:
        timings = way.flight.timings
        log.info(
            "agent answered",
            agent=self._terms.name,
            process=way.binding.session.process,
            reason=stopped.reason,
            **msgspec.structs.asdict(timings),
        )

    async def lost(self, turn: TurnId) -> bool:
        way = self._under_way.get(turn)
        return way is not None and await way.flight.lost()

    def let_go(self, turn: TurnId) -> None:
        self._calls.drop(turn)
        way = self._under_way.pop(turn, None)
        if way is not None:
            way.binding.close()

    async def close(self) -> None:
        for way in self._under_way.values():
            way.binding.close()
        for binding in self._bound.values():
            binding.close()
        self._calls.close()
        self._under_way.clear()
        self._bound.clear()
        await self._pool.close()
