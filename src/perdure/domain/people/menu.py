"""What this gateway offers right now, for those who accept messages and take commands."""

from collections.abc import Mapping
from typing import Final

import msgspec

from perdure.domain.turn.recovery import Policy


class AgentOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as commands see it. `keep_tokens`: how much of the newest turns a compaction leaves
    as it is; `compact_agent` writes its summaries, itself if empty."""

    has_memory: bool = False
    keep_tokens: int = 25_000
    compact_agent: str = ""


class Menu(msgspec.Struct, frozen=True, kw_only=True):
    """`agents` by name, the default first; `personas` by name. `idle_reset_ms` 0: only commands
    reset. A new session's first turn waits `hold_ms` at most for the memories of the last one.
    `recovery` says what becomes of an interrupted turn when a newer message comes."""

    agents: Mapping[str, AgentOffer] = {}
    personas: tuple[str, ...] = ()
    idle_reset_ms: int = 0
    hold_ms: int = 10_000
    recovery: Policy = Policy()

    @property
    def default(self) -> str:
        return next(iter(self.agents), "")

    def answering(self, agent: str) -> str:
        """The agent that answers where this one was chosen: the default where none was, or where
        it is offered no longer."""
        return agent if agent in self.agents else self.default

    def offer(self, agent: str) -> AgentOffer:
        return self.agents.get(self.answering(agent)) or AgentOffer()


PLAIN: Final = Menu()
