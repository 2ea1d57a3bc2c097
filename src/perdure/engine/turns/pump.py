"""The turn pump: takes queued turns as long as there is room, and lets runners run them."""

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
CLAIM_AGAIN_S = 0.05
LOOK_AGAIN_S = 1.0


log = structlog.get_logger("turns")


class TurnPump:
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
        bus.listen(Topic.ENDED, lambda turn: self.abandon(TurnId(str(turn))))
        bus.listen(Topic.STEERED, lambda turn: self.steer(TurnId(str(turn))))
        self._watch = ClockWatch(services.clock)
        self._running: dict[TurnId, tuple[Runner, asyncio.Task[None]]] = {}
        # How many turns each person has at work here, with those that are being accepted.
        self._in_use: Counter[PrincipalId] = Counter()
        self._most = most_of(services.limits.concurrent)
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False
        # Turns may be ours that we do not know of; they are looked for before more is claimed.
        self._is_unsure = False
        self._is_looking = False
        # Our lease was lost: until we have joined anew nothing is ours to look for.
        self._is_away = False
        self._has_more = False
        self._is_full = False
        self._held = 0
        self._abandoned: set[TurnId] = set()
        # How many attempts were interrupted durably, for the next start to go on with.
        self.parked = 0

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Until the drain: step while there is work, else wait for a wake-up."""
        while not self._is_draining:
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
        """Wait until we are woken, until a turn that is held back may begin, or until the clock was
        set while one is."""
        left_s = None if self._is_full else await self._left_s()
        if left_s is None:
            await happens_within(self._waiter, within_s=self._poll_s)
            return
        within_s = left_s if self._poll_s is None else min(left_s, self._poll_s)
        await self._watch.wait(self._waiter, within_s=within_s)

    async def _left_s(self) -> float | None:
        """Return in how long the next turn may begin; None if there is none to begin."""
        try:
            next_ms = await self._services.turns.next_claim_ms(shares=self._shares)
        except (Transient, Ambiguous):
            return LOOK_AGAIN_S
        instants = [each for each in (next_ms, self._reaper.look_again_ms) if each is not None]
        if not instants:
            return None
        # Never at once: what we could not claim is another's for a moment.
        return max((min(instants) - self._services.clock.now_ms()) / 1000, CLAIM_AGAIN_S)

    async def step(self) -> bool:
        """Claim what there is room for and start it. False when there was nothing to claim."""
        room = min(self._room, CLAIM_MAX)
        if room <= 0 or self._is_draining or self._is_away:
            self._is_full = room <= 0
            return False
        self._is_full = False
        if self._is_unsure and not self._held:  # what is being accepted is not lost
            await self._look_for_lost()
        if self._reaper.is_holding_back:
            await self._reaper.resume()
        try:
            claimed = await self._services.turns.claim(limit=room, shares=self._shares)
        except Ambiguous:
            # It may have given us turns we do not know of: look before claiming more.
            self._is_unsure = True
            raise
        for each in claimed:
            self.begin(each)
        self._abandoned.clear()
        # Of suspects that were held back, only those that have begun tell how long to wait.
        is_to_ask = bool(claimed) and self._reaper.is_holding_back
        self._has_more = len(claimed) == room or is_to_ask
        return bool(claimed)

    async def _look_for_lost(self) -> None:
        """Meanwhile nothing begins: it would not be among those we say we know."""
        self._is_unsure = False  # first: whatever is lost from now on, the next look is for
        self._is_looking = True
        try:
            await self._reaper.reclaim(tuple(self._running))
        except BaseException:
            self._is_unsure = True
            raise
        finally:
            self._is_looking = False

    @property
    def _room(self) -> int:
        return self._services.limits.concurrent - len(self._running) - self._held

    @property
    def _shares(self) -> FairShares:
        """Who has how many turns now, for others to read while that changes."""
        return FairShares(in_use=self._in_use.copy(), most=self._most)

    @contextmanager
    def seat(self, who: PrincipalId) -> Iterator[bool]:
        """Hold room, if there is any for this person, for a turn that may be claimed while its
        message is accepted. The drain waits for such turns as for those that run."""
        is_steady = not (self._is_unsure or self._is_looking or self._is_away)
        has_room = self._room > 0 and self._in_use[who] < self._most
        is_free = is_steady and not self._is_draining and has_room
        self._held += is_free
        self._in_use[who] += is_free
        self._idle.clear()
        try:
            yield is_free
        except (Ambiguous, asyncio.CancelledError):
            # Committed or not, we shall not hear of it: it may have given us a turn.
            self._is_unsure = True
            self._waiter.wake()
            raise
        finally:
            self._held -= is_free
            self._leave(who, is_free)
            self._note_idle()
            if is_free and (self._is_full or self._is_unsure):
                self._waiter.wake()  # whoever looked meanwhile found no room

    def _leave(self, who: PrincipalId, count: int = 1) -> None:
        """Take note that a person has fewer turns at work. Whoever had all they may have, and may
        have more waiting, is looked for again."""
        if self._in_use[who] >= self._most:
            self._waiter.wake()
        self._in_use[who] -= count
        if not self._in_use[who]:
            del self._in_use[who]

    def _note_idle(self) -> None:
        if not self._running and not self._held:
            self._idle.set()

    def begin(self, claimed: Claimed) -> None:
        """Run a turn that is ours, unless it was ended while its claim was on the way to us."""
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
        # From outside: cancelled before its first step, a task runs no `finally` of its own, and
        # the drain would wait for it forever.
        task.add_done_callback(lambda _: self._ended(claimed, runner))

    async def _run(self, runner: Runner) -> None:
        await attempt(runner.run(), partial(self._fail, runner))

    async def _fail(self, runner: Runner, error: Exception) -> None:
        """If not even that can be written down, the turn is still ours and nobody runs it."""

        async def lose(_: Exception) -> None:
            runner.is_lost = True

        await attempt(runner.fail_unforeseen(error), lose)

    def _ended(self, claimed: Claimed, runner: Runner) -> None:
        turn = claimed.lease.turn
        self._leave(claimed.principal)
        found = self._running.get(turn)
        if found is not None and found[0] is runner:
            del self._running[turn]
            self._previews.end(turn)
            self.parked += runner.is_parked
        self._services.prompts.is_over(turn)
        self._services.trim.stir()
        self._is_unsure = self._is_unsure or runner.is_lost
        self._note_idle()
        if runner.leaves_more or self._is_full or self._reaper.is_holding_back:
            self._waiter.wake()

    def abandon(self, turn: TurnId) -> None:
        """The turn was settled by someone else's transaction: end the work at once."""
        found = self._running.get(turn)
        if found is not None:
            found[1].cancel()
        else:
            # A claim of it may be on its way back to us: it must not begin any more.
            self._abandoned.add(turn)

    def let_go(self) -> None:
        """Our turns may be others' now: end all work, and begin none."""
        self._is_away = True
        for _, task in self._running.values():
            task.cancel()

    def come_back(self) -> None:
        """What nobody has taken is ours again, and nobody runs it: look before claiming more."""
        self._is_away = False
        self._is_unsure = True
        self._waiter.wake()

    def steer(self, turn: TurnId) -> None:
        """A message for a running turn has been accepted."""
        found = self._running.get(turn)
        if found is not None:
            found[0].steer()

    def stop_claiming(self) -> None:
        self._is_draining = True
        self._waiter.wake()

    async def finished(self) -> None:
        """Wait until no turn runs."""
        await self._idle.wait()

    def interrupt_waiting(self, reason: Interruption, asked: NodeRequest) -> None:
        """Park the turns that wait for an agent that is away: they have said nothing, and waiting
        on would only keep the process from its end."""
        for runner, task in list(self._running.values()):
            if runner.is_waiting:
                runner.interruption = (reason, asked)
                task.cancel()

    def interrupt_all(self, reason: Interruption, asked: NodeRequest) -> None:
        """Park what still runs."""
        for runner, task in list(self._running.values()):
            runner.interruption = (reason, asked)
            task.cancel()
