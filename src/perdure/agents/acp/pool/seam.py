"""Defines what the pool of an agent's processes lends: sessions, and what is heard from them.

A session belongs to whoever has opened it, until `release`, or until the pool takes it back: its
process has died, was replaced, or the session was idle when its place was needed. `is_usable` tells
that, and the journal rebuilds what is lost.

Nothing here imports the official package, which takes half a second; the pool does, in a thread,
when it starts its first process.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from perdure.domain.errors import Ambiguous
from perdure.domain.journal.model.agent_state import AgentState
from perdure.ports.agents.bridge import BridgeAddress
from perdure.ports.agents.client import HandedOver

if TYPE_CHECKING:
    from acp import schema

    Update = (
        schema.UserMessageChunk
        | schema.AgentMessageChunk
        | schema.AgentThoughtChunk
        | schema.ToolCallStart
        | schema.ToolCallProgress
        | schema.AgentPlanUpdate
        | schema.AgentPlanContentUpdate
        | schema.AgentPlanRemovedUpdate
        | schema.AvailableCommandsUpdate
        | schema.CurrentModeUpdate
        | schema.ConfigOptionUpdate
        | schema.SessionInfoUpdate
        | schema.UsageUpdate
    )

AGENT_LOST: Final = "agent_lost"


class AgentLost(Ambiguous):
    """Says that the process died while it worked on a prompt, so nobody knows how far it came.
    `was_alone`: no other prompt ran in that process, so it was this one's work that ended it."""

    default_code = AGENT_LOST

    def __init__(self, message: str, *, was_alone: bool) -> None:
        super().__init__(message)
        self.was_alone = was_alone


class SessionUpdate(msgspec.Struct, frozen=True):
    """Holds one update of the prompt that runs, as the official package has read it. Its
    `session_update` names its kind."""

    update: "Update"


class PermissionAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a question of the agent: may it use this tool of its own? The agent waits until
    `answer` is called with the `key`. `can_allow` is False if it offers no yes that holds once;
    then it is told no, whatever is answered."""

    key: int
    tool: "schema.ToolCallUpdate"
    can_allow: bool = True


class ClientAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the agent asks the gateway for as its client: to read or write a file, or to run a
    command. `name` is the hidden tool that serves it. The agent waits until `reply` or `refuse` is
    called with the `key`. `has_return`: it must be given something, not only be told that it was
    done."""

    key: int
    name: str
    arguments: str
    has_return: bool = True


class TerminalOver(msgspec.Struct, frozen=True, kw_only=True):
    """Says what came of a command that the agent has run in a terminal of the gateway."""

    name: str
    command: str
    text: str


class PromptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a prompt: the agent has answered it. `reason` is its own word (`end_turn`, `max_tokens`,
    `max_turn_requests`, `refusal`, `cancelled`), or any other text if it knows no better."""

    reason: str
    usage: "schema.Usage | None" = None


class PromptFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Ends a prompt: the agent has answered it with an error. Some agents use the status of their
    model's HTTP answer (400, 429, 500) as the `code`. `words` are bounded."""

    code: int
    words: str


Heard = SessionUpdate | PermissionAsked | ClientAsked | TerminalOver | PromptEnded | PromptFailed


class SessionTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how long the opening of a session took, in milliseconds. `spawn` is 0 if the process
    was there already (`is_cold` is False)."""

    is_cold: bool = False
    spawn: int = 0
    session: int = 0
    bridge: int = 0


class AgentSession(Protocol):
    """Speaks with one session of an agent.

    Guarantees: what is heard of a prompt keeps its order, and ends with exactly one `PromptEnded`
    or `PromptFailed`, or with an error. Updates that come outside of a prompt, late ones and those
    of history that is loaded, are never heard. Nothing that this session does harms its siblings in
    the same process.
    Requires: one prompt at a time; one task that iterates over it. The caller sets its own limit to
    how long an agent may be silent while nobody lets it wait (a process that is stuck altogether is
    noticed here, and ended).
    Raises: see each method.
    After a crash: the session is gone with its process; `kept_as` may bring it back.
    """

    @property
    def kept_as(self) -> str:
        """Return the name by which `AgentPool.session` finds this session again later."""

    @property
    def is_usable(self) -> bool:
        """Tell whether a prompt may be sent now. It may only become False while the caller waits
        for something else."""

    @property
    def times(self) -> SessionTimes:
        """Return how long it took to open this session."""

    @property
    def state(self) -> AgentState:
        """Return what the agent has told of this session by now."""

    @property
    def process(self) -> str:
        """Return a name of the process for logs, such as `gemini-2 (pid 4711)`."""

    def prompt(self, blocks: "Sequence[schema.TextContentBlock]") -> AsyncIterator[Heard]:
        """Send a prompt, made of the official package's content blocks, and return what is heard of
        it. The prompt is sent when the first item is asked for, and it goes on whether or not
        somebody listens; nothing is lost between two items. Iterating raises `Transient` if the
        prompt was not sent and the session cannot be used any more, and `AgentLost` if the process
        died while it worked on the prompt."""

    def answer(self, key: int, *, is_allowed: bool) -> None:
        """Answer a question for permission, for this once. Does nothing if it is void by now."""

    def reply(self, key: int, what: HandedOver | None) -> bool:
        """Answer what the agent has asked its client for with what its call has handed over.
        Returns False if the prompt that asked is over by now."""

    def refuse(self, key: int, words: str) -> None:
        """Answer what the agent has asked its client for with an error."""

    def release(self) -> None:
        """Give the session back, and return at once. The pool does the rest by itself: open
        questions are answered `cancelled`, terminals end, a prompt in flight is cancelled and
        waited for, the session is closed in the agent. May be called twice."""


class AgentPool(Protocol):
    """Lends sessions of one configured agent.

    Guarantees: concurrent calls that need a process join one start, and a caller that is cancelled
    cancels nobody else. Processes and sessions are bounded. No process outlives the gateway.
    Requires: `group` is the same for callers whose sessions may share a process: empty where all
    may, else the person.
    Raises: see each method.
    After a crash: every process is gone; the folders stay.
    """

    @property
    def is_shared(self) -> bool:
        """Tell whether people share processes, so that the group is empty."""

    def folder(self, group: str, name: str) -> Path:
        """Return the path of a working folder, which the processes of the group can see. It need
        not exist; `session` makes it. `name` is a word without slashes, such as a session's id."""

    async def session(
        self, group: str, *, cwd: Path, bridge: BridgeAddress | None, kept_as: str = ""
    ) -> AgentSession:
        """Open a session that works in `cwd`: a new one, or the one that `kept_as` names.

        Raises `NotFound` if that one cannot be brought back (nothing was changed; open a new one),
        `Transient` if no session can be had now, with what is wrong in words, and `Rejected` if the
        program cannot be started as it is configured."""

    async def warm(self, group: str) -> None:
        """Start a process of the group if none runs. Raises what `session` raises."""

    @property
    def takes_tools(self) -> bool:
        """Tell whether the agent takes the tools of a bridge at all. Where it does not, `bridge` is
        ignored."""

    async def close(self) -> None:
        """End all processes. May be called twice; `session` raises `Transient` from here on."""
