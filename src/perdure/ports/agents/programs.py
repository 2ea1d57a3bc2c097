"""Defines the ports through which operators look at the agents of a node and their programs."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.ids import PrincipalId


class ProcessView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows one process of an agent. `group` is the person whose process it is, and empty where
    people share one. `server` is what it calls itself, with its version. `unclosable` counts the
    sessions that it keeps though nobody uses them. `leaving` says why it takes no more sessions."""

    name: str
    pid: int
    group: str
    server: str
    sessions: int
    prompts: int
    unclosable: int
    age_s: float
    memory_bytes: int
    has_sandbox: bool
    leaving: str = ""
    commands: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()


class ProgramView(msgspec.Struct, frozen=True, kw_only=True):
    """Shows the processes of an agent. `resting_s` is for how long none is started, because too
    many have crashed. `trouble` is why its last start failed or its last process crashed, or an
    empty string, and `no_sandbox` why its processes run without a sandbox. `starts`, `crashes` and
    `opened` (sessions) are counted since the start of the node. `is_shared`: people share its
    processes. `takes_tools`: the agent takes the tools of the gateway."""

    processes: tuple[ProcessView, ...]
    starting: int
    resting_s: float
    takes_tools: bool
    is_shared: bool
    trouble: str = ""
    no_sandbox: str = ""
    starts: int = 0
    crashes: int = 0
    opened: int = 0


class AgentStanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes how a configured agent is doing. `calls` counts its model calls under way,
    `waiting` those that wait because no more than `concurrent` are made at once. `program` is set
    if the agent is a program of its own."""

    name: str
    kind: str
    model: str = ""
    is_default: bool = False
    calls: int = 0
    waiting: int = 0
    concurrent: int | None = None
    program: ProgramView | None = None


class AgentProgramKeeper(Protocol):
    """Shows the processes of one agent, and starts one.

    Guarantees: `view` and `log` return at once, and start nothing.
    Requires: nothing.
    Raises: `warm` raises `Transient` if no process can be had now, and `Rejected` if the program
    cannot be started as it is configured.
    After a crash: nothing is kept; what is counted begins anew.
    """

    def view(self) -> ProgramView:
        """Return how the processes are."""

    def log(self) -> str:
        """Return the end of what the processes have written to standard error."""

    async def warm_for(self, principal: PrincipalId) -> None:
        """Start a process that this person's turns can use, if none runs."""


class AgentStandings(Protocol):
    """Shows the agents of a node to its operators.

    Guarantees: `standings` and `log` return at once, and start nothing.
    Requires: nothing.
    Raises: `NotFound` for an agent that is not configured, `Rejected` for one that is no program of
    its own, and what `AgentProgramKeeper` raises.
    After a crash: nothing is kept; what is counted begins anew.
    """

    def standings(self) -> Sequence[AgentStanding]:
        """Return the configured agents, in the order of the configuration."""

    def log(self, name: str) -> str:
        """Return the end of what an agent's processes have written to standard error."""

    async def warm(self, name: str, principal: PrincipalId) -> AgentStanding:
        """Start a process of an agent for this person's turns, if none runs."""


def unknown_agent(name: str) -> NotFound:
    """Return the error for an agent that is not configured."""
    return NotFound(f"no agent is called {name}; `perdure agents list` shows those that are")


def no_program(name: str, kind: str) -> Rejected:
    """Return the error for an agent that has no program of its own."""
    return Rejected(
        f"{name} is an agent of kind {kind}, which has no program of its own", code="no_program"
    )
