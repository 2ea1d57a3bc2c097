"""Tells hooks what has happened.

What hooks must not miss is a row, written with its fact and deleted when the hooks have ended: if
the process dies in between, the next one tells them again. The rest comes from the feed. It waits
in memory, where a crash loses it, and the oldest is dropped if hooks are too slow.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.hooks.occasions import STORED, HookCall, Occasion, calls_about
from perdure.domain.ids import NodeId
from perdure.domain.journal.events import Recorded, TurnSettled
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.engine.watching.feed import Feed
from perdure.ports.records.occasions import Hooks, Occasions
from perdure.ports.system.clock import Clock
from perdure.ports.turns.wakes import Topic, WakeKey

# How many occasions are told at the same time.
AT_ONCE: Final = 8
# How many occasions wait in memory.
WAITING_MAX: Final = 1_000
# How long hooks may go on when the node ends.
LAST_S: Final = 2.0
# How often rows are looked for that another node has written, or that could not be read.
LOOK_S: Final = 1.0
log = structlog.get_logger("hooks")


class HookPump:
    """Runs the hooks of this node, a few occasions at a time."""

    def __init__(  # noqa: PLR0913 - what hooks need around them
        self,
        occasions: Occasions,
        hooks: Hooks,
        feed: Feed,
        *,
        clock: Clock,
        bus: Bus,
        node: NodeId,
        is_shared: bool = False,
    ) -> None:
        self._occasions = occasions
        self._hooks = hooks
        self._clock = clock
        self._node = node
        self._feed = feed
        # What there are hooks for; None until they were looked for, and everything waits.
        self._heard_of: frozenset[Occasion] | None = None
        self._stored: tuple[Occasion, ...] = ()
        self._live: deque[HookCall] = deque()
        self._waiter = bus.waiter(Topic.HOOKS)
        self._is_over = False
        self._limit: asyncio.Timeout | None = None
        self._is_shared = is_shared
        bus.listen(Topic.STOPPING, partial(self.say, Occasion.STOPPING))
        bus.listen(Topic.CONNECTED, partial(self.say, Occasion.ADAPTER_UP))
        bus.listen(Topic.DISCONNECTED, partial(self.say, Occasion.ADAPTER_DOWN))

    def say(self, event: Occasion, adapter: WakeKey = None) -> None:
        """Tell hooks of something in the life of this node, or of one of its adapters."""
        at, named = self._clock.now_ms(), str(adapter or "")
        self._put(HookCall(event=event, at=at, node=self._node, adapter=named))

    def _observe(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, TurnSettled):
            self._waiter.wake()  # its row was written in the same transaction
        for call in calls_about(recorded, self._node):
            self._put(call)

    def _put(self, call: HookCall) -> None:
        if self._heard_of is not None and call.event not in self._heard_of:
            return
        if len(self._live) >= WAITING_MAX:
            self._hooks.dropped(self._live.popleft())
        self._live.append(call)
        self._waiter.wake()

    def stop(self) -> None:
        """Tell hooks what waits by now, and end within `LAST_S`. What is stored and was not heard
        then is told by the next process."""
        self._is_over = True
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + LAST_S)
        self._waiter.wake()

    async def run(self) -> None:
        """Tell hooks what happens, until `stop`. Returns at once if there are none."""
        if self._is_over:
            return
        try:
            async with asyncio.timeout(None) as self._limit:
                if await self.begin():
                    await self._tell_all()
        except TimeoutError:
            log.warning("the stop does not wait for hooks any longer")
        finally:
            self._limit = None

    async def _tell_all(self) -> None:
        while True:
            # Before the rows are read: what is written meanwhile ends the next wait.
            self._waiter.begin()
            look_s = LOOK_S if self._stored and self._is_shared else None
            try:
                if await self.step():
                    continue
            except (Transient, Ambiguous) as error:
                log.debug("occasions cannot be looked for", error=error.message)
                look_s = LOOK_S
            if self._is_over:
                return
            await happens_within(self._waiter, within_s=look_s)

    async def begin(self) -> bool:
        """Look for hooks, and let what they must not miss be written down from now on."""
        found = await self._hooks.find()
        await persist(partial(self._occasions.listen, found), clock=self._clock)
        self._heard_of = found
        self._stored = tuple(each for each in STORED if each in found)
        self._live = deque(call for call in self._live if call.event in found)
        if found:
            self._feed.observe(self._observe)
            log.info("there are hooks", occasions=", ".join(sorted(found)))
        return bool(found)

    async def step(self) -> bool:
        """Tell hooks of some occasions, and wait until they have ended. Returns False if there are
        none."""
        stored = await self._take()
        live = [self._live.popleft() for _ in range(min(len(self._live), AT_ONCE - len(stored)))]
        async with asyncio.TaskGroup() as group:
            for call in stored:
                group.create_task(self._tell_stored(call))
            for call in live:
                group.create_task(self._tell(call))
        return bool(stored or live)

    async def _take(self) -> Sequence[HookCall]:
        if not self._stored:
            return ()
        return await self._occasions.take(self._stored, limit=AT_ONCE // 2)

    async def _tell_stored(self, call: HookCall) -> None:
        await self._hooks.call(call)
        # If the process dies here, the hooks are told again: at least once, not exactly once.
        await persist(partial(self._occasions.heard, call), clock=self._clock)

    async def _tell(self, call: HookCall) -> None:
        named: HookCall | None = call
        if call.session:
            try:
                named = await self._occasions.named(call)
            except (Transient, Ambiguous) as error:
                log.warning("a hook was not told", occasion=call.event, error=error.message)
                return
        if named is not None:
            await self._hooks.call(named)
