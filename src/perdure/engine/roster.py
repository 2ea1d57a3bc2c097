"""The agents of this gateway, by name."""

from collections.abc import Mapping

import msgspec

from perdure.domain.compaction import KEEP_SHARE
from perdure.domain.errors import Rejected
from perdure.domain.menu import Offer
from perdure.domain.prices import Tariff
from perdure.ports.agent import Agent
from perdure.ports.tools import Tools


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with what it was configured to say and use."""

    name: str
    kind: str
    agent: Agent
    tools: Tools
    instructions: str = ""
    fallbacks: tuple[str, ...] = ()
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
    def offer(self) -> Offer:
        return Offer(
            has_memory=self.has_memory,
            keep_tokens=int(self.context_tokens * KEEP_SHARE),
            compact_agent=self.compact_agent,
        )


class Roster:
    """The first agent is the default."""

    def __init__(self, seats: Mapping[str, Seat]) -> None:
        assert seats
        self._seats = dict(seats)
        self._retired: list[Seat] = []
        self.default = next(iter(self._seats))

    @property
    def seats(self) -> list[Seat]:
        return list(self._seats.values())

    def replace(self, seats: Mapping[str, Seat]) -> None:
        """Take over a new configuration; turns under way keep the seat they have."""
        assert seats
        self._retired += self._seats.values()
        self._seats = dict(seats)
        self.default = next(iter(self._seats))

    async def close(self) -> None:
        for seat in (*self._retired, *self._seats.values()):
            await seat.agent.close()

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
