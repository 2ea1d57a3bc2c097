"""Runs the instructions for the start, once the node serves.

Whether they run is decided in the store, in one transaction. This only asks: once, or again and
again while an interrupted answer in the home conversation goes on. It never runs twice for a start,
because the first run is found by the second look.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from perdure.domain.errors import Conflict, NotFound, Rejected
from perdure.domain.journal.events import Recorded, TurnSettled
from perdure.domain.schedule.boot import BOOT_FILE, BOOT_WORDS, BootFile, BootState
from perdure.domain.schedule.jobs import ScheduleTerms
from perdure.domain.turn.recovery import Policy
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.foundation.wakes import Bus, Waiter
from perdure.engine.watching.feed import Feed
from perdure.ports.schedule.schedule import Booted, Schedule
from perdure.ports.system.clock import Clock
from perdure.ports.turns.wakes import Topic

# How often to look again for a turn that may have been settled by another node.
LOOK_S: Final = 5.0
log = structlog.get_logger("boot")


class BootRun:
    """Runs the instructions that `read` returns, at most once. `problem` says what keeps them from
    running, if an operator should know."""

    def __init__(  # noqa: PLR0913 - what a run needs around it
        self,
        schedule: Schedule,
        feed: Feed,
        *,
        read: Callable[[], BootFile],
        terms: Callable[[], ScheduleTerms],
        policy: Policy,
        clock: Clock,
        bus: Bus,
        is_shared: bool,
    ) -> None:
        self._schedule = schedule
        self._feed = feed
        self._read = read
        self._terms = terms
        self._policy = policy
        self._clock = clock
        self._bus = bus
        self._poll_s = LOOK_S if is_shared else None
        self._waiter = Waiter()
        self._is_over = False
        self.problem = ""

    async def run(self) -> None:
        """Run the instructions as soon as they may run, until `stop`."""
        if self._is_over or not await self.step():
            return
        self._feed.observe(self._observe)
        while not self._is_over:
            # Before the look: a turn that is settled meanwhile ends the next wait.
            self._waiter.begin()
            if not await self.step():
                return
            await happens_within(self._waiter, within_s=self._poll_s)

    async def step(self) -> bool:
        """Look once whether the instructions may run, and run them. Returns True if they wait for a
        turn that is not over."""
        found = await asyncio.to_thread(self._read)
        self.problem = found.problem
        if found.problem:
            log.warning("the instructions for the start do not run", why=found.problem)
        if not found.text:
            return False
        try:
            begin = partial(self._schedule.boot, found.text, self._terms(), self._policy)
            booted = await persist(begin, clock=self._clock)
        except (Rejected, Conflict, NotFound) as error:
            self.problem = f"{BOOT_FILE} does not run: {error.message}"
            log.warning("the instructions for the start do not run", why=error.message)
            return False
        self._tell(booted)
        return booted.state is BootState.WAITS

    def _tell(self, booted: Booted) -> None:
        why = BOOT_WORDS[booted.state]
        if booted.state is BootState.STARTED:
            log.info("the instructions for the start run", turn=booted.turn)
        else:
            log.info("the instructions for the start do not run now", why=why)
        if booted.state is BootState.NO_HOME:
            self.problem = f"{BOOT_FILE} does not run: {why}"
        self._feed.publish_recorded(list(booted.recorded))
        self._bus.publish(Topic.TURNS)

    def _observe(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, TurnSettled):
            self._waiter.wake()

    def stop(self) -> None:
        """Run nothing any more. The next start looks for itself."""
        self._is_over = True
        self._waiter.wake()
