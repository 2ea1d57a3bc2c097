"""Ends the wait for questions that nobody has answered in time or whose agent was lost, and for
work that other agents have not done in time. Stops work for which nobody waits any more."""

from collections.abc import Sequence
from functools import partial

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.journal.events import Recorded
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.timed_waits import ClockWatch, happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.engine.models.lost_agents import LostAgents
from perdure.engine.watching.feed import Feed
from perdure.ports.agents.delegations import Delegations
from perdure.ports.system.clock import Clock
from perdure.ports.turns.questions import Questions
from perdure.ports.turns.wakes import Topic

EXPIRED_MAX = 100
# The pause after the store could not be read or written.
AGAIN_S = 1.0
log = structlog.get_logger("turns")


class Deadlines:
    """Closes questions and delegations whose deadline has passed, and questions of agents that were
    lost, so that their turns go on, and stops the errands of delegations that were closed. A
    deadline is an instant of the wall clock; if the clock is set, the next one is looked up
    again."""

    def __init__(  # noqa: PLR0913 - what may be waited for
        self,
        questions: Questions,
        delegations: Delegations,
        feed: Feed,
        *,
        lost: LostAgents,
        clock: Clock,
        bus: Bus,
        poll_s: float | None,
    ) -> None:
        self._lost = lost
        self._questions = questions
        self._delegations = delegations
        self._feed = feed
        self._clock = clock
        self._bus = bus
        self._poll_s = poll_s
        self._waiter = bus.waiter(Topic.QUESTIONS, Topic.ENDED)
        self._watch = ClockWatch(clock)
        self._is_over = False

    async def run(self) -> None:
        """Close what waits as its deadline passes, until `stop`."""
        while not self._is_over:
            # Before the store is read: a question that is asked meanwhile ends the next wait.
            self._waiter.begin()
            self._watch.begin()
            try:
                if not await self.step():
                    await self._wait()
            except (Transient, Ambiguous) as error:
                log.debug("deadlines could not be looked at", error=error.message)
                await self._clock.sleep(AGAIN_S)

    async def step(self) -> bool:
        """Close what has waited past its deadline or whose agent was lost, and stop what nobody
        waits for. Returns False if there is nothing of the kind."""
        was_lost = await self._void()
        closed = await self._questions.expire(limit=EXPIRED_MAX)
        self._tell(closed)
        late = await self._delegations.expire(limit=EXPIRED_MAX)
        self._tell(late)
        unwanted = await self._delegations.unwanted(limit=EXPIRED_MAX)
        for errand in unwanted:
            stop = partial(self._delegations.stop, errand)
            self._tell(await persist(stop, clock=self._clock))
            self._bus.publish(Topic.ENDED, errand)  # its runner stops at once
        return was_lost or bool(closed or late or unwanted)

    async def _void(self) -> bool:
        """Close the questions of an agent that was lost. Returns False if none was."""
        lease = self._lost.next()
        if lease is None:
            return False
        recorded = await self._questions.void(lease.turn, attempt=lease.attempt)
        self._lost.done()
        if recorded:
            log.warning("an agent was lost while people were asked", turn=lease.turn)
        self._tell(recorded)
        return True

    def _tell(self, recorded: Sequence[Recorded]) -> None:
        """Publish what was appended, and wake the pumps that have work by it."""
        if recorded:
            self._feed.publish_recorded(recorded)
            self._bus.publish(Topic.TURNS)
            self._bus.publish(Topic.OUTBOX)

    async def _wait(self) -> None:
        known = [
            await self._questions.next_deadline_ms(),
            await self._delegations.next_deadline_ms(),
        ]
        if self._is_over:
            return
        next_ms = min((at for at in known if at is not None), default=None)
        if next_ms is None:
            await happens_within(self._waiter, within_s=self._poll_s)
            return
        left_s = max((next_ms - self._clock.now_ms()) / 1000, 0.0)
        await self._watch.wait(self._waiter, within_s=min(left_s, self._poll_s or left_s))

    def stop(self) -> None:
        """Close and stop nothing more."""
        self._is_over = True
        self._lost.stop()
        self._waiter.wake()
