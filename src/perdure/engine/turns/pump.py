"""Claims queued turns as long as there is room, and lets runners run them."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import structlog

from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import PrincipalId, TurnId
from perdure.domain.outcomes import Interruption, NodeRequest
from perdure.domain.people.sharing import FairShares, most_of
from perdure.domain.turn.errands import is_errand
from perdure.engine.delivery.previews import Previews
from perdure.engine.delivery.surfaces import Surfaces
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.foundation.timed_waits import ClockWatch, happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.engine.turns.reaper import Reaper
from perdure.engine.turns.runner import Runner
from perdure.engine.turns.runner_services import RunnerServices
from perdure.ports.turns.turns import Claimed
from perdure.ports.turns.wakes import Topic

CLAIM_MAX = 64
# The shortest wait for the next claim, unless a wake-up ends it.
CLAIM_AGAIN_S = 0.05
# How long to wait if the store could not say when the next turn may begin.
LOOK_AGAIN_S = 1.0
log = structlog.get_logger("turns")


class TurnPump:
    """Claims turns, and owns the task of each turn that runs on this node."""

    def __init__(  # noqa: PLR0913 - what turns need around them
        self,
        services: RunnerServices,
        *,
        reaper: Reaper,
        start: Start,
        surfaces: Surfaces,
        previews: Previews,
        bus: Bus,
        poll_s: float | None = None,
    ) -> None:
        self._services = services
        self._reaper = reaper
        self._start = start
        self._surfaces = surfaces
        self._previews = previews
        self._poll_s = poll_s
        self._bus = bus
        self._waiter = bus.waiter(Topic.TURNS)
        bus.listen(Topic.ENDED, lambda turn: self._turn_was_ended(TurnId(str(turn))))
        bus.listen(Topic.STEERED, lambda turn: self.steer(TurnId(str(turn))))
        self._watch = ClockWatch(services.clock)
        self._running: dict[TurnId, tuple[Runner, asyncio.Task[None]]] = {}
        # How many turns each person has running here, with those that are being accepted.
        self._in_use: Counter[PrincipalId] = Counter()
        self._most = most_of(services.limits.concurrent)
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False
        # Turns may belong to this node without running here, because the answer to a claim was lost
        # or a failure could not be stored. They are looked for before more turns are claimed.
        self._is_unsure = False
        self._is_looking = False
        # The lease was lost. Until the node has joined again, it claims nothing.
        self._is_away = False
        # A turn was interrupted because its agent's program is gone; it may go on at once.
        self._has_cut = False
        self._has_more = False
        self._is_full = False
        self._held = 0
        # Turns that were ended from outside while the answer to their claim was on its way.
        self._abandoned: set[TurnId] = set()
        # How many attempts were stored as interrupted. The next start continues their turns.
        self.parked = 0

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Claim and start turns until the drain begins. If there are none, wait for a wake-up."""
        while not self._is_draining:
            # Before the store is read: a turn that is queued during the step ends the next wait.
            self._waiter.begin()
            self._watch.begin()
            self._has_more = False
            if not await self._safe_step() or not self._has_more:
                await self._wait()

    async def _safe_step(self) -> bool:
        try:
            return await self.step()
        except (Transient, Ambiguous) as error:
            log.debug("claiming failed", error=error.message)
            await self._services.clock.sleep(1)
            self._has_more = True
            return True

    async def _wait(self) -> None:
        """Wait for a wake-up, for the next poll, or for the instant at which a delayed turn may
        begin. If the wall clock is set meanwhile, that instant is asked for again."""
        left_s = None if self._is_full else await self._left_s()
        if left_s is None:
            await happens_within(self._waiter, within_s=self._poll_s)
            return
        within_s = left_s if self._poll_s is None else min(left_s, self._poll_s)
        await self._watch.wait(self._waiter, within_s=within_s)

    async def _left_s(self) -> float | None:
        """Return in how many seconds to look for a turn that may begin; None if no turn waits."""
        try:
            next_ms = await self._services.turns.next_claim_ms(shares=self._shares)
        except (Transient, Ambiguous):
            return LOOK_AGAIN_S
        instants = [each for each in (next_ms, self._reaper.look_again_ms) if each is not None]
        if not instants:
            return None
        # Never at once: a turn that is ready and was not claimed here is being claimed elsewhere.
        return max((min(instants) - self._services.clock.now_ms()) / 1000, CLAIM_AGAIN_S)

    async def step(self) -> bool:
        """Claim and start as many turns as there is room for. Returns False if none was claimed."""
        room = min(self._room, CLAIM_MAX)
        if room <= 0 or self._is_draining or self._is_away:
            self._is_full = room <= 0
            return False
        self._is_full = False
        # A message that is being accepted may have its turn claimed before the turn is known here.
        # The look would take that turn for lost, so it waits.
        if self._is_unsure and not self._held:
            await self._look_for_lost()
        if self._reaper.is_holding_back or self._has_cut:
            await self._resume()
        try:
            claimed = await self._services.turns.claim(limit=room, shares=self._shares)
        except Ambiguous:
            # The claim may be committed: its turns belong to this node and nobody runs them.
            self._is_unsure = True
            raise
        for each in claimed:
            self.begin(each)
        if not self._held:
            # The answer to a message that is being accepted may bring such a turn, too.
            self._abandoned.clear()
        # While suspects are held back, the next step asks again: when the next one may begin is
        # known only once the suspect before it has begun.
        is_to_ask = bool(claimed) and self._reaper.is_holding_back
        self._has_more = len(claimed) == room or is_to_ask
        return bool(claimed)

    async def _look_for_lost(self) -> None:
        """Put back turns that belong to this node and do not run here. Meanwhile no message gets a
        backend: its turn would not be among the known ones, and would be put back too."""
        # Cleared first: a claim that is lost during this look sets it again, for the next look.
        self._is_unsure = False
        self._is_looking = True
        try:
            await self._reaper.reclaim(tuple(self._running))
        except BaseException:
            self._is_unsure = True
            raise
        finally:
            self._is_looking = False

    async def _resume(self) -> None:
        """Put interrupted turns back in line."""
        # Cleared first: a turn that is cut during this sets it again, for the next step.
        self._has_cut = False
        try:
            await self._reaper.resume()
        except BaseException:
            self._has_cut = True
            raise

    @property
    def _room(self) -> int:
        return self._services.limits.concurrent - len(self._running) - self._held

    @property
    def _shares(self) -> FairShares:
        """Return who has how many turns now. A copy, because the counts change while it is read."""
        return FairShares(in_use=self._in_use.copy(), most=self._most)

    @contextmanager
    def hold_slot(self, who: PrincipalId) -> Iterator[bool]:
        """Hold a free slot for this person while their message is accepted, and yield whether there
        is one. If so, its turn may be claimed in the same transaction. The drain waits for such
        turns as for running ones."""
        is_steady = not (self._is_unsure or self._is_looking or self._is_away)
        has_room = self._room > 0 and self._in_use[who] < self._most
        is_free = is_steady and not self._is_draining and has_room
        self._held += is_free
        self._in_use[who] += is_free
        self._idle.clear()
        try:
            yield is_free
        except (Ambiguous, asyncio.CancelledError):
            # The transaction may be committed, and its turn belongs to this node without running.
            self._is_unsure = True
            self._waiter.wake()
            raise
        finally:
            self._held -= is_free
            self._leave(who, is_free)
            self._note_idle()
            if is_free and (self._is_full or self._is_unsure):
                # The pump may have found no room, or put off a look, because this slot was held.
                self._waiter.wake()

    def _leave(self, who: PrincipalId, count: int = 1) -> None:
        """Count a person's turns down. Wakes the pump if the person used all slots that they may
        have, since more of their turns may wait."""
        if self._in_use[who] >= self._most:
            self._waiter.wake()
        self._in_use[who] -= count
        if not self._in_use[who]:
            del self._in_use[who]

    def _note_idle(self) -> None:
        if not self._running and not self._held:
            self._idle.set()

    def begin(self, claimed: Claimed) -> None:
        """Run a claimed turn, unless it was ended while the answer to its claim was on its way."""
        if claimed.lease.turn in self._abandoned:
            return
        surface = self._surfaces.of(claimed.address)
        turn = claimed.lease.turn
        why_not = self._services.admission.refusal(claimed.speaker) if claimed.speaker else ""
        runner = Runner(
            self._services,
            claimed,
            surface,
            thinks=partial(self._previews.think, turn),
            refusal=why_not,
        )
        if surface is not None and not why_not and not is_errand(claimed.events):
            self._previews.begin(surface, claimed)
        started = claimed.events[-1:]
        self._services.feed.publish(claimed.lease.session, started)
        task = self._start(self._run(runner), name=turn)
        self._running[turn] = (runner, task)
        self._in_use[claimed.principal] += 1
        self._idle.clear()
        self._bus.publish(Topic.BEGUN)
        # A callback, because a task that is cancelled before its first step runs no `finally`: the
        # turn would count as running, and the drain would wait for it forever.
        task.add_done_callback(lambda _: self._ended(claimed, runner))

    async def _run(self, runner: Runner) -> None:
        await attempt(runner.run(), partial(self._fail, runner))

    async def _fail(self, runner: Runner, error: Exception) -> None:
        """Settle a turn whose runner failed unexpectedly. If that cannot be stored either, the turn
        still belongs to this node and nobody runs it, so it is looked for."""

        async def lose(_: Exception) -> None:
            runner.is_lost = True

        await attempt(runner.fail_unforeseen(error), lose)

    def _ended(self, claimed: Claimed, runner: Runner) -> None:
        """Free what a runner used. Wakes the pump if another turn may be claimed now."""
        turn = claimed.lease.turn
        self._leave(claimed.principal)
        # The turn may have been taken from this runner and claimed again: then it has a new one.
        found = self._running.get(turn)
        if found is not None and found[0] is runner:
            del self._running[turn]
            self._previews.end(turn)
            self.parked += runner.is_parked
        self._services.prompts.is_over(turn)
        self._services.trim.stir()
        self._is_unsure = self._is_unsure or runner.is_lost
        self._has_cut = self._has_cut or runner.is_cut
        self._note_idle()
        if runner.leaves_more or self._is_full or self._reaper.is_holding_back:
            self._waiter.wake()

    def _turn_was_ended(self, turn: TurnId) -> None:
        """End all work on a turn that another transaction has ended, also if it waited for a person
        while an agent was in the middle of its answer."""
        self.abandon(turn)
        self._services.roster.let_go(turn)

    def abandon(self, turn: TurnId) -> None:
        """End the work on a turn at once, because another transaction has ended the turn."""
        found = self._running.get(turn)
        if found is not None:
            found[1].cancel()
        else:
            # The answer to its claim may be on its way: the turn must not begin then.
            self._abandoned.add(turn)

    def let_go(self) -> None:
        """End all work and claim nothing: the lease was lost, and the turns may belong to other
        nodes."""
        self._is_away = True
        for _, task in self._running.values():
            task.cancel()

    def come_back(self) -> None:
        """Claim again after the node has joined anew. Turns that no other node has taken belong to
        this node and nobody runs them, so they are looked for first."""
        self._is_away = False
        self._is_unsure = True
        self._waiter.wake()

    def steer(self, turn: TurnId) -> None:
        """Tell a turn's runner that a message for it was accepted."""
        found = self._running.get(turn)
        if found is not None:
            found[0].steer()

    def stop_claiming(self) -> None:
        """Claim nothing more. Turns that run go on."""
        self._is_draining = True
        self._waiter.wake()

    async def finished(self) -> None:
        """Wait until no turn runs."""
        await self._idle.wait()

    def interrupt_waiting(self, reason: Interruption, asked: NodeRequest) -> None:
        """Park the turns that wait for an agent that is away. Nothing is said while they wait, so
        waiting longer would only delay the end of the process."""
        for runner, task in list(self._running.values()):
            if runner.is_waiting:
                runner.interruption = (reason, asked)
                task.cancel()

    def interrupt_all(self, reason: Interruption, asked: NodeRequest) -> None:
        """Park all turns that still run."""
        for runner, task in list(self._running.values()):
            runner.interruption = (reason, asked)
            task.cancel()
