"""Runs one node: it joins the store, recovers turns, serves, and ends in three phases.

1. Stop taking: no more turns are claimed. Messages are still accepted, and wait for the next start.
2. Finish or park: turns get `drain_timeout_s` to end; those that are left are stored as
   interrupted.
3. Close: the node leaves, and then the owner of the store closes it.

Together they take at most `drain_timeout_s` and `CLOSING_S` (`engine/node/ending.py`), even if the
store takes no write or a platform hangs.
"""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import SessionId
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.turn.announcing import Drain
from perdure.engine.delivery.outbox import OutboxPump
from perdure.engine.delivery.previews import Previews
from perdure.engine.foundation.heartbeat import BEAT_AT_WORK_S, Heartbeat
from perdure.engine.foundation.leases import NodeLease
from perdure.engine.foundation.supervisor import STEADY_S, Start, run_again
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.engine.inbound.fetching import FetchPump
from perdure.engine.node.ending import CLOSING_S, NodeEnding
from perdure.engine.turns.pump import TurnPump
from perdure.engine.turns.reaper import Reaper
from perdure.engine.turns.runner_services import Limits
from perdure.engine.watching.feed import Feed
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Nodes
from perdure.ports.turns.wakes import Topic

# The pause between two heartbeats while no turn runs, where other nodes share the store and where
# they do not. Without turns and without other nodes, nothing depends on the heartbeat.
BEAT_SHARED_S = 4.0
BEAT_ALONE_S = 30.0
# How long a drain waits for a claim that is under way, and for the notice that tells people of it.
CLAIM_S = 1.0
TELL_S = 1.0
# How many heartbeats in a row may be carried by flushes of text before `beat` is called, where
# other nodes share the store. Together they must not take longer than `BEAT_SHARED_S`.
BEATS_CARRIED_MAX = 7
# How long a drain sends the messages that are due.
SEND_S = 3.0
log = structlog.get_logger("gateway")


