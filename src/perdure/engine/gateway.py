"""One node's life: join, reap, serve, and the three phases of its end.

1. Stop taking: no more claims; accepting goes on, what comes waits for the next start.
2. Finish or park: turns get `drain_timeout_s` to end; what is left is interrupted, durably.
3. Close: leave the nodes, let go of the store (its owner does that).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable

import structlog

from perdure.domain.announcing import Drain
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import SessionId
from perdure.domain.outcomes import Asked, Interruption
from perdure.domain.recovery import HEARTBEAT_MS
from perdure.engine.desk import Limits
from perdure.engine.feed import Feed
from perdure.engine.fetching import FetchPump
from perdure.engine.indexing import Indexer
from perdure.engine.outbox import OutboxPump
from perdure.engine.patience import happens
from perdure.engine.reaper import Reaper
from perdure.engine.supervisor import REST_S, Start, kept
from perdure.engine.sweeping import Sweeper
from perdure.engine.turns import TurnPump
from perdure.ports.clock import Clock
from perdure.ports.turns import Nodes

BEAT_SHARED_S = 4.0
BEAT_ALONE_S = 30.0  # where nothing runs, nothing depends on it
BEAT_AT_WORK_S = HEARTBEAT_MS / 1000
SEND_S = 3.0
log = structlog.get_logger("gateway")


class Gateway:
    def __init__(  # noqa: PLR0913 - the parts of a node
        self,
        *,
        nodes: Nodes,
        turns: TurnPump,
        outbox: OutboxPump,
        fetching: FetchPump,
        sweeper: Sweeper,
        indexer: Indexer,
        reaper: Reaper,
        feed: Feed,
        limits: Limits,
        clock: Clock,
        start: Start,
        is_shared: bool,
    ) -> None:
        self._nodes = nodes
        self._turns = turns
        self._outbox = outbox
        self._fetching = fetching
        self._sweeper = sweeper
        self._indexer = indexer
        self._reaper = reaper
        self._feed = feed
        self._limits = limits
        self._clock = clock
        self._start = start
        self._is_shared = is_shared
        self._hurry = asyncio.Event()
        self._over = asyncio.Event()
        self._claiming: asyncio.Task[None] | None = None
        self._restart_session: SessionId | None = None
        self.drain_requested = asyncio.Event()
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
        await self._nodes.join(name=name)
        while await self._reaper.step():
            pass
        self._feed.publish_recorded(await self._nodes.greet())
        self._claiming = self._keep(self._turns.run, name="turn pump")
        self._keep(self._outbox.run, name="outbox pump")
        self._keep(self._fetching.run, name="fetch pump")
        self._keep(self._sweeper.run, name="sweeper")
        self._keep(self._indexer.run, name="indexer")
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
        is_steady = self._clock.monotonic_s() - self._stumbled_s > 3 * REST_S
        return self._is_serving and is_steady

    async def _watch_over(self) -> None:
        """Say that we live; on a shared store also look for owners who no longer do."""
        while not self._over.is_set():
            try:
                if not await self._nodes.beat():
                    await self._live_again()
                if self._is_shared and not self.is_draining:
                    await self._look_for_orphans()
            except (Transient, Ambiguous) as error:
                log.warning("heartbeat failed", error=error.message)
            await self._rest()

    async def _look_for_orphans(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < BEAT_SHARED_S:
            return
        self._looked_s = now_s
        if await self._reaper.step():
            self._turns.wake()
            self._outbox.wake()

    async def _rest(self) -> None:
        """Wait until it is time to say it again. While turns run that is soon: if we die, the next
        start must know how long they have lived."""
        if not self._turns.running and not self._over.is_set():
            self._turns.stirred.clear()
            idle_s = BEAT_SHARED_S if self._is_shared else BEAT_ALONE_S
            if not await happens(self._turns.stirred, within_s=idle_s):
                return
        await happens(self._over, within_s=BEAT_AT_WORK_S)

    async def _live_again(self) -> None:
        """Our lease ran out (the machine slept, the database was away): others may have taken our
        turns. Let go of all of them and join anew; the pump gives back what nobody has taken."""
        log.error("this node lost its lease; its turns belong to others now")
        self._turns.let_go()
        await self._turns.finished()
        await self._nodes.join(name=self._name)
        self._turns.come_back()

    def hurry(self) -> None:
        """A second signal: do not wait for turns any longer."""
        self._hurry.set()

    def request_drain(self, *, is_replaced: bool = False) -> None:
        """`is_replaced`: another process takes over, which to people is a restart."""
        self._is_replaced = self._is_replaced or is_replaced
        self.drain_requested.set()

    def request_restart(self, session: SessionId | None = None) -> None:
        """Drain and come back; the people of `session` asked for it and are told there."""
        self.is_restarting = True
        self._restart_session = session or self._restart_session
        self.drain_requested.set()

    @property
    def _asked(self) -> Asked:
        return Asked.RESTART if self.is_restarting or self._is_replaced else Asked.STOP

    async def drain(self) -> None:
        """Safe to call twice: the second finds nothing left to do."""
        if self.is_draining:
            return
        self._is_serving = False
        self.is_draining = True
        self._turns.stop_claiming()
        self._fetching.stop()
        if self._claiming is not None:
            # A claim may be under way: its turns count among those to wait for.
            await asyncio.wait({self._claiming})
        if self._turns.running:
            await self._tell()
        reason = await self._wait_for_turns()
        if self._turns.running:
            log.info("parking turns", turns=self._turns.running, reason=reason)
            self._turns.interrupt_all(reason, self._asked)
            await self._turns.finished()
        self._over.set()
        self._turns.stirred.set()
        self._sweeper.stop()
        self._indexer.stop()
        await self._let_files_go()
        await self._finish_sending()
        await self._nodes.leave(restart_session=self._restart_session)

    async def _let_files_go(self) -> None:
        try:
            await self._fetching.finish()
        except (Transient, Ambiguous) as error:
            log.warning("files under way could not be given back", error=error.message)

    async def _finish_sending(self) -> None:
        try:
            await self._outbox.finish(0 if self._hurry.is_set() else SEND_S)
        except (Transient, Ambiguous) as error:
            log.warning("the outbox cannot be read", error=error.message)

    async def _tell(self) -> None:
        """Active conversations hear what is about to happen, and it is what will happen."""
        timeout_s = 0 if self._hurry.is_set() else self._limits.drain_timeout_s
        drain = Drain(asked=self._asked, timeout_s=timeout_s)
        try:
            told = await self._nodes.announce(self._limits.recovery, drain)
            self._feed.publish_recorded(told)
        except (Transient, Ambiguous) as error:
            log.warning("conversations could not be told", error=error.message)
        self._outbox.wake()

    async def _wait_for_turns(self) -> Interruption:
        waits = [self._turns.finished(), self._hurry.wait()]
        tasks = [asyncio.ensure_future(wait) for wait in waits]  # noqa: TID251 - both end below
        try:
            await asyncio.wait(
                tasks,
                timeout=self._limits.drain_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for task in tasks:
                task.cancel()
        is_skipped = self._hurry.is_set() or self._limits.drain_timeout_s == 0
        if not is_skipped:
            return Interruption.DRAIN_TIMEOUT
        is_restart = self._asked is Asked.RESTART
        return Interruption.RESTART if is_restart else Interruption.SHUTDOWN
