"""Follows one prompt of an agent, over as many calls of `run` as it takes.

The agent's calls of the gateway's tools, and its questions for permission, end a call of `run`,
while the prompt stays in flight and the agent waits. The next call of `run` for the same turn
brings the answers, and goes on hearing. In between nobody listens: what the agent says then is
kept.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from perdure.agents.acp.pool.seam import (
    AgentLost,
    AgentSession,
    ClientAsked,
    Heard,
    PermissionAsked,
    PromptEnded,
    PromptFailed,
    SessionUpdate,
    TerminalOver,
)
from perdure.agents.acp.translation.asking import permission_calls
from perdure.agents.acp.translation.endings import ended, failed, lost, stale, stuck
from perdure.agents.acp.translation.own_calls import BridgedNames
from perdure.agents.acp.translation.updates import UpdateReader
from perdure.agents.acp.watch import StopWatch
from perdure.domain.errors import Ambiguous, PerdureError
from perdure.domain.ids import CallId
from perdure.domain.journal.model.timings import Timings
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.prompt import ResultBlock
from perdure.domain.tools.framing import unframed
from perdure.domain.turn.stream import (
    AgentActed,
    AgentCall,
    AgentEvent,
    AgentSpent,
    AgentTimed,
    Stopped,
)
from perdure.ports.agents.bridge import BridgeBinding, BridgeCall
from perdure.ports.agents.client import FileText, HandedOver, NoFile
from perdure.ports.system.time_limits import time_limit

if TYPE_CHECKING:
    from acp import schema

# How much is heard ahead of whoever listens. The rest waits in the session.
AHEAD_MAX: Final = 256
_NOT_NOW: Final = "This tool cannot be called now: no answer of yours is under way."
_NOT_HANDED_OVER: Final = "what the call returned is gone; ask again"
# By which name the journal knows what came of a command in a terminal.
TERMINAL: Final = "terminal"
_ENDED_BY_ITSELF: Final = "what the agent's program says could not be followed any more"
log = structlog.get_logger("agent")


# What the agent waits for.
Waiting = BridgeCall | PermissionAsked | ClientAsked


class _Asked(msgspec.Struct, frozen=True):
    """Holds something that the agent waits for, and the calls that it has become."""

    what: Waiting
    calls: tuple[AgentCall, ...]


class Flight:
    """Represents one prompt, from its sending to its end."""

    def __init__(  # noqa: PLR0913 - what a prompt stands on
        self,
        session: AgentSession,
        bridge: BridgeBinding | None,
        *,
        names: BridgedNames,
        folder: str,
        watch: StopWatch,
        silence_s: float,
        handed: Callable[[CallId], HandedOver | None] = lambda _: None,
    ) -> None:
        """Set up the prompt. `handed` returns what a call has handed over to the agent."""
        self._handed = handed
        self._session = session
        self._bridge = bridge
        self._folder = folder
        self._watch = watch
        self._silence_s = silence_s
        self._reader = UpdateReader(names)
        self._names = names
        self._heard: deque[Heard | BridgeCall | PerdureError] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._asked: list[_Asked] = []
        self._later: list[str] = []
        self._given_up: set[int] = set()
        self.has_ended = False

    @property
    def is_parked(self) -> bool:
        """Tell whether the agent waits for answers, and nobody listens."""
        return bool(self._asked)

    @property
    def is_lost(self) -> bool:
        """Tell whether the agent has died while it waited. What it had said is kept already."""
        return any(isinstance(heard, PerdureError) for heard in self._heard)

    @property
    def loss(self) -> AgentLost | None:
        """Return how the agent has died while it waited, or None."""
        return next((each for each in self._heard if isinstance(each, AgentLost)), None)

    async def lost(self) -> bool:
        """Wait until the prompt is not followed any more. Returns whether that is because the agent
        has died while it waited."""
        if self._following is not None:
            await asyncio.wait({self._following})
        return self.is_parked and self.loss is not None

    @property
    def timings(self) -> Timings:
        """Return where the time went so far."""
        return self._watch.timings

    def send(self, words: str) -> None:
        """Send a prompt, and follow it."""
        from acp import schema  # noqa: PLC0415 - the pool has loaded it for this session

        block = schema.TextContentBlock(type="text", text=words)
        self._watch.sent()
        following = self._follow(self._session.prompt([block]))
        self._following = asyncio.create_task(following)  # noqa: TID251 - `end` ends it
        self._following.add_done_callback(self._followed)

    def hear(self, call: BridgeCall) -> None:
        """Take a call that has come over the bridge."""
        if self.has_ended or not self._names.has(call.name):
            self._answer_call(call, _NOT_NOW, is_error=True)
            return
        self._reader.bridged.came(call.name, call.arguments)
        self._put(call)

    def give_up(self, key: int) -> None:
        """Note that the agent does not wait any more for a call that has come over the bridge."""
        self._given_up.add(key)

    def fits(self, results: Sequence[ResultBlock]) -> bool:
        """Tell whether these are the results of all calls that the agent waits for."""
        return self.is_parked and len(results) == sum(len(each.calls) for each in self._asked)

    def go_on(self, results: Sequence[ResultBlock], words: str) -> None:
        """Give the agent the results that it waits for, in the order of their calls. New words are
        told with the last result, or after the answer if no result can carry them."""
        asked, self._asked = self._asked, []
        self._watch.went_on()
        left = list(results)
        for number, each in enumerate(asked):
            mine, left = left[: len(each.calls)], left[len(each.calls) :]
            if isinstance(each.what, PermissionAsked):
                is_allowed = not any(result.is_error for result in mine)
                self._session.answer(each.what.key, is_allowed=is_allowed)
                continue
            (result,) = mine
            if isinstance(each.what, ClientAsked):
                self._answer_client(each.what, result)
                continue
            if each.what.key in self._given_up:
                self._later.append(f"[The result of your call of {each.what.name}:]\n{result.text}")
                continue
            is_last = not any(isinstance(e.what, BridgeCall) for e in asked[number + 1 :])
            told = f"{result.text}\n\n{words}" if words and is_last else result.text
            words = "" if is_last else words
            self._answer_call(each.what, told, is_error=result.is_error)
        if words:
            self._later.append(words)

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Yield what the agent says and does. The last event is a `Stopped`: the prompt is over, or
        the agent waits for answers."""
        while True:
            heard = self._pop() if self._heard else await self._next()
            if heard is None:
                yield self._over(stuck(self._silence_s))
                return
            match heard:
                case SessionUpdate() | TerminalOver():
                    for event in self._told(heard):
                        self._watch.hears(event)
                        yield event
                case BridgeCall() | PermissionAsked() | ClientAsked():
                    if calls := self._taken(heard):
                        for event in self._parking(calls):
                            yield event
                        return
                case PromptEnded() if self._later and heard.reason == "end_turn":
                    self.send(self._told_later())
                case _:
                    for event in self._ending(heard):
                        yield event
                    return

    def _parking(self, calls: Sequence[AgentCall]) -> Iterator[AgentEvent]:
        """Yield what ends a call of `run` while the agent waits for these calls."""
        yield from self._reader.thoughts()
        yield from calls
        self._watch.parks()
        yield AgentTimed(timings=self._watch.timings)
        yield Stopped(reason=StopReason.TOOL_CALLS)

    def _told(self, heard: SessionUpdate | TerminalOver) -> Iterator[AgentEvent]:
        """Yield what the agent tells of itself."""
        if isinstance(heard, TerminalOver):
            yield _acted(heard)
            return
        for event in self._reader.read(heard.update):
            if isinstance(event, AgentActed):
                yield from self._reader.thoughts()
            yield event

    def _ending(self, heard: PromptEnded | PromptFailed | PerdureError) -> Iterator[AgentEvent]:
        """Yield what ends the stream."""
        for event in self._reader.rest():
            self._watch.hears(event)
            yield event
        if isinstance(heard, PromptEnded) and heard.usage is not None:
            yield AgentSpent(_usage(heard.usage), is_of_one_call=False)
        self._watch.ends()
        yield AgentTimed(timings=self._watch.timings)
        match heard:
            case PromptEnded():
                yield self._over(ended(heard.reason))
            case PromptFailed():
                yield self._over(failed(heard, was_heard=self._watch.has_heard))
            case AgentLost():
                yield self._over(lost(heard))
            case _:
                yield self._over(stale(heard, was_heard=self._watch.has_heard))

    def _taken(self, first: Waiting) -> list[AgentCall]:
        """Return the calls that something which the agent waits for has become, and what it has
        asked in the same breath."""
        waiting = [first]
        while self._heard and isinstance(self._heard[0], Waiting):
            waiting.append(self._pop())  # type: ignore[arg-type]
        for what in waiting:
            calls = self._calls_of(what)
            if calls:
                self._asked.append(_Asked(what, tuple(calls)))
        return [call for each in self._asked for call in each.calls]

    def _calls_of(self, what: Waiting) -> list[AgentCall]:
        """Return the calls that people and rules decide about. There are none if nobody has to:
        then the agent has its answer."""
        if isinstance(what, BridgeCall):
            if what.key in self._given_up:
                return []
            return [AgentCall(id=str(what.key), name=what.name, arguments=what.arguments)]
        if isinstance(what, ClientAsked):
            key = f"client-{what.key}"
            return [AgentCall(id=key, name=what.name, arguments=what.arguments)]
        if self._names.asked_about(what.tool):
            # The tool is ours: its call comes over the bridge, and is decided about there.
            self._session.answer(what.key, is_allowed=True)
            return []
        self._reader.asked(what.tool)
        given = self._reader.given(what.tool.tool_call_id)
        calls = permission_calls(what.tool, folder=self._folder, known=given)
        if not calls or not what.can_allow:
            self._session.answer(what.key, is_allowed=False)
            return []
        return calls

    def _over(self, stopped: Stopped) -> Stopped:
        self.end()
        return stopped

    def end(self) -> None:
        """Hear no more. Whoever holds the session decides what becomes of it."""
        self.has_ended = True
        self._asked = []
        if self._following is not None:
            self._following.cancel()

    def _told_later(self) -> str:
        later, self._later = self._later, []
        return "\n\n".join(later)

    def _answer_client(self, asked: ClientAsked, result: ResultBlock) -> None:
        """Give the agent what its call has handed over, or say why it was not done."""
        what = self._handed(CallId(result.call))
        if isinstance(what, NoFile):
            self._session.reply(asked.key, what)
        elif result.is_error:
            self._session.refuse(asked.key, unframed(result.text))
        elif what is None and asked.has_return:
            self._session.refuse(asked.key, _NOT_HANDED_OVER)
        elif not self._session.reply(asked.key, what) and not isinstance(what, FileText | None):
            what.forget()

    def _answer_call(self, call: BridgeCall, text: str, *, is_error: bool) -> None:
        assert self._bridge is not None
        self._bridge.answer(call.key, text, is_error=is_error)

    def _put(self, heard: Heard | BridgeCall | PerdureError) -> None:
        self._heard.append(heard)
        self._news.set()

    def _pop(self) -> Heard | BridgeCall | PerdureError:
        heard = self._heard.popleft()
        self._room.set()
        return heard

    async def _next(self) -> Heard | BridgeCall | PerdureError | None:
        """Return what is heard next, or None if the agent says nothing for too long."""
        self._news.clear()
        try:
            async with time_limit(self._silence_s):
                await self._news.wait()
        except TimeoutError:
            return None
        return self._pop()

    async def _follow(self, prompt: AsyncIterator[Heard]) -> None:
        """Take what is heard of a prompt, to its end."""
        try:
            async for heard in prompt:
                while len(self._heard) >= AHEAD_MAX:
                    self._room.clear()
                    await self._room.wait()
                self._put(heard)
        except PerdureError as error:
            self._put(error)

    def _followed(self, task: asyncio.Task[None]) -> None:
        """Make sure that whoever listens does not wait for ever."""
        if not task.cancelled() and task.exception() is not None:
            log.error("a prompt could not be followed", exc_info=task.exception())
            self._put(Ambiguous(_ENDED_BY_ITSELF))


def _acted(over: TerminalOver) -> AgentActed:
    """Return what came of a command in a terminal, as the journal holds it."""
    told = {"terminal": over.name, "command": over.command}
    arguments = msgspec.json.encode(told).decode()
    return AgentActed(id=over.name, name=TERMINAL, arguments=arguments, text=over.text)


def _usage(usage: "schema.Usage") -> Usage:
    return Usage(
        input_tokens=max(usage.input_tokens, 0),
        output_tokens=max(usage.output_tokens, 0),
        cache_read_tokens=max(usage.cached_read_tokens or 0, 0),
        cache_write_tokens=max(usage.cached_write_tokens or 0, 0),
        model_calls=1,
    )
