"""One node's life: join, reap, serve, and the three phases of its end.

1. Stop taking: no more claims; accepting goes on, what comes waits for the next start.
2. Finish or park: turns get `drain_timeout_s` to end; what is left is interrupted, durably.
3. Close: leave the nodes, let go of the store (its owner does that).

All of it is bounded by `drain_timeout_s` and a moment (`engine/node/ending.py`), also where the
store takes no write or a platform hangs.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import SessionId
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.turn.announcing import Drain
from perdure.engine.delivery.outbox import OutboxPump
from perdure.engine.delivery.previews import Previews
from perdure.engine.foundation.heartbeat import BEAT_AT_WORK_S, Heartbeat
from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.memory_trim import MemoryTrim
from perdure.engine.foundation.supervisor import STEADY_S, Start, kept
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.engine.inbound.fetching import FetchPump
from perdure.engine.models.windows import Windows
from perdure.engine.node.ending import CLOSING_S, NodeEnding
from perdure.engine.node.indexing import Indexer
from perdure.engine.node.sweeping import Sweeper
from perdure.engine.turns.pump import TurnPump
from perdure.engine.turns.reaper import Reaper
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Nodes
from perdure.ports.turns.wakes import Topic

BEAT_SHARED_S = 4.0
BEAT_ALONE_S = 30.0  # where nothing runs, nothing depends on it
# How long a drain waits for a claim that is under way, and for the words that tell people of it.
CLAIM_S = 1.0
TELL_S = 1.0
BEATS_CARRIED_MAX = 4  # in a row, by the text of turns
SEND_S = 3.0
log = structlog.get_logger("gateway")


class Gateway:
    def __init__(  # noqa: PLR0913 - the parts of a node
        self,
        *,
        nodes: Nodes,
        lease: NodeLease,
        turns: TurnPump,
        outbox: OutboxPump,
        previews: Previews,
        fetching: FetchPump,
        sweeper: Sweeper,
        indexer: Indexer,
        windows: Windows,
        trim: MemoryTrim,
        reaper: Reaper,
        feed: Feed,
        limits: Limits,
        clock: Clock,
        heartbeat: Heartbeat,
        start: Start,
        bus: Bus,
        is_shared: bool,
    ) -> None:
        self._nodes = nodes
        self._lease = lease
        self._turns = turns
        self._outbox = outbox
        self._previews = previews
        self._fetching = fetching
        self._sweeper = sweeper
        self._indexer = indexer
        self._windows = windows
        self._trim = trim
        self._reaper = reaper
        self._feed = feed
        self._limits = limits
        self._clock = clock
        self._heartbeat = heartbeat
        self._start = start
        self._bus = bus
        self._stirred = bus.waiter(Topic.BEGUN)
        self._is_shared = is_shared
        self._hurry = asyncio.Event()
        self.ending = NodeEnding()
        # Turns that the drain has interrupted durably, and those that it could not: these are left
        # as after a kill.
        # Whether the process before this one ended without a word.
        self.is_after_death = False
        self.parked = 0
        self.unparked = 0
        self._over = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._restart_session: SessionId | None = None
        self.drain_requested = asyncio.Event()
        self._tell_of_request: Callable[[], None] = lambda: None
        self._name = ""
        self._is_serving = False
        self._stumbled_s = -math.inf
        self._looked_s = -math.inf
        self.is_draining = False
        self.is_restarting = False
        self._is_replaced = False

    async def begin(self, *, name: str) -> None:
        """Ready when this returns: what earlier lives left behind is queued again."""
        self._name = name
        self.is_after_death = await self._join()
        while await self._reaper.step():
            pass
        await self._outbox.recall()
        self._feed.publish_recorded(await self._nodes.greet())
        self._claiming = self._keep(self._turns.run, name="turn pump")
        self._keep(self._outbox.run, name="outbox pump")
        self._keep(self._fetching.run, name="fetch pump")
        self._keep(self._sweeper.run, name="sweeper")
        self._keep(self._indexer.run, name="indexer")
        self._keep(self._windows.run, name="prompt windows")
        self._keep(self._trim.run, name="memory")
        self._keep(self._watch_over, name="heartbeat")
        self._is_serving = True

    def _keep(self, run: Callable[[], Awaitable[None]], *, name: str) -> "asyncio.Task[None]":
        work = kept(run, name=name, clock=self._clock, stumbled=self._note_stumble)
        return self._start(work, name=name)

    def _note_stumble(self) -> None:
        self._stumbled_s = self._clock.monotonic_s()

    @property
    def is_ready(self) -> bool:
        """Not while a pump stumbles: what is accepted may have to wait."""
        is_steady = self._clock.monotonic_s() - self._stumbled_s > STEADY_S
        return self._is_serving and is_steady

    async def _watch_over(self) -> None:
        """Say that we live; on a shared store also look for owners who no longer do."""
        while not self._over.is_set():
            try:
                begun = self._lease.now()
                if await self._nodes.beat():
                    self._lease.renew(begun)
                else:
                    await self._live_again()
                self._heartbeat.said(begun.monotonic_s)
                if self._is_shared and not self.is_draining:
                    await self._look_for_orphans()
            except (Transient, Ambiguous) as error:
                log.debug("heartbeat failed", error=error.message)
            await self._rest()

    async def _look_for_orphans(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < BEAT_SHARED_S:
            return
        self._looked_s = now_s
        if await self._reaper.step():
            self._bus.publish(Topic.TURNS)
            self._bus.publish(Topic.OUTBOX)

    async def _rest(self) -> None:
        """Wait until it is time to say it again. While turns run that is soon, unless whoever
        stores their text says it along; not for ever, since only `beat` tells of a lost lease."""
        if not self._turns.running and not self._over.is_set():
            self._stirred.begin()
            idle_s = BEAT_SHARED_S if self._is_shared else BEAT_ALONE_S
            if not await happens_within(self._stirred, within_s=idle_s):
                return
            # That a turn has begun stands in its journal, and says as much.
            self._heartbeat.said(self._clock.monotonic_s())
        left_s = BEAT_AT_WORK_S
        for _ in range(BEATS_CARRIED_MAX):
            if left_s <= 0 or await happens_within(self._over, within_s=left_s):
                return
            left_s = self._heartbeat.left_s

    async def _live_again(self) -> None:
        """Our lease ran out (the machine slept, the database was away): others may have taken our
        turns. Let go of all of them and join anew; the pump gives back what nobody has taken."""
        log.error("this node lost its lease; its turns belong to others now")
        self._lease.lose()
        self._turns.let_go()
        await self._turns.finished()
        await self._join()
        self._turns.come_back()

    async def _join(self) -> bool:
        """Make this node known, and tell whether the process before it ended without a word."""
        begun = self._lease.now()
        is_after_death = await self._nodes.join(name=self._name)
        self._lease.renew(begun)
        return is_after_death

    def hurry(self) -> None:
        """A second signal: do not wait for turns any longer."""
        self._hurry.set()
        self.ending.hurry()

    def when_drain_requested(self, tell: Callable[[], None]) -> None:
        """Call `tell` within each request for a drain or a restart, and now if there was one."""
        self._tell_of_request = tell
        if self.drain_requested.is_set():
            tell()

    def request_drain(self, *, is_replaced: bool = False) -> None:
        """`is_replaced`: another process takes over, which to people is a restart."""
        self._is_replaced = self._is_replaced or is_replaced
        self._request()

    def request_restart(self, session: SessionId | None = None) -> None:
        """Drain and come back; the people of `session` asked for it and are told there."""
        self.is_restarting = True
        self._restart_session = session or self._restart_session
        self._request()

    def _request(self) -> None:
        # Told first, and before whoever asked is answered: if the loop stands still from here on,
        # nobody who waits for the event ever wakes up, and the end would have no bound.
        self._tell_of_request()
        self.drain_requested.set()

    @property
    def sending(self) -> int:
        """How many messages are on their way to a platform now."""
        return self._outbox.sending

    @property
    def _asked(self) -> NodeRequest:
        return NodeRequest.RESTART if self.is_restarting or self._is_replaced else NodeRequest.STOP

    @property
    def _planned(self) -> Interruption:
        """Why attempts end that get no time to finish."""
        is_restart = self._asked is NodeRequest.RESTART
        return Interruption.RESTART if is_restart else Interruption.SHUTDOWN

    async def drain(self) -> None:
        """Safe to call twice: the second finds nothing left to do."""
        if self.is_draining:
            return
        self._is_serving = False
        self.is_draining = True
        turns_until_s = asyncio.get_running_loop().time() + self._limits.drain_timeout_s
        self.ending.begin(within_s=self._limits.drain_timeout_s + CLOSING_S)
        if self._hurry.is_set():
            self.ending.hurry()
        self._turns.stop_claiming()
        self._fetching.stop()
        await self._end_turns(until_s=turns_until_s)
        self._over.set()
        self._stirred.wake()
        self._sweeper.stop()
        self._indexer.stop()
        self._windows.stop()
        self._trim.stop()
        async with self.ending.step("files that are being fetched"):
            await self._fetching.finish()
        async with self.ending.step("messages that are being sent"):
            await self._outbox.finish(0 if self._hurry.is_set() else SEND_S)
            await self._previews.finish()
        self._outbox.stop()
        async with self.ending.last_step("the node's row"):
            await self._nodes.leave(restart_session=self._restart_session)

    async def _end_turns(self, *, until_s: float) -> None:
        """Wait for running turns, and park those that are left."""
        if self._claiming is not None:
            # A claim may be under way: its turns count among those to wait for.
            async with self.ending.step("a claim", at_most_s=CLAIM_S):
                await asyncio.wait({self._claiming})
        if self._turns.running:
            async with self.ending.step("a notice to active conversations", at_most_s=TELL_S):
                await self._tell()
            self._turns.interrupt_waiting(self._planned, self._asked)
        reason = await self._wait_for_turns(until_s=until_s)
        if left := self._turns.running:
            log.info("parking turns", turns=left, reason=reason)
            self._turns.interrupt_all(reason, self._asked)
            async with self.ending.step("running turns"):
                await self._turns.finished()
        self.parked, self.unparked = self._turns.parked, self._turns.running

    async def _tell(self) -> None:
        """Active conversations hear what is about to happen, and it is what will happen."""
        timeout_s = 0 if self._hurry.is_set() else self._limits.drain_timeout_s
        drain = Drain(asked=self._asked, timeout_s=timeout_s)
        told = await self._nodes.announce(self._limits.recovery, drain)
        self._feed.publish_recorded(told)
        self._bus.publish(Topic.OUTBOX)

    async def _wait_for_turns(self, *, until_s: float) -> Interruption:
        waits = [self._turns.finished(), self._hurry.wait()]
        tasks = [asyncio.ensure_future(wait) for wait in waits]  # noqa: TID251 - both end below
        try:
            await asyncio.wait(
                tasks,
                timeout=max(until_s - asyncio.get_running_loop().time(), 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in tasks:
                task.cancel()
        is_skipped = self._hurry.is_set() or self._limits.drain_timeout_s == 0
        return self._planned if is_skipped else Interruption.DRAIN_TIMEOUT
