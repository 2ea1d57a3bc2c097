"""Speaks with one session of a process: its prompts, its questions, and its end."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from acp import RequestError, schema
from acp.client.connection import ClientSideConnection
from pydantic import ValidationError

from perdure.agents.acp.pool.counts import PoolCounts
from perdure.agents.acp.pool.desk import ClientDesk, ClientReply, over
from perdure.agents.acp.pool.seam import (
    AgentLost,
    Heard,
    PermissionAsked,
    PromptEnded,
    PromptFailed,
    SessionTimes,
    SessionUpdate,
)
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.domain.errors import Transient
from perdure.domain.journal.model.agent_state import UNTOLD
from perdure.ports.agents.client import CALLS_MAX, AgentTerminal, HandedOver, TerminalOutput
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import time_limit

if TYPE_CHECKING:
    from perdure.agents.acp.pool.seam import Update

_WORDS_CHARS: Final = 2_000
# How long the words of an answer may come after the answer itself, if none came before.
LATE_S: Final = 0.3
QUIET_S: Final = 0.05
_TEXT: Final = "agent_message_chunk"


class SessionHost(Protocol):
    """Runs the process of a session, and hears what the session does with it."""

    name: str
    slot: int
    settings: PoolSettings
    counts: PoolCounts
    clock: Clock
    connection: ClientSideConnection
    sessions: "dict[str, ProcessSession]"
    unclosable: int
    prompts_lost: int

    @property
    def is_usable(self) -> bool:
        """Tell whether prompts may be sent."""

    @property
    def can_close(self) -> bool:
        """Tell whether the agent closes sessions when it is told to."""

    def start(self, work: Coroutine[Any, Any, None], /, *, name: str) -> "asyncio.Task[None]":
        """Run `work` as a task that ends with the pool."""

    def retire(self, why: str, within_s: float) -> None:
        """Give the process no new work, and end it when its prompts have ended, or in time."""

    async def gone(self) -> str:
        """Return how the process has ended, in words that follow "it"."""

    def note_change(self) -> None:
        """Note that the sessions have changed."""

    def note_prompt(self, prompt: "GoingPrompt", /) -> None:
        """Count a prompt that runs."""

    def note_prompt_end(self, prompt: "GoingPrompt", /) -> None:
        """Count a prompt that has ended."""

    def note_answer(self) -> None:
        """Note that the agent has answered a prompt."""


class ProcessSession:
    """Implements the `AgentSession` port."""

    def __init__(
        self, process: SessionHost, identity: str, times: SessionTimes, *, cwd: str = ""
    ) -> None:
        """Set up the session. `cwd` is where it works."""
        self._process = process
        self.identity = identity
        self.cwd = cwd
        self.desk = ClientDesk()
        self._limits: dict[str, int | None] = {}
        self.state = UNTOLD
        self.times = times
        self.going: GoingPrompt | None = None
        self.is_released = False
        self.has_failed = False
        self.used_s = process.clock.monotonic_s()
        self._questions: dict[int, asyncio.Future[bool | None]] = {}
        self._asked = 0

    @property
    def kept_as(self) -> str:
        return f"{self._process.slot}:{self.identity}"

    @property
    def is_usable(self) -> bool:
        is_idle = self.going is None and not self.is_released
        return is_idle and not self.has_failed and self._process.is_usable

    @property
    def process(self) -> str:
        return self._process.name

    def prompt(self, blocks: Sequence[schema.TextContentBlock]) -> AsyncIterator[Heard]:
        return GoingPrompt(self, self._process, blocks)

    def answer(self, key: int, *, is_allowed: bool) -> None:
        question = self._questions.get(key)
        if question is not None and not question.done():
            question.set_result(is_allowed)

    def reply(self, key: int, what: HandedOver | None) -> bool:
        return self.desk.reply(key, what)

    def refuse(self, key: int, words: str) -> None:
        self.desk.refuse(key, words)

    def release(self) -> None:
        if not self.is_released:
            self.is_released = True
            self.desk.void()
            self._process.start(self._close(), name=f"close {self.identity}")

    async def ask(
        self, tool: schema.ToolCallUpdate, options: Sequence[schema.PermissionOption]
    ) -> schema.RequestPermissionResponse:
        """Ask whoever listens, and return the answer to the agent. Only answers that hold once are
        given: agents apply the others to sessions of other people, or write them to the disk."""
        if self.going is None or self.is_released or len(self._questions) >= CALLS_MAX:
            return _answered(None)
        self._process.counts.permissions += 1
        by_kind = {each.kind: each for each in reversed(options)}
        allow, reject = by_kind.get("allow_once"), by_kind.get("reject_once")
        self._asked += 1
        key = self._asked
        question = self._questions[key] = asyncio.get_running_loop().create_future()
        asked = PermissionAsked(key=key, tool=tool, can_allow=allow is not None)
        self.going.put(asked, 0)
        try:
            is_allowed = await question
        finally:
            del self._questions[key]
        if is_allowed is None:
            return _answered(None)
        return _answered(allow if is_allowed and allow is not None else reject)

    @property
    def is_answering(self) -> bool:
        """Tell whether a prompt runs that somebody listens to."""
        return self.going is not None and self.going.is_heard and not self.is_released

    async def ask_client(
        self, tool: str, arguments: str, *, has_return: bool = True
    ) -> ClientReply:
        """Ask whoever listens for a file or a terminal. Raises `RequestError`."""
        assert self.going is not None
        self._process.counts.client_calls += 1
        hear = self.going.put
        return await self.desk.ask(tool, arguments, hear, has_return=has_return)

    def open_terminal(self, terminal: AgentTerminal, limit: int | None) -> None:
        """Keep a terminal for the agent, until it is released or the prompt is over. `limit` is how
        much of its output the agent wants."""
        self._limits[terminal.name] = limit
        self.desk.open(terminal, self._watched)
        if not self.is_answering:
            self.desk.release(terminal.name)

    async def end_terminals(self) -> None:
        """End all terminals of a prompt that is over, and wait until they have ended."""
        await self.desk.end()
        self._limits.clear()

    def terminal_output(self, name: str) -> TerminalOutput:
        """Return the output of a terminal. Raises `RequestError`."""
        return self.desk.terminal(name).output(self._limits.get(name))

    def _watched(self, terminal: AgentTerminal) -> "asyncio.Task[None]":
        return self._process.start(self._watch(terminal), name=f"watch {terminal.name}")

    async def _watch(self, terminal: AgentTerminal) -> None:
        """Wait for the end of a terminal, and tell whoever listens what came of it."""
        await terminal.over()
        if self.going is not None:
            told = over(terminal)
            self.going.put(told, len(told.text))

    def void_questions(self) -> None:
        """Answer all open questions `cancelled`."""
        for question in self._questions.values():
            if not question.done():
                question.set_result(None)

    async def _close(self) -> None:
        """Cancel what runs, and close the session in the agent."""
        process = self._process
        if self.going is not None:
            await self._cancel(self.going)
        process.sessions.pop(self.identity, None)
        if process.is_usable:
            await self._close_in_agent()
        process.note_change()

    async def _cancel(self, going: "GoingPrompt") -> None:
        process = self._process
        going.forget()
        self.void_questions()
        self.desk.void()
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with time_limit(process.settings.cancel_s):
                await process.connection.cancel(session_id=self.identity)
        if not await going.is_settled_within(process.settings.cancel_s):
            process.counts.ignored_cancels += 1
            process.retire("it ignores that a prompt was cancelled", process.settings.ignored_s)
            await going.is_settled_within(None)

    async def _close_in_agent(self) -> None:
        process = self._process
        if process.can_close:
            with contextlib.suppress(ConnectionError, TimeoutError, RequestError, ValidationError):
                async with time_limit(process.settings.close_s):
                    await process.connection.close_session(session_id=self.identity)
                process.counts.closed += 1
                return
        # The agent keeps it, with its memory and its connection to the bridge.
        process.unclosable += 1
        process.counts.unclosable += 1


def _answered(option: schema.PermissionOption | None) -> schema.RequestPermissionResponse:
    """Return the answer that takes an option, or `cancelled`."""
    if option is None:
        return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
    taken = schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
    return schema.RequestPermissionResponse(outcome=taken)


class GoingPrompt(AsyncIterator[Heard]):
    """Sends a prompt, and keeps what is heard of it until somebody asks."""

    def __init__(
        self,
        session: ProcessSession,
        process: SessionHost,
        blocks: Sequence[schema.TextContentBlock],
    ) -> None:
        self._session = session
        self._process = process
        self._blocks: list[Any] = list(blocks)
        self._heard: deque[tuple[Heard | AgentLost, int]] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._is_forgotten = False
        self._has_words = False
        self._number = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Heard:
        if self._is_over:
            raise StopAsyncIteration
        if self._task is None:
            self._begin()
        while not self._heard:
            if self._is_forgotten:
                self._is_over = True
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        item, size = self._heard.popleft()
        self._bytes -= size
        self._is_over = isinstance(item, PromptEnded | PromptFailed | AgentLost)
        if isinstance(item, AgentLost):
            raise item
        return item

    def _begin(self) -> None:
        if not self._session.is_usable:
            self._is_over = True
            raise Transient("the session of the agent is gone; a new one must be opened")
        self._session.going = self
        self._process.note_prompt(self)
        self._task = self._process.start(self._run(), name=f"prompt {self._session.identity}")

    @property
    def is_heard(self) -> bool:
        """Tell whether what the agent says is kept for somebody."""
        return not self._is_forgotten

    def put(self, item: Heard | AgentLost, size: int) -> None:
        """Keep something for the listener."""
        if self._is_forgotten:
            return
        self._heard.append((item, size))
        self._bytes += size
        self._news.set()

    def hear(self, update: "Update", size: int) -> None:
        """Keep an update for the listener. A prompt that says more than anybody reads is ended."""
        if self._is_forgotten:
            return
        self._number += 1
        self._has_words = self._has_words or update.session_update == _TEXT
        self.put(SessionUpdate(update), size)
        settings = self._process.settings
        if len(self._heard) > settings.said_items or self._bytes > settings.said_bytes:
            self._heard.clear()
            self._bytes = 0
            self.put(PromptFailed(code=0, words="the agent has said too much at once"), 0)
            self._is_forgotten = True
            self._session.release()

    def forget(self) -> None:
        """Keep nothing any more: nobody listens."""
        if not self._is_forgotten:
            self._is_forgotten = True
            self._heard.clear()
            self._news.set()

    async def is_settled_within(self, seconds: float | None) -> bool:
        """Wait until the agent has answered the prompt or is gone. Returns whether it has."""
        assert self._task is not None
        await asyncio.wait({self._task}, timeout=seconds)
        return self._task.done()

    async def _run(self) -> None:
        """Send the prompt, and keep how it ends as the last that is heard."""
        session, process = self._session, self._process
        end: PromptEnded | PromptFailed | AgentLost
        end = AgentLost("the gateway has stopped the agent", was_alone=False)
        try:
            end = await self._answer()
            if isinstance(end, PromptEnded) and not self._has_words:
                await self._wait_for_late_words()
            # Before the end is told: what came of the terminals is a part of the answer.
            await session.end_terminals()
        finally:
            # Also if this task is cancelled, because somebody listens.
            session.desk.void()
            session.going = None
            session.used_s = process.clock.monotonic_s()
            session.void_questions()
            # Some agents lose the prompt that follows an error of theirs.
            session.has_failed = not isinstance(end, PromptEnded)
            process.note_prompt_end(self)
            self.put(end, 0)
        if isinstance(end, PromptEnded) and not self._is_forgotten:
            process.note_answer()

    async def _answer(self) -> PromptEnded | PromptFailed | AgentLost:
        process = self._process
        try:
            answer = await process.connection.prompt(
                session_id=self._session.identity, prompt=self._blocks
            )
        except RequestError as error:
            return PromptFailed(code=error.code, words=_words(error))
        except ValidationError as error:
            return PromptEnded(reason=_unknown_reason(error))
        except ConnectionError:
            words = await process.gone()
            was_alone = process.prompts_lost <= 1
            return AgentLost(f"the agent's process {words}", was_alone=was_alone)
        return PromptEnded(reason=answer.stop_reason, usage=answer.usage)

    async def _wait_for_late_words(self) -> None:
        """Wait a little for words: some agents answer a prompt before they say anything."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LATE_S
        number = self._number
        while (left_s := until_s - loop.time()) > 0 and not self._is_forgotten:
            await self._process.clock.sleep(min(QUIET_S, left_s))
            if self._has_words and self._number == number:
                return
            number = self._number


def _words(error: RequestError) -> str:
    """Return what an agent says about a failure: its words, and its data if it has any."""
    data: Any = error.data
    if isinstance(data, dict):
        data = data.get("details") or data.get("message") or data
    more = f": {data}" if data else ""
    return f"{error}{more}"[:_WORDS_CHARS]


def _unknown_reason(error: ValidationError) -> str:
    """Return the reason for which a prompt has ended, from an answer that is not quite one."""
    given = [each["input"] for each in error.errors() if "stopReason" in each["loc"]]
    return str(given[0])[:_WORDS_CHARS] if given else "unknown"
