"""Runs one process of an agent, and shares it between sessions.

Only the pool ends a process, and this module does it for the pool: when it does not answer any
more, when it has ended its output, when it was told to leave and nobody uses it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import acp
import structlog
from acp import RequestError, schema
from acp.client.connection import ClientSideConnection
from pydantic import ValidationError

from perdure.agents.acp.pool.client import ProcessClient
from perdure.agents.acp.pool.counts import PoolCounts
from perdure.agents.acp.pool.session import GoingPrompt, ProcessSession
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.pool.tasks import PoolTasks
from perdure.agents.acp.states import state_after
from perdure.agents.acp.transport import ChildTransport
from perdure.domain.errors import PerdureError, Transient
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.ports.agents.client import ClientOffers
from perdure.ports.agents.programs import ProcessView
from perdure.ports.system.children import Child, ChildProgram, Children
from perdure.ports.system.clock import Clock
from perdure.ports.system.time_limits import Timer, running_time, time_limit

if TYPE_CHECKING:
    from perdure.agents.acp.states import StateUpdate

T = TypeVar("T")
# How long the end of a process may take to be told after its output has ended.
_LAST_WORDS_S: Final = 2.0
_ERROR_CHARS: Final = 2_000
_PING: Final = "perdure/ping"
_LISTED_MAX: Final = 200
_EARLY_MAX: Final = 64
log = structlog.get_logger("agents")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """Holds what a process is told by its pool: who it is, what the gateway offers it as its
    client, what it shares with the others, and who hears of its end, its changes and the prompts
    that it has answered."""

    name: str
    group: str
    slot: int
    settings: PoolSettings
    offers: ClientOffers
    counts: PoolCounts
    tasks: PoolTasks
    clock: Clock
    on_end: "Callable[[AgentProcess], None]"
    on_change: "Callable[[AgentProcess], None]"
    on_answer: Callable[[], None]
    hear_errors: Callable[[bytes], None]


class AgentProcess:
    """Holds a process, the connection to it, and its sessions."""

    def __init__(self, place: ProcessPlace, child: Child, *, has_sandbox: bool) -> None:
        self.place = place
        self.group = place.group
        self.slot = place.slot
        self.settings = place.settings
        self.counts = place.counts
        self.clock = place.clock
        self.child = child
        self.has_sandbox = has_sandbox
        self.name = f"{place.name} (pid {child.pid})"
        self.sessions: dict[str, ProcessSession] = {}
        self.opening = 0
        self.unclosable = 0
        self.spawn_ms = 0
        self.fingerprint: object = None
        self.prompts: set[GoingPrompt] = set()
        self.prompts_lost = 0
        self.leaving = ""
        self.memory_bytes = 0
        self.began_s = self.used_s = self.now_s()
        self.commands: tuple[str, ...] = ()
        self.modes: tuple[str, ...] = ()
        self.early: dict[str, AgentState] = {}
        self.known: schema.InitializeResponse | None = None
        self._ended = asyncio.Event()
        self._ended_words = ""
        self._failed = ""
        self._heard_s = 0.0
        self._silence: Timer | None = None
        self._leaving_timer: asyncio.TimerHandle | None = None
        transport = ChildTransport(child, hear=self._hear, skip=self._skip, end=self._note_eof)
        client = ProcessClient(place.offers, self._asked)
        self.connection: ClientSideConnection = acp.connect_to_agent(
            client,  # type: ignore[arg-type]
            transport,
        )
        self._watching = self.start(self._watch(), name=f"watch {self.name}")

    def now_s(self) -> float:
        """Return the reading of a clock that never goes back."""
        return self.clock.monotonic_s()

    def start(self, work: Coroutine[Any, Any, T], /, *, name: str) -> "asyncio.Task[T]":
        """Run `work` as a task that ends with the pool."""
        return self.place.tasks.start(work, name=name)

    # What it is, and what can be done with it.

    @property
    def is_over(self) -> bool:
        """Tell whether the process has ended or cannot be talked with any more."""
        return self._ended.is_set() or bool(self._failed)

    @property
    def is_usable(self) -> bool:
        """Tell whether prompts may be sent."""
        return not self.is_over and not self.leaving

    @property
    def load(self) -> int:
        """Return how many sessions the process has, with those that are being opened."""
        return len(self.sessions) + self.opening

    @property
    def capabilities(self) -> schema.AgentCapabilities:
        """Return what the agent says that it can do."""
        assert self.known is not None
        return self.known.agent_capabilities or schema.AgentCapabilities()

    @property
    def can_close(self) -> bool:
        """Tell whether the agent closes sessions when it is told to."""
        can = self.capabilities.session_capabilities
        return can is not None and can.close is not None

    @property
    def has_http(self) -> bool:
        """Tell whether the agent reaches tools over HTTP."""
        can = self.capabilities.mcp_capabilities
        return can is not None and bool(can.http)

    @property
    def errors(self) -> str:
        """Return the end of what the process has written to standard error."""
        return self.child.errors[-_ERROR_CHARS:].strip()

    def view(self) -> ProcessView:
        """Return what people see of the process."""
        about = self.known.agent_info if self.known else None
        return ProcessView(
            name=self.place.name,
            pid=self.child.pid,
            group=self.group,
            server=f"{about.name} {about.version}"[:200] if about else "",
            sessions=len(self.sessions),
            prompts=len(self.prompts),
            unclosable=self.unclosable,
            age_s=self.now_s() - self.began_s,
            memory_bytes=self.memory_bytes,
            has_sandbox=self.has_sandbox,
            leaving=self.leaving,
            commands=self.commands,
            modes=self.modes,
        )

    # Its life.

    async def shake_hands(self) -> None:
        """Settle on the protocol that is spoken. Raises `Transient`; then the process is over."""
        try:
            async with time_limit(self.settings.start_s):
                self.known = await self.connection.initialize(
                    protocol_version=acp.PROTOCOL_VERSION,
                    client_capabilities=_capabilities(self.place.offers),
                    client_info=schema.Implementation(name="perdure", version="1"),
                )
        except TimeoutError:
            why = f"has not answered within {self.settings.start_s:g} s; does it speak ACP?"
        except ConnectionError:
            why = await self.gone()
        except (RequestError, ValidationError) as error:
            why = f"does not shake hands: {str(error)[:_ERROR_CHARS]}"
        else:
            if self.known.protocol_version == acp.PROTOCOL_VERSION:
                return
            why = (
                f"speaks version {self.known.protocol_version} of ACP, and Perdure speaks "
                f"{acp.PROTOCOL_VERSION}"
            )
        said = self.errors.splitlines()
        last = f" (it said: {said[-1][:300]})" if said else ""
        self.fail(why)
        raise Transient(f"the agent's process {why}{last}")

    def fail(self, why: str) -> None:
        """End the process at once, because nobody can talk with it any more."""
        if not self.is_over:
            self._failed = why
            self.prompts_lost = len(self.prompts)
            self.start(self.end(within_s=0), name=f"end {self.name}")

    def retire(self, why: str, within_s: float) -> None:
        """Give it no new work, and end it when its prompts have ended, or after this time."""
        if self.is_over:
            return
        if not self.leaving:
            self.leaving = why
            self.counts.retired[why] = self.counts.retired.get(why, 0) + 1
            log.info("a process of an agent is replaced", agent=self.name, why=why)
        due_s = asyncio.get_running_loop().time() + within_s
        if self._leaving_timer is None or self._leaving_timer.when() > due_s:
            if self._leaving_timer is not None:
                self._leaving_timer.cancel()
            loop = asyncio.get_running_loop()
            self._leaving_timer = loop.call_at(due_s, self._leave)
        self.note_change()

    def _leave(self) -> None:
        self.fail(f"was ended because {self.leaving}")

    async def end(self, *, within_s: float = 1.0) -> None:
        """End the process with everything that it has started."""
        self._failed = self._failed or "was ended by the gateway"
        await self.child.end(within_s=within_s)
        await self._ended.wait()

    async def wait(self) -> None:
        """Wait until the process has ended."""
        await self._ended.wait()

    async def gone(self) -> str:
        """Return how the process has ended, in words that follow "it". One that is only
        unreachable is ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._ended.wait()
        if not self._ended.is_set():
            self.fail("has closed its output")
        return self._failed or self._ended_words or "has closed its output"

    async def _watch(self) -> None:
        """Wait for the end of the process, and tell the pool."""
        ended = await self.child.wait()
        self._ended_words = ended.words
        if not self._failed:
            self.prompts_lost = len(self.prompts)
        self._ended.set()
        for timer in (self._silence, self._leaving_timer):
            if timer is not None:
                timer.cancel()
        for session in self.sessions.values():
            session.void_questions()
        await self.connection.close()
        self.place.on_end(self)

    @property
    def ended_words(self) -> str:
        """Return how it has ended, in words that follow "it"."""
        return self._failed or self._ended_words

    # What happens to it.

    def note_change(self) -> None:
        """Tell the pool that there may be room, or that the process may end."""
        if self.leaving and not self.prompts and not self.opening:
            self.fail(f"was ended because {self.leaving}")
        self.place.on_change(self)

    def note_prompt(self, prompt: GoingPrompt) -> None:
        """Count a prompt that runs."""
        self.prompts.add(prompt)
        self.counts.prompts += 1
        self._heard_s = running_time().now_s()
        if self._silence is None:
            self._listen_for_silence(self.settings.silence_s)

    def note_prompt_end(self, prompt: GoingPrompt) -> None:
        """Count a prompt that has ended."""
        self.prompts.discard(prompt)
        self.used_s = self.now_s()
        if not self.prompts and self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self.note_change()

    def note_answer(self) -> None:
        """Note that the agent has answered a prompt."""
        self.place.on_answer()

    def _listen_for_silence(self, seconds: float) -> None:
        self._silence = Timer(running_time().now_s() + seconds, self._ask_whether_it_lives)

    def _ask_whether_it_lives(self) -> None:
        """Ask after long silence. Silence alone is no death: a model may think for minutes."""
        self._silence = None
        if not self.prompts or self.is_over:
            return
        left_s = self._heard_s + self.settings.silence_s - running_time().now_s()
        if left_s > 0:
            self._listen_for_silence(left_s)
        else:
            self.start(self._ping(), name=f"ping {self.name}")

    async def _ping(self) -> None:
        try:
            async with time_limit(self.settings.ping_s):
                await self.connection.ext_method(_PING, {})
        except TimeoutError:
            if running_time().now_s() - self._heard_s >= self.settings.ping_s:
                self.fail("did not answer any more and was ended")
                return
        except ConnectionError:
            return
        except (RequestError, ValidationError):
            pass  # It does not know the word, and so it lives.
        self._heard_s = running_time().now_s()
        if self.prompts and self._silence is None:
            self._listen_for_silence(self.settings.silence_s)

    def _note_eof(self) -> None:
        """Note that the output has ended. A process that still lives is of no use."""
        self.prompts_lost = self.prompts_lost or len(self.prompts)
        self.start(self.gone(), name=f"end {self.name}")

    def _skip(self) -> None:
        self.counts.skipped_lines += 1

    def _hear(self, params: Any, size: int) -> None:
        """Give an update to the session that it is for."""
        self._heard_s = running_time().now_s()
        try:
            told = schema.SessionNotification.model_validate(params)
        except ValidationError:
            self.counts.lost_updates += 1
            return
        update = told.update
        if isinstance(update, schema.AvailableCommandsUpdate):
            names = [each.name for each in update.available_commands[:_LISTED_MAX]]
            self.commands = tuple(names)
        session = self.sessions.get(told.session_id)
        if isinstance(update, schema.CurrentModeUpdate | schema.AvailableCommandsUpdate):
            # Most agents tell it between the opening of a session and its first prompt.
            if session is not None:
                session.state = state_after(session.state, update)
            elif self.opening:
                self._hear_early(told.session_id, update)
        if session is None or session.going is None:
            self.counts.lost_updates += 1
        else:
            session.going.hear(update, size)

    def _hear_early(self, identity: str, update: "StateUpdate") -> None:
        """Keep what is told of a session that is just being opened."""
        if len(self.early) >= _EARLY_MAX:
            self.early.clear()
        self.early[identity] = state_after(self.early.get(identity, UNTOLD), update)

    def _asked(self, identity: str) -> ProcessSession | None:
        """Return the session by which the agent asks its client for something."""
        self._heard_s = running_time().now_s()
        return self.sessions.get(identity)


async def started_process(
    place: ProcessPlace, program: ChildProgram, children: Children
) -> AgentProcess:
    """Start a process, and shake hands with it. Raises `Transient`, or `Rejected` if there is no
    such program. What has not become usable does not stay."""
    began_s = place.clock.monotonic_s()
    child = await children.start(program, hear=place.hear_errors)
    try:
        process = AgentProcess(place, child, has_sandbox=program.sandbox is not None)
    except BaseException:
        await asyncio.shield(child.end(within_s=0))
        raise
    try:
        await process.shake_hands()
    except PerdureError:
        raise
    except BaseException:
        process.fail("was ended while it was started")
        raise
    process.spawn_ms = round((place.clock.monotonic_s() - began_s) * 1000)
    return process


def _capabilities(offers: ClientOffers) -> schema.ClientCapabilities:
    """Return what an agent is told that its client can do. What is not offered it does itself, on
    the disk that its sandbox shows."""
    files = schema.FileSystemCapabilities(
        read_text_file=offers.reads, write_text_file=offers.writes
    )
    return schema.ClientCapabilities(fs=files, terminal=offers.terminals)
