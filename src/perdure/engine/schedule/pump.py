"""Deals with jobs that are due.

The pump sleeps until the next instant at which something is to be done, and is woken when jobs
change or a run is over. Which occurrences there are, and what becomes of each, is decided in the
store, in one transaction for each job; so any number of nodes may run this pump.

Runs wait and work like all turns. So that nobody's chat waits behind them, only so many are under
way at a time: half of what the node can run, and half of what one person may have.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from perdure.domain.errors import Ambiguous, Conflict, NotFound, Rejected, Transient
from perdure.domain.people.sharing import FairShares, most_of
from perdure.domain.schedule.jobs import ScheduleTerms
from perdure.engine.foundation.pump_waiter import PumpWaiter
from perdure.engine.foundation.wakes import Bus
from perdure.engine.watching.feed import Feed
from perdure.ports.schedule.schedule import Fired, Schedule
from perdure.ports.system.clock import Clock
from perdure.ports.turns.wakes import Topic

# How many jobs one step deals with.
BATCH_MAX: Final = 32
# The longest pause without a look, and the pause after the store could not be used.
LOOK_S: Final = 3_600.0
AGAIN_S: Final = 1.0
log = structlog.get_logger("schedule")


class SchedulePump:
    """Starts runs as their jobs become due. `terms` returns on what terms people have jobs,
    `checklist` reads what a heartbeat goes through every
    `heartbeat_s`, and `poll_s` says how often to look for jobs of
    other nodes."""

    def __init__(  # noqa: PLR0913 - what jobs need around them
        self,
        schedule: Schedule,
        feed: Feed,
        *,
        terms: Callable[[], ScheduleTerms],
        checklist: Callable[[], str],
        heartbeat_s: int,
        concurrent: int,
        clock: Clock,
        bus: Bus,
        poll_s: float | None,
    ) -> None:
        self._schedule = schedule
        self._feed = feed
        self.terms = terms
        self._checklist = checklist
        self._heartbeat_s = heartbeat_s
        self._room = max(concurrent // 2, 1)
        self._most = max(most_of(concurrent) // 2, 1)
        self._clock = clock
        self._bus = bus
        self._poll_s = poll_s or LOOK_S
        schedule.when_changed(lambda: bus.publish(Topic.JOBS))
        self._waiter = PumpWaiter(bus.waiter(Topic.JOBS), clock=clock)
        # The wall clock when it was last looked at; None before the first look.
        self._latest_ms: int | None = None
        self._is_over = False

    async def run(self) -> None:
        """Deal with jobs as they become due, until `stop`."""
        while not self._is_over:
            # Before the store is read: a job that changes meanwhile ends the next wait.
            self._waiter.begin()
            try:
                if not await self.step():
                    await self._wait()
            except (Transient, Ambiguous) as error:
                log.debug("jobs could not be looked at", error=error.message)
                await self._clock.sleep(AGAIN_S)

    async def step(self) -> bool:
        """Deal with some of the jobs that are due. Returns False if nothing was done."""
        self._waiter.look()
        await self._mind_clock()
        await self._schedule.keep_heartbeat(self._heartbeat_s)
        next_ms = await self._schedule.next_due_ms()
        if next_ms is None or next_ms > self._clock.now_ms():
            return False
        in_use = await self._schedule.under_way()
        room = min(self._room - sum(in_use.values()), BATCH_MAX)
        if room <= 0:
            return False
        shares = FairShares(in_use=in_use, most=self._most)
        due = await self._schedule.due(limit=room, shares=shares)
        checklist = await asyncio.to_thread(self._checklist)
        terms = msgspec.structs.replace(self.terms(), checklist=checklist)
        for each in due:
            try:
                self.tell(await self._schedule.fire(each.job, terms))
            except (Rejected, Conflict, NotFound) as error:
                # One job that cannot be dealt with must not hold up the others.
                log.error("a job was not run", job=each.job, error=error.message)  # noqa: TRY400
        return bool(due)

    async def _mind_clock(self) -> None:
        """Find jobs that a wrong clock has moved far ahead, at the start and whenever the clock was
        set back."""
        now_ms = self._clock.now_ms()
        if self._latest_ms is None or now_ms < self._latest_ms:
            while await self._schedule.mend_clock():
                pass
        self._latest_ms = now_ms

    async def _wait(self) -> None:
        next_ms = await self._schedule.next_due_ms()
        if not self._is_over:
            await self._waiter.wait(next_ms, at_most_s=self._poll_s)

    def tell(self, fired: Fired) -> None:
        """Tell the parts of the node what was done for a job."""
        self._feed.publish_recorded(list(fired.recorded))
        for turn in fired.ended:
            self._bus.publish(Topic.ENDED, turn)
        self._bus.publish(Topic.TURNS)
        self._bus.publish(Topic.OUTBOX)

    def stop(self) -> None:
        """Start no more runs."""
        self._is_over = True
        self._waiter.wake()
