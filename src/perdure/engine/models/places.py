"""Bounds how many model calls an agent has under way at once, and shares them between people.

A turn holds a place for one model call: not while it runs tools or waits for a person. So nobody
who holds a place waits for another one, and every place comes free again. The next place goes to
the person who has the fewest, and among equals to the one who has got none for the longest time. No
person can have the last ones (`domain/people/sharing.py`). Among the turns of one person, the one
that began first goes first, also with its later calls.
"""

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count
from typing import Final

import msgspec

from perdure.domain.ids import PrincipalId
from perdure.domain.people.sharing import most_of

UNBOUNDED: Final = 2**31


class AgentCrowd(msgspec.Struct, frozen=True):
    """Says how many model calls an agent has under way, and how many wait for a place."""

    calling: int = 0
    waiting: int = 0


class Visitor:
    """Takes places for the model calls of one attempt of a turn, one at a time."""

    def __init__(self, places: "AgentPlaces", who: PrincipalId, order: int) -> None:
        self.who = who
        self.order = order
        self._places = places
        self._held = ""  # the agent whose place this visitor has

    def __lt__(self, other: "Visitor") -> bool:
        return self.order < other.order

    async def enter(self, agent: str) -> bool:
        """Take a place of an agent, as soon as one is free. Returns whether that took a wait."""
        self.leave()
        has_waited = await self._places.take(agent, self)
        self._held = agent
        return has_waited

    def leave(self) -> None:
        """Give the place back, if there is one."""
        agent, self._held = self._held, ""
        if agent:
            self._places.free(agent, self.who)


_Waiting = tuple[Visitor, asyncio.Future[None]]


class _Room:
    """Holds who has places of one agent, and who waits for one."""

    def __init__(self) -> None:
        self.in_use: Counter[PrincipalId] = Counter()
        self.used = 0
        # When each person who is here has got a place last, or else has come, as a growing number.
        self._since: dict[PrincipalId, int] = {}
        self._ticks = count()
        # A heap for each person, the turn that began first at its top.
        self.waiting: dict[PrincipalId, list[_Waiting]] = defaultdict(list)

    def first(self, most: int) -> PrincipalId | None:
        """Return whose turn gets the next place, or None if nobody who waits may have one."""
        open_to = [who for who in self.waiting if self.in_use[who] < most]
        return min(open_to, key=self._rank, default=None)

    def _rank(self, who: PrincipalId) -> tuple[int, int]:
        return self.in_use[who], self._since[who]

    def come(self, visitor: Visitor, given: "asyncio.Future[None]") -> None:
        """Let a visitor wait."""
        self._since.setdefault(visitor.who, next(self._ticks))
        heapq.heappush(self.waiting[visitor.who], (visitor, given))

    def let_in(self, who: PrincipalId) -> None:
        """Give the person's first visitor a place, unless it has been given up just now."""
        _, given = heapq.heappop(self.waiting[who])
        if not given.done():
            given.set_result(None)
            self.used += 1
            self.in_use[who] += 1
            self._since[who] = next(self._ticks)
        self._forget(who)

    def let_out(self, who: PrincipalId) -> None:
        """Take a place back from a person."""
        self.used -= 1
        self.in_use[who] -= 1
        self._forget(who)

    def withdraw(self, visitor: Visitor) -> None:
        """Remove a visitor that does not wait any more."""
        line = self.waiting[visitor.who]
        line[:] = [each for each in line if each[0] is not visitor]
        heapq.heapify(line)
        self._forget(visitor.who)

    def _forget(self, who: PrincipalId) -> None:
        """Drop what is known of a person who is not here any more."""
        if not self.waiting[who]:
            del self.waiting[who]
        if not self.in_use[who]:
            del self.in_use[who]
            if who not in self.waiting:
                self._since.pop(who, None)


class AgentPlaces:
    """Holds the places of all agents of this node. `most` names an agent's number of places, which
    a new configuration may change; None means any number."""

    def __init__(self, most: Callable[[str], int | None]) -> None:
        self._most = most
        self._orders = count()
        self._rooms: dict[str, _Room] = {}

    def visitor(self, who: PrincipalId) -> Visitor:
        """Return a visitor for a person's turn. It comes after all that were made before."""
        return Visitor(self, who, next(self._orders))

    def crowd(self, agent: str) -> AgentCrowd:
        """Return how many calls an agent has and how many wait."""
        room = self._rooms.get(agent)
        if room is None:
            return AgentCrowd()
        return AgentCrowd(calling=room.used, waiting=sum(map(len, room.waiting.values())))

    async def take(self, agent: str, visitor: Visitor) -> bool:
        """Wait for a place. Returns whether that took a wait. A visitor that is cancelled has no
        place, and the next one gets it."""
        room = self._rooms.setdefault(agent, _Room())
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        room.come(visitor, given)
        self._give(agent)
        if given.done():
            return False
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                self.free(agent, visitor.who)
            elif agent in self._rooms:
                room.withdraw(visitor)
            raise
        return True

    def free(self, agent: str, who: PrincipalId) -> None:
        """Take a place back, and give it to whoever is next."""
        self._rooms[agent].let_out(who)
        self._give(agent)

    def _give(self, agent: str) -> None:
        """Give the free places to those who wait."""
        room = self._rooms[agent]
        places = self._most(agent)
        most = UNBOUNDED if places is None else most_of(places)
        while places is None or room.used < places:
            who = room.first(most)
            if who is None:
                break
            room.let_in(who)
        if not room.used and not room.waiting:
            del self._rooms[agent]