class BackgroundTask(Protocol):
    """Does work that no message waits for, until it is stopped."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


class Gateway:
    """Starts and ends the parts of one node, and stores its heartbeat."""

    def __init__(  # noqa: PLR0913 - the parts of a node
        self,
        *,
        nodes: Nodes,
        lease: NodeLease,
        turns: TurnPump,
        outbox: OutboxPump,
        previews: Previews,
        fetching: FetchPump,
        background: Mapping[str, BackgroundTask],
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
        self._background = background
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
        # Whether the process before this one died without leaving.
        self.is_after_death = False
        # How many turns the drain has stored as interrupted, and how many it could not: those are
        # left as after a kill.
        self.parked = 0
        self.unparked = 0
        self._over = asyncio.Event()
        self._drained = asyncio.Event()
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
        """Join the store, recover what earlier processes left behind, and start the pumps. The node
        is ready when this returns."""
        self._name = name
        self.is_after_death = await self._join()
        # Each step recovers a limited number of turns.
        while await self._reaper.step():
            pass
        # Before the outbox pump: the waits that platforms named to an earlier process still hold.
        await self._outbox.recall()
        self._feed.publish_recorded(await self._nodes.greet(tells_homes=self._limits.notices.back))
        self._claiming = self._keep(self._turns.run, name="turn pump")
        self._keep(self._outbox.run, name="outbox pump")
        self._keep(self._fetching.run, name="fetch pump")
        for called, task in self._background.items():
            self._keep(task.run, name=called)
        self._keep(self._watch_over, name="heartbeat")
        self._is_serving = True

    def _keep(self, run: Callable[[], Awaitable[None]], *, name: str) -> "asyncio.Task[None]":
        """Run a pump as a task, and start it again after an unexpected failure."""
        work = run_again(run, name=name, clock=self._clock, stumbled=self._note_stumble)
        return self._start(work, name=name)

    def _note_stumble(self) -> None:
        self._stumbled_s = self._clock.monotonic_s()

    @property
    def is_ready(self) -> bool:
        """Tell whether the node serves. It does not while a pump keeps failing, since an accepted
        message may then have to wait."""
        is_steady = self._clock.monotonic_s() - self._stumbled_s > STEADY_S
        return self._is_serving and is_steady

    async def _watch_over(self) -> None:
        """Store the heartbeat. On a shared store, also recover the turns of nodes that died."""
        while not self._over.is_set():
            try:
                # Read before the write: the process may stand still during it, and the lease counts
                # from its beginning.
                begun = self._lease.now()
                if await self._nodes.beat():
                    self._lease.renew(begun)
                elif not self._over.is_set():  # otherwise the drain has left while this was asked
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
        """Wait until the next heartbeat is due. While turns run it is due soon, unless a flush of
        their text carries it. On a shared store this ends after `BEATS_CARRIED_MAX` of those at the
        latest, because only `beat` finds out that the lease is lost."""
        if not self._turns.running and not self._over.is_set():
            self._stirred.begin()
            idle_s = BEAT_SHARED_S if self._is_shared else BEAT_ALONE_S
            if not await happens_within(self._stirred, within_s=idle_s):
                return
            # A turn has begun, and the journal says so: that proves as much as a heartbeat.
            self._heartbeat.said(self._clock.monotonic_s())
        left_s = BEAT_AT_WORK_S
        for _ in range(BEATS_CARRIED_MAX) if self._is_shared else itertools.count():
            if left_s <= 0 or await happens_within(self._over, within_s=left_s):
                return
            left_s = self._heartbeat.left_s

    async def _live_again(self) -> None:
        """Join anew after the lease was lost (the machine slept, the database was away). Other
        nodes may have taken the turns, so all work on them ends first. The pump then puts back
        those that nobody has taken."""
        log.error("this node lost its lease; its turns belong to others now")
        self._lease.lose()
        self._turns.let_go()
        await self._turns.finished()
        await self._join()
        self._turns.come_back()

    async def _join(self) -> bool:
        """Join the nodes of the store. Returns True if the process before died without leaving."""
        begun = self._lease.now()
        is_after_death = await self._nodes.join(name=self._name)
        self._lease.renew(begun)
        return is_after_death

    def hurry(self) -> None:
        """End at once, after a second signal: do not wait for turns any longer."""
        self._hurry.set()
        self.ending.hurry()

    def when_drain_requested(self, tell: Callable[[], None]) -> None:
        """Call `tell` during each request for a drain or a restart, and at once if there was one
        already."""
        self._tell_of_request = tell
        if self.drain_requested.is_set():
            tell()

    def request_drain(self, *, is_replaced: bool = False) -> None:
        """Ask for a drain. With `is_replaced` another process takes over, and people are told of a
        restart."""
        self._is_replaced = self._is_replaced or is_replaced
        self._request()

    def request_restart(self, session: SessionId | None = None) -> None:
        """Ask for a drain after which the gateway starts again. The people of `session`, who have
        asked for it, are told there when it is back."""
        self.is_restarting = True
        self._restart_session = session or self._restart_session
        self._request()

    def _request(self) -> None:
        # First, and before the request is answered: if the event loop stands still from here on, no
        # task that waits for the event ever wakes up, and nothing else would bound the end.
        self._tell_of_request()
        self.drain_requested.set()

    @property
    def sending(self) -> int:
        """Return how many messages are being sent to platforms now."""
        return self._outbox.sending

    @property
    def _asked(self) -> NodeRequest:
        """Return what the node was asked for, as people are told it."""
        return NodeRequest.RESTART if self.is_restarting or self._is_replaced else NodeRequest.STOP

    @property
    def _planned(self) -> Interruption:
        """Return the reason with which attempts end that get no time to finish."""
        is_restart = self._asked is NodeRequest.RESTART
        return Interruption.RESTART if is_restart else Interruption.SHUTDOWN

    async def drain(self) -> None:
        """End the node, in the phases that the module describes. A second call only waits until the
        first one is over."""
        if self.is_draining:
            await self._drained.wait()
            return
        self._is_serving = False
        self.is_draining = True
        try:
            await self._drain()
        finally:
            self._drained.set()

    async def _drain(self) -> None:
        turns_until_s = asyncio.get_running_loop().time() + self._limits.drain_timeout_s
        self.ending.begin(within_s=self._limits.drain_timeout_s + CLOSING_S)
        if self._hurry.is_set():
            self.ending.hurry()
        self._bus.publish(Topic.STOPPING)
        self._turns.stop_claiming()
        self._fetching.stop()
        await self._end_turns(until_s=turns_until_s)
        self._over.set()
        self._stirred.wake()
        for task in self._background.values():
            task.stop()
        async with self.ending.step("files that are being fetched"):
            await self._fetching.finish()
        # After the turns: the replies with which they ended are sent too.
        async with self.ending.step("messages that are being sent"):
            await self._outbox.finish(0 if self._hurry.is_set() else SEND_S)
            await self._previews.finish()
        self._outbox.stop()
        async with self.ending.last_step("the node's row"):
            await self._nodes.leave(restart_session=self._restart_session, asked=self._asked)

    async def _end_turns(self, *, until_s: float) -> None:
        """Wait for running turns, and park those that are left."""
        if self._claiming is not None:
            # A claim may be under way: its turns are among those to wait for.
            async with self.ending.step("a claim", at_most_s=CLAIM_S):
                await asyncio.wait({self._claiming})
        if self._turns.running or self._limits.notices.stopping:
            async with self.ending.step("a notice that the node ends", at_most_s=TELL_S):
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
        """Tell each conversation in which a turn runs what the drain means for its answer, and the
        operators' homes that the node ends."""
        timeout_s = 0 if self._hurry.is_set() else self._limits.drain_timeout_s
        drain = Drain(
            asked=self._asked,
            timeout_s=timeout_s,
            tells_homes=self._limits.notices.stopping,
            asked_in=self._restart_session,
        )
        told = await self._nodes.announce(self._limits.recovery, drain)
        self._feed.publish_recorded(told)
        self._bus.publish(Topic.OUTBOX)

    async def _wait_for_turns(self, *, until_s: float) -> Interruption:
        """Wait until no turn runs, a second signal comes, or the time is up. Returns the reason
        with which the turns that are left are interrupted."""
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
