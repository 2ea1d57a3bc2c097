"""Tells people's browsers what has happened while they were not looking.

What is to be told is a row, written with its fact and deleted when the push service has taken it.
If the process dies in between, the next one tells it again; the browser shows it once, because both
have the same topic. A push service that does not answer is left alone for longer each time.

At most one notification of each person is under way at a time, so nobody's browsers, and no push
service that somebody has named, hold up those of others.
"""

import asyncio
from functools import partial
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Permanent, Transient
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.events import Recorded, TurnSettled
from perdure.domain.journal.question_events import AnswerAwaited
from perdure.engine.foundation.leases import Lease, NodeLease
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.pump_waiter import PumpWaiter
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.foundation.wakes import Bus
from perdure.engine.watching.feed import Feed
from perdure.ports.delivery.pushes import GONE, DuePushes, Push, Pushes, PushSender
from perdure.ports.system.clock import Clock
from perdure.ports.turns.wakes import Topic

# How many notifications are under way at most.
AT_ONCE: Final = 32
# The longest time without a look, which is also how soon a node finds what a dead one has left.
LOOK_S: Final = 60.0
AGAIN_S: Final = 1.0
# How long a push service that could not be asked is left alone the first time, and at most.
REST_S: Final = 30.0
REST_MAX_S: Final = 3_600.0
log = structlog.get_logger("push")


class PushPump:
    """Sends notifications as they become due."""

    def __init__(  # noqa: PLR0913 - what notifications need around them
        self,
        pushes: Pushes,
        sender: PushSender,
        feed: Feed,
        *,
        clock: Clock,
        bus: Bus,
        start: Start,
        lease: NodeLease,
    ) -> None:
        self._pushes = pushes
        self._sender = sender
        self._clock = clock
        self._start = start
        self._lease = lease
        self._waiter = PumpWaiter(bus.waiter(Topic.PUSHES), clock=clock)
        self._under_way: dict[PrincipalId, asyncio.Task[None]] = {}
        # Whether the pump waits although it knows of nothing to tell; then news must wake it.
        self._is_idle = True
        self._is_over = False
        feed.observe(self._observe)

    def _observe(self, recorded: Recorded) -> None:
        # Its row, if there is one, was written in the same transaction. A pump that knows of other
        # rows looks again in any case.
        if self._is_idle and isinstance(recorded.event, TurnSettled | AnswerAwaited):
            self._waiter.wake()

    async def run(self) -> None:
        """Send what is due, until `stop`."""
        while not self._is_over:
            # Before the rows are read: what is written meanwhile ends the next wait.
            self._waiter.begin()
            try:
                found = await self._look()
            except (Transient, Ambiguous) as error:
                log.debug("notifications cannot be looked for", error=error.message)
                await self._clock.sleep(AGAIN_S)
                continue
            if not found.taken and not self._is_over:
                self._is_idle = found.next_ms is None
                await self._waiter.wait(found.next_ms, at_most_s=LOOK_S)

    async def step(self) -> bool:
        """Send some notifications, and wait until they have ended. Returns False if none was
        due."""
        found = await self._look()
        if self._under_way:
            await asyncio.wait(self._under_way.values())
        return bool(found.taken)

    async def _look(self) -> DuePushes:
        """Take what is due, and begin to send it."""
        self._waiter.look()
        room = AT_ONCE - len(self._under_way)
        if room <= 0:
            return DuePushes(taken=(), next_ms=self._clock.now_ms())
        lease = self._lease.take()
        found = await self._pushes.take(limit=room, but=frozenset(self._under_way))
        for push in found.taken:
            person = push.subscription.principal
            task = self._start(self._send(push, lease), name="a notification")
            self._under_way[person] = task
            task.add_done_callback(partial(self._ended, person))
        return found

    def _ended(self, person: PrincipalId, _: "asyncio.Task[None]") -> None:
        self._under_way.pop(person, None)
        self._waiter.wake()  # the person may have more to be told

    async def _send(self, push: Push, lease: Lease) -> None:
        key = await self._pushes.known_key()
        # Nothing is awaited between this check and the request.
        if key is None or not lease.may_act:
            return
        await attempt(self._hand_over(push, key), partial(self._stumble, push))

    async def _hand_over(self, push: Push, key: str) -> None:
        """Send a notification, and store what came of it."""
        try:
            await self._sender.send(push, key)
        except Permanent as error:
            await self._give_up(push, error)
        except (Transient, Ambiguous) as error:
            # One that may have arrived is told again: the browser shows it in the same place.
            await self._rest(push, error.retry_after_s, error.message)
        else:
            # If the process dies here, it is told again: at least once, not exactly once.
            await persist(partial(self._pushes.arrived, push), clock=self._clock)

    async def _stumble(self, push: Push, error: Exception) -> None:
        await self._rest(push, None, repr(error))

    async def _give_up(self, push: Push, error: Permanent) -> None:
        which = push.subscription.id
        if error.code == GONE:
            log.info("a browser has unsubscribed", subscription=which)
            await persist(partial(self._pushes.gone, which), clock=self._clock)
            return
        log.warning("a notification was refused", subscription=which, error=error.message)
        await persist(partial(self._pushes.arrived, push), clock=self._clock)

    async def _rest(self, push: Push, wanted_s: float | None, why: str) -> None:
        own_s = min(REST_S * 2**push.subscription.failures, REST_MAX_S)
        wait_s = max(own_s if wanted_s is None else wanted_s, AGAIN_S)
        log.info("a push service is left alone", subscription=push.subscription.id,
                 wait_s=wait_s, error=why)  # fmt: skip
        until_ms = self._clock.now_ms() + int(wait_s * 1000)
        await persist(partial(self._pushes.rest, push, until_ms=until_ms), clock=self._clock)

    def stop(self) -> None:
        """Send no more. What is under way is left as after a kill: the next process sends it
        again."""
        self._is_over = True
        for task in tuple(self._under_way.values()):
            task.cancel()
        self._waiter.wake()
