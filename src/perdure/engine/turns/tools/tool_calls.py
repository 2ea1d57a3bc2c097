"""Runs the tool calls of a turn, and stores their results.

A call is journalled before it runs, and its result before the next step. Calls that may be made
twice run side by side; their results are stored in the order of the calls. A call that must not be
repeated runs alone, in its place.

A call ends for the turn when its time is over or the turn is stopped. If it must not be repeated,
the tool is left to finish unless it ends with the turn, and what it returns goes to the ledger of
effects, never into the turn.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from perdure.domain.ids import CallId
from perdure.domain.journal.events import (
    AnyEvent,
    Attachment,
    ToolCall,
    ToolFinished,
    ToolStarted,
)
from perdure.domain.outcomes import CallEnding, QuestionKind, Repeat
from perdure.domain.text import storable
from perdure.domain.tools.asking import refused_text
from perdure.domain.turn.next_action import started_calls
from perdure.domain.turn.recovery import closed
from perdure.domain.turn.stream import AgentFile
from perdure.domain.turn.watching import ToolProgress
from perdure.engine.foundation.persist import persist
from perdure.engine.models.roster import Backend
from perdure.engine.turns.ledger import Ledger
from perdure.engine.turns.runner_services import RunnerServices
from perdure.engine.turns.tools.permissions import (
    Answer,
    Ask,
    Delegate,
    Permissions,
    Refuse,
    Returned,
    Run,
    Unknown,
)
from perdure.engine.turns.tools.postings import Postings
from perdure.ports.turns.tools import (
    RESULT_CHARS_MAX,
    ToolCaller,
    ToolResult,
    Tools,
    WordsAsked,
    WordsGiven,
)
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

# How many calls of one turn run at the same time.
AT_ONCE: Final = 8
# How long a call that must not be repeated may go on after its turn has left it.
LATE_S: Final = 600.0
# The most characters of a result that the model is shown at once; the whole is kept as a file.
RESULT_MAX: Final = 20_000
# The shortest time between two reports of how far a call is, and the most characters of one.
REPORT_PAUSE_S: Final = 0.5
REPORT_MAX: Final = 200
log = structlog.get_logger("tools")


class CallWords(Protocol):
    """Asks a model for one call of a tool."""

    async def ask(self, asked: WordsAsked, /) -> WordsGiven:
        """Ask the model. Raises `Rejected` or `Transient` if it does not answer."""

    def end(self) -> None:
        """End whatever is being asked, and ask nothing from now on."""


class ToolCalls:
    """Runs the tool calls of one attempt."""

    def __init__(
        self,
        services: RunnerServices,
        claimed: Claimed,
        ledger: Ledger,
        permissions: Permissions,
        *,
        words: Callable[[Backend, ToolCall], "CallWords"],
        is_ending: Callable[[], bool],
    ) -> None:
        """Set up the calls. `words` lets a call ask the model of an agent, and `is_ending` tells
        whether the process ends."""
        self._is_ending = is_ending
        self._services = services
        self._claimed = claimed
        self._ledger = ledger
        self._permissions = permissions
        self._postings = Postings(services, claimed, ledger)
        self._words = words

    async def run(self, backend: Backend, calls: Sequence[ToolCall]) -> None:
        """End these calls, each by running it or as its verdict says, and store their results."""
        for batch in _batches(calls):
            known = {call.id: await self._without_running(backend, call) for call in batch}
            to_run = [call for call in batch if known[call.id] is None]
            if to_run and await self._posts(backend, to_run[0]):
                continue
            started = started_calls(self._ledger.facts)
            # Stored before the calls run: if the process dies from here on, the next attempt knows
            # that they may have happened. A call that goes on after a question has begun already.
            begun = [self._started(call) for call in to_run if call.id not in started]
            if begun:
                await self._ledger.append(begun)
            works = {
                call.id: _Work(self._services, self._ledger, call, self._words(backend, call))
                for call in to_run
            }
            try:
                for work in works.values():
                    work.begin(backend, self._permissions)
                await self._store(batch, known, works)
            finally:
                for work in works.values():
                    work.stop_waiting(is_ending=self._is_ending())

    async def _posts(self, backend: Backend, call: ToolCall) -> bool:
        """Make a call that sends something elsewhere, which is alone in its batch. The store does
        it, in the transaction that stores its result. Returns False for every other call."""
        posting = backend.tools.traits(call.name, call.arguments).posting
        if posting is None:
            return False
        verdict = self._permissions.of(call)
        why = verdict.why if isinstance(verdict, Run) else ""
        problem = await self._postings.post(call, posting, why=why)
        if problem:
            text = f"Nothing was sent: {problem}"
            await self._append([self._ended(call, CallEnding.FAILED, text)])
        return True

    async def _store(
        self,
        batch: Sequence[ToolCall],
        known: Mapping[CallId, ToolFinished | None],
        works: Mapping[CallId, "_Work"],
    ) -> None:
        """Store the results in the order of the calls, each as soon as those before it are there.
        Results that have come meanwhile are stored together."""
        ready: list[AnyEvent] = []
        for call in batch:
            work = works.get(call.id)
            if work is not None and not work.is_over and ready:
                await self._append(ready)
                ready = []
            ended = known[call.id] or await self._ended_work(call, works[call.id])
            ready += [ended] if ended else []
        if ready:
            await self._append(ready)

    async def _append(self, ready: Sequence[AnyEvent]) -> None:
        await self._ledger.append(ready)
        if any(isinstance(e, ToolFinished) and e.ending is CallEnding.UNKNOWN for e in ready):
            self._services.wakes.publish(Topic.OUTBOX)  # the people are told of the call

    async def _ended_work(self, call: ToolCall, work: "_Work") -> ToolFinished | None:
        """Return how a call that ran has ended, or None if it asks a person and goes on after
        that."""
        result = await work.result()
        if result.question is None:
            return await self._finished(call, result)
        if self._permissions.ask_midway(call, result.question):
            return None
        is_once = call.repeat is Repeat.ONCE
        ending = CallEnding.UNKNOWN if is_once else CallEnding.FAILED
        text = "The tool asked a question that nobody can be asked here, so it did not finish."
        return self._ended(call, ending, text)

    def _started(self, call: ToolCall) -> ToolStarted:
        verdict = self._permissions.of(call)
        why = verdict.why if isinstance(verdict, Run) else ""
        return ToolStarted(turn=self._ledger.turn, call=call.id, why=why)

    async def _without_running(self, backend: Backend, call: ToolCall) -> ToolFinished | None:
        """Return the result of a call that does not run, or None if it runs."""
        verdict = self._permissions.of(call)
        match verdict:
            case Run(digest=digest):
                if not digest or await self._permissions.is_as_asked(backend, call, digest):
                    return None
                text = refused_text("changed", kind=QuestionKind.APPROVAL)
                return self._ended(call, CallEnding.DENIED, text)
            case Refuse(text=text, ending=ending):
                return self._ended(call, ending, text)
            case Answer(text=text):
                return self._ended(call, CallEnding.RETURNED, text)
            case Returned(result=result, files=files):
                ended = await self._finished(call, result)
                return msgspec.structs.replace(ended, attachments=(*ended.attachments, *files))
            case Unknown():
                return closed(self._ledger.turn, call.id, CallEnding.UNKNOWN)
            case Ask() | Delegate():
                raise AssertionError("a call for which the turn must wait does not run")

    def _ended(self, call: ToolCall, ending: CallEnding, text: str) -> ToolFinished:
        return ToolFinished(turn=self._ledger.turn, call=call.id, ending=ending, result=text)

    async def _finished(self, call: ToolCall, result: ToolResult) -> ToolFinished:
        """Return the event that stores a result. A long text is kept as a file first: if the
        process dies in between, the file belongs to nothing, and the call is closed."""
        attachments, problems = await self._files(result)
        text = result.text + problems
        ended = ToolFinished(
            turn=self._ledger.turn,
            call=call.id,
            ending=result.ending,
            result=text[:RESULT_MAX],
            attachments=attachments,
        )
        if len(text) <= RESULT_MAX:
            return ended
        kept = text[:RESULT_CHARS_MAX]
        stored = await self._services.files.keep(kept, call.name, self._claimed.principal)
        if stored is None:
            cut = f"{ended.result}\n[The rest was left out: it could not be kept.]"
            return msgspec.structs.replace(ended, result=cut)
        return msgspec.structs.replace(ended, whole=stored.id, size=len(kept))

    async def _files(self, result: ToolResult) -> tuple[tuple[Attachment, ...], str]:
        """Store the files that a tool has made. Returns them, and why some were not kept."""
        given: list[Attachment] = []
        problems = ""
        for file in result.files:
            made = AgentFile(name=file.name, mime=file.mime, data=file.data)
            taken = await self._services.files.take(
                made, self._claimed.principal, so_far=self._ledger.events, more=len(given)
            )
            if isinstance(taken, Attachment):
                given.append(taken)
            else:
                problems += taken
        return tuple(given), problems


class _Work:
    """Runs one call as a task of its own, which the turn may leave."""

    def __init__(
        self, services: RunnerServices, ledger: Ledger, call: ToolCall, words: "CallWords"
    ) -> None:
        self._words = words
        self._services = services
        self._ledger = ledger
        self._call = call
        self._task: asyncio.Task[None] | None = None
        self._result: ToolResult | None = None
        self._is_left = False
        self._may_finish = False
        self._limit_s = 0.0
        self._reported_s = -math.inf

    @property
    def is_over(self) -> bool:
        return self._result is not None

    def begin(self, backend: Backend, permissions: Permissions) -> None:
        """Begin the call."""
        self._limit_s = backend.tools.time_limit_s(self._call.name)
        verdict = permissions.of(self._call)
        reply = verdict.reply if isinstance(verdict, Run) else None
        caller = msgspec.structs.replace(
            permissions.caller(), report=self._report, reply=reply, ask_model=self._words.ask
        )
        traits = backend.tools.traits(self._call.name, self._call.arguments)
        self._may_finish = self._call.repeat is Repeat.ONCE and not traits.ends_with_turn
        run = self._run(backend.tools, caller)
        self._task = self._services.start(run, name=f"tool {self._call.name}")

    async def _run(self, tools: Tools, caller: ToolCaller) -> None:
        # Nothing is awaited between this check and the call: a process that stood still may have
        # lost the turn, and another node then decides about the call.
        await self._services.lease.held()
        try:
            result = await tools.call(self._call, caller)
        finally:
            self._words.end()
        assert result.ending is not CallEnding.DENIED
        self._result = result
        if result.recorded:
            self._services.feed.publish_recorded(result.recorded)
            self._services.wakes.publish(Topic.OUTBOX)
        if self._is_left and result.ending is not CallEnding.UNKNOWN:
            log.info("a tool returned after its turn had left it", call=self._call.id)
            late = partial(
                self._services.effects.late,
                self._ledger.turn,
                self._call,
                result.ending,
                result.text,
            )
            await persist(late, clock=self._services.clock)

    async def result(self) -> ToolResult:
        """Return the result of the call, or what stands for it once its time is over."""
        assert self._task is not None
        await asyncio.wait({self._task}, timeout=self._limit_s)
        if self._result is not None:
            return self._result
        is_over = self._task.done()
        self.stop_waiting()
        if is_over:
            return self._without_result("the tool ended without a result")
        return self._without_result(
            f"the tool took longer than the {self._limit_s:g} s that it may take"
        )

    def _without_result(self, why: str) -> ToolResult:
        """Return what stands for the result of a call that has none."""
        if self._call.repeat is Repeat.ONCE:
            text = f"{why}. It may have happened: ask the person before you repeat it."
            return ToolResult(ending=CallEnding.UNKNOWN, text=text)
        return ToolResult(ending=CallEnding.FAILED, text=f"{why}; you may call again")

    def stop_waiting(self, *, is_ending: bool = False) -> None:
        """Stop waiting for the call. It is cut off if it may be made again, if it ends with its
        turn, or if the process ends; otherwise it may finish, within a while."""
        if self._task is None or self._task.done() or self._is_left:
            return
        self._is_left = True
        self._words.end()
        if self._may_finish and not is_ending:
            asyncio.get_running_loop().call_later(LATE_S, self._task.cancel)
        else:
            self._task.cancel()

    def _report(self, text: str) -> None:
        """Show how far the call is to those who watch, not too often."""
        now_s = self._services.clock.monotonic_s()
        if self._is_left or now_s - self._reported_s < REPORT_PAUSE_S:
            return
        self._reported_s = now_s
        shown = storable(text)[:REPORT_MAX]
        progress = ToolProgress(turn=self._ledger.turn, call=self._call.id, text=shown)
        self._services.feed.publish(self._ledger.session, (progress,))


def _batches(calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
    """Yield the calls that run at the same time, in order. A call that must not be repeated is
    alone."""
    batch: list[ToolCall] = []
    for call in calls:
        if batch and (call.repeat is Repeat.ONCE or len(batch) == AT_ONCE):
            yield batch
            batch = []
        batch.append(call)
        if call.repeat is Repeat.ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
