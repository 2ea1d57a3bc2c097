"""Leases: until when this process may act on what it holds.

A process that stands still for longer than its lease loses what it holds: another one finds it and
goes on with it. When the first is awake again, it must not do what the other has done. So whoever
is about to send, edit, fetch or ask a model asks its lease first, and awaits nothing between that
question and the act.

The store refuses late writes by itself (`ports/turns.Lease` is what they carry). What is asked here
is about effects outside of it, which nobody can refuse.

Where several processes share a store, a lease has a deadline, measured from before the write that
took or renewed it: the process may stand still during that write. Both clocks are asked, because
while a machine sleeps only the wall clock goes on. Where the store has one owner (SQLite), holding
its file is the lease, and it has no deadline.
"""

import asyncio
import math
from typing import Final, NamedTuple

from perdure.ports.system.clock import Clock

# An act that has begun reaches its platform or model within this time.
MARGIN_S: Final = 5.0
# The node's lease was renewed within this time when something was taken under it.
BEATS_APART_S: Final = 5.0


class Instant(NamedTuple):
    """A moment on the clock that never jumps, and on the one that goes on in a machine's sleep."""

    monotonic_s: float
    wall_ms: int


class Lease:
    """The right to act on what was taken in one go. Ask for it before taking: `NodeLease.take`."""

    def __init__(self, node: "NodeLease", *, lasts_s: float) -> None:
        self._node = node
        self._term = node.term
        self._began = node.now()
        self._lasts_s = lasts_s

    @property
    def may_act(self) -> bool:
        """Tell whether what was taken can still be ours."""
        is_same_term = self._term == self._node.term and self._node.may_act
        return is_same_term and self._node.passed_s(self._began) < self._lasts_s


class NodeLease:
    """The lease of this process on the store, renewed by its heartbeat. All that the process has
    taken is held under it. `term` grows whenever the lease was lost: what was taken before that is
    not ours any more."""

    def __init__(self, clock: Clock, *, lease_s: float | None) -> None:
        """`lease_s` is how long the store's leases last; None where they have no end."""
        self._clock = clock
        self._lease_s = math.inf if lease_s is None else lease_s
        # Before the first heartbeat nobody counts.
        self._began: Instant | None = None
        self._is_lost = False
        self._renewed = asyncio.Event()
        self.term = 0

    def now(self) -> Instant:
        return Instant(self._clock.monotonic_s(), self._clock.now_ms())

    def passed_s(self, since: Instant) -> float:
        """Return how long ago that was, by the clock that has gone further."""
        now = self.now()
        by_the_wall_s = (now.wall_ms - since.wall_ms) / 1000
        return max(now.monotonic_s - since.monotonic_s, by_the_wall_s)

    def renew(self, began: Instant) -> None:
        """Take note of a heartbeat that was committed. `began` is from before its write."""
        self._began = began
        self._is_lost = False
        self._renewed.set()

    def lose(self) -> None:
        """Take note that the store does not know this lease any more."""
        self.term += 1
        self._is_lost = True

    @property
    def may_act(self) -> bool:
        """Tell whether what this process has under way can still be its own."""
        if self._is_lost:
            return False
        return self._began is None or self.passed_s(self._began) < self._lease_s - MARGIN_S

    def take(self) -> Lease:
        """Return a lease for what is about to be taken."""
        return Lease(self, lasts_s=self._lease_s - BEATS_APART_S - MARGIN_S)

    async def held(self) -> None:
        """Return as soon as the process may act. A lease that has run out is renewed by the next
        heartbeat, or found to be lost: then whoever waits here is cancelled."""
        while not self.may_act:
            self._renewed.clear()
            await self._renewed.wait()
