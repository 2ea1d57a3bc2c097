"""Tells until when this process may act on the rows it has taken.

A process that stands still for longer than its lease loses its rows: another process finds them and
continues the work. When the first process runs again, it must not repeat what the other has done.
So code that is about to send, edit, fetch or call a model checks its lease first, and awaits
nothing between the check and the act.

The store refuses late writes by itself, since they carry an epoch (`TurnLease` in
`ports/turns/turns.py`). The leases here guard effects outside the store, which nobody can refuse.

Where several processes share a store, a lease has a deadline. It is measured from before the write
that took or renewed the lease, because the process may stand still during that write. Both clocks
are read, because only the wall clock advances while a machine sleeps. Where the store has one owner
(SQLite), holding the database file is the lease, and there is no deadline.
"""

import asyncio
import math
from typing import Final, NamedTuple

from perdure.ports.system.clock import Clock

# A lease counts as over this long before its end, since a call that was begun in time needs up to
# this long to reach its platform or model.
MARGIN_S: Final = 5.0
# The node's lease may have been renewed up to this long before something was taken under it, so a
# row's lease is counted as shorter by this much.
BEATS_APART_S: Final = 5.0


class Instant(NamedTuple):
    """Holds one moment on both clocks: the monotonic clock never jumps, and the wall clock advances
    while the machine sleeps."""

    monotonic_s: float
    wall_ms: int


class Lease:
    """Grants the right to act on rows that were taken together. Get it from `NodeLease.take` before
    the rows are taken, so that the time of the taking write counts too."""

    def __init__(self, node: "NodeLease", *, lasts_s: float) -> None:
        self._node = node
        self._term = node.term
        self._began = node.now()
        self._lasts_s = lasts_s

    @property
    def may_act(self) -> bool:
        """Tell whether the rows can still belong to this process."""
        is_same_term = self._term == self._node.term and self._node.may_act
        return is_same_term and self._node.passed_s(self._began) < self._lasts_s


class NodeLease:
    """Holds the lease of this process on the store, which its heartbeat renews. Every row that the
    process has taken depends on it. `term` grows each time the lease is lost: rows that were taken
    in an earlier term no longer belong to this process."""

    def __init__(self, clock: Clock, *, lease_s: float | None) -> None:
        """Begin without a deadline. `lease_s` is how long the store's leases last; None if they
        do not end."""
        self._clock = clock
        self._lease_s = math.inf if lease_s is None else lease_s
        # None until the node has joined: until then there is no deadline.
        self._began: Instant | None = None
        self._is_lost = False
        self._renewed = asyncio.Event()
        self.term = 0

    def now(self) -> Instant:
        """Return the present moment on both clocks."""
        return Instant(self._clock.monotonic_s(), self._clock.now_ms())

    def passed_s(self, since: Instant) -> float:
        """Return how long ago `since` was, by the clock that has advanced further."""
        now = self.now()
        by_the_wall_s = (now.wall_ms - since.wall_ms) / 1000
        return max(now.monotonic_s - since.monotonic_s, by_the_wall_s)

    def renew(self, began: Instant) -> None:
        """Renew the lease after a committed heartbeat. `began` was read before its write."""
        self._began = began
        self._is_lost = False
        self._renewed.set()

    def lose(self) -> None:
        """Record that the store no longer knows this lease. Nothing may act until `renew`."""
        self.term += 1
        self._is_lost = True

    @property
    def may_act(self) -> bool:
        """Tell whether the lease still lasts, so that work under way can still be ours."""
        if self._is_lost:
            return False
        return self._began is None or self.passed_s(self._began) < self._lease_s - MARGIN_S

    def take(self) -> Lease:
        """Return a lease for rows that are about to be taken."""
        return Lease(self, lasts_s=self._lease_s - BEATS_APART_S - MARGIN_S)

    async def held(self) -> None:
        """Wait until the process may act. The next heartbeat renews a lease that has run out, or
        finds that it is lost; in that case the turn that waits here is cancelled."""
        while not self.may_act:
            self._renewed.clear()
            await self._renewed.wait()
