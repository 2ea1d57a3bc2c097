"""The agents of this gateway, by name."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.people.menu import AgentOffer
from perdure.domain.people.prices import Tariff
from perdure.domain.prompt.compaction import KEEP_SHARE
from perdure.ports.turns.agent import Agent
from perdure.ports.turns.tools import Tools


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with what it was configured to say and use. `patience_s` is how long a turn waits
    for it while it is away; `account` is the same for agents that share a limit at a provider."""

    name: str
    kind: str
    agent: Agent
    tools: Tools
    instructions: str = ""
    fallbacks: tuple[str, ...] = ()
    patience_s: float = 60.0
    account: str = ""
    tariff: Tariff = Tariff()
    has_memory: bool = False
    has_vision: bool = True
    context_tokens: int = 128_000
    compact_at: float = 0.75
    compact_agent: str = ""

    @property
    def compact_tokens(self) -> int:
        """From how much context on older turns are to be summarised."""
        return int(self.context_tokens * self.compact_at)

    @property
    def offer(self) -> AgentOffer:
        return AgentOffer(
            has_memory=self.has_memory,
            keep_tokens=int(self.context_tokens * KEEP_SHARE),
            compact_agent=self.compact_agent,
        )


class Roster:
    """Holds the agents by name; the first one is the default. An agent that a new configuration
    has replaced goes on with the turns it has, and is closed and forgotten with the last of them.
    `forget` tells those who keep something of an agent's."""

    def __init__(self, seats: Mapping[str, Seat]) -> None:
        assert seats
        self._seats = dict(seats)
        # By identity, as agents are: two of the same name may be at work.
        self._at_work: Counter[Agent] = Counter()
        self._retired: set[Agent] = set()
        self._forget: list[Callable[[Agent], None]] = []
        self.default = next(iter(self._seats))

    def when_gone(self, forget: Callable[[Agent], None]) -> None:
        """Have this called with every agent that is let go of."""
        self._forget.append(forget)

    @property
    def seats(self) -> list[Seat]:
        return list(self._seats.values())

    async def replace(self, seats: Mapping[str, Seat]) -> None:
        """Take over a new configuration; turns under way keep the seats they have."""
        assert seats
        kept = {seat.agent for seat in seats.values()}
        replaced = {seat.agent for seat in self._seats.values()} - kept
        self._retired = (self._retired | replaced) - kept
        self._seats = dict(seats)
        self.default = next(iter(self._seats))
        await self._let_go()

    @asynccontextmanager
    async def at_work(self, name: str) -> AsyncIterator[list[Seat]]:
        """The seats that a turn for this agent may use, which stay open while it does."""
        seats = self.candidates(name)
        self._at_work.update(_agents(seats))
        try:
            yield seats
        finally:
            self._at_work.subtract(_agents(seats))
            await self._let_go()

    async def _let_go(self) -> None:
        """Close the replaced agents that no turn uses any more. They are taken off the list first:
        closing takes a while, and the next turn that ends must not close them again."""
        idle = [agent for agent in self._retired if not self._at_work[agent]]
        self._retired.difference_update(idle)
        for agent in idle:
            del self._at_work[agent]
            for forget in self._forget:
                forget(agent)
            await agent.close()

    async def close(self) -> None:
        for agent in (*self._retired, *_agents(self.seats)):
            await agent.close()
        self._retired.clear()

    def resolve(self, name: str) -> str:
        """The name of a configured agent; empty means the default."""
        chosen = name or self.default
        if chosen not in self._seats:
            known = ", ".join(self._seats)
            raise Rejected(f"there is no agent {chosen!r}; choose one of: {known}", code="no_agent")
        return chosen

    def candidates(self, name: str) -> list[Seat]:
        """The agent and those that stand in when its provider fails before the first token."""
        first = self._seats.get(name) or self._seats[self.default]
        return [first, *(self._seats[each] for each in first.fallbacks if each in self._seats)]


def _agents(seats: Sequence[Seat]) -> list[Agent]:
    return [seat.agent for seat in seats]
