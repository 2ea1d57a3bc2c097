"""Describes what this gateway offers at present. The code that accepts messages and takes commands
needs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from perdure.domain.inbound.commands import Given, command_in
from perdure.domain.inbound.named_prompts import NamedPrompt, short_names
from perdure.domain.schedule.jobs import NO_TERMS, ScheduleTerms
from perdure.domain.turn.recovery import Policy


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a tool to people. `state` says whether its calls are allowed, asked about or
    denied, or that the agent does not have it (`off`), and `why` says why."""

    name: str
    description: str
    state: str
    why: str

    @property
    def told(self) -> str:
        """Return what people are told of the tool."""
        return f"{self.state}: {self.why}"


class AgentOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what commands need to know about an agent. `keep_tokens`: how many tokens of the newest
    turns a compaction leaves as they are. `compact_agent` writes its summaries; if empty, the agent
    does so itself. `model` is the name of its model, if it has one, and `context_tokens` the size
    of that model's window. `reasoning` is how much it reasons by its configuration. `list_tools`
    returns what it may do, and why not the rest, and `list_prompts` the prompts of its tool
    servers; few messages ask for them."""

    has_memory: bool = False
    keep_tokens: int = 25_000
    compact_agent: str = ""
    model: str = ""
    context_tokens: int = 0
    reasoning: str = ""
    list_tools: Callable[[], tuple[OfferedTool, ...]] = tuple
    list_prompts: Callable[[], Sequence[NamedPrompt]] = tuple

    def command_in(self, text: str) -> Given | None:
        """Return the command in a text that is meant for this agent, or None if it is something to
        say. The name of a prompt looks like that of a command."""
        given = command_in(text)
        if given is None or given.command is not None:
            return given
        return None if given.name in short_names(self.list_prompts()) else given


class Menu(msgspec.Struct, frozen=True, kw_only=True):
    """Holds `agents` by name, with the default first, and the names of `personas`. With an
    `idle_reset_ms` of 0, only commands begin a new session. A new session's first turn waits at
    most `hold_ms` for the memories of the last session. `recovery` says what happens to an
    interrupted turn when a newer message comes, and `schedule` on what terms people have
    jobs. `can_speak`: there is a server that reads answers aloud."""

    agents: Mapping[str, AgentOffer] = {}
    personas: tuple[str, ...] = ()
    idle_reset_ms: int = 0
    hold_ms: int = 10_000
    recovery: Policy = Policy()
    schedule: ScheduleTerms = NO_TERMS
    can_speak: bool = False

    @property
    def default(self) -> str:
        """Return the name of the default agent, or an empty string if there are no agents."""
        return next(iter(self.agents), "")

    def answering(self, agent: str) -> str:
        """Return the agent that answers if this one was chosen: the default if none was, or if it
        is not offered any more."""
        return agent if agent in self.agents else self.default

    def in_words(self, agent: str) -> str:
        """Name an agent, with its model if that is known."""
        model = self.offer(agent).model
        return f"{agent} ({model})" if model else agent

    def offer(self, agent: str) -> AgentOffer:
        """Return what is known of the agent that answers if this one was chosen."""
        return self.agents.get(self.answering(agent)) or AgentOffer()


PLAIN: Final = Menu()
