"""The turn pump: takes queued turns as long as there is room, and lets runners run them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import structlog

from perdure.domain.errands import is_errand
from perdure.domain.errors import Ambiguous, Transient
from perdure.domain.ids import TurnId
from perdure.domain.outcomes import Asked, Interruption
from perdure.engine.desk import Desk
from perdure.engine.patience import happens
from perdure.engine.reaper import Reaper
from perdure.engine.runner import Runner
from perdure.engine.stage import Stage
from perdure.engine.supervisor import Start, attempt
from perdure.engine.surfaces import Surfaces
from perdure.ports.turns import Claimed

CLAIM_MAX = 64
CLAIM_AGAIN_S = 0.05
LOOK_AGAIN_S = 1.0


log = structlog.get_logger("turns")


class TurnPump:
    def __init__(
        self,
        desk: Desk,
        *,
        reaper: Reaper,
        start: Start,
        surfaces: Surfaces,
        stage: Stage,
        poll_s: float | None = None,
    ) -> None:
        self._desk = desk
        self._reaper = reaper
        self._start = start
        self._surfaces = surfaces
        self._stage = stage
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._running: dict[TurnId, tuple[Runner, asyncio.Task[None]]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        # Set whenever a turn begins.
        self.stirred = asyncio.Event()
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

    @property
    def running(self) -> int:
        return len(self._running)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Until the drain: step while there is work, else wait for a wake-up."""
        while not self._is_draining:
            self._wake.clear()
            self._has_more = False
            if not await self._safe_step() or not self._has_more:
                await happens(self._wake, within_s=await self._patience_s())

    async def _safe_step(self) -> bool:
        try:
            return await self.step()
        except (Transient, Ambiguous) as error:
            log.warning("claiming failed", error=error.message)
            await self._desk.clock.sleep(1)
            self._has_more = True
            return True

    async def _patience_s(self) -> float | None:
        """Until we are woken, or until a turn that is held back may begin."""
        try:
            next_ms = await self._desk.turns.next_claim_ms()
        except (Transient, Ambiguous):
            return LOOK_AGAIN_S
        instants = [each for each in (next_ms, self._reaper.look_again_ms) if each is not None]
        if not instants or self._is_full:
            return self._poll_s
        # Never at once: what we could not claim is another's for a moment.
        left_s = max((min(instants) - self._desk.clock.now_ms()) / 1000, CLAIM_AGAIN_S)
        return left_s if self._poll_s is None else min(left_s, self._poll_s)

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
            claimed = await self._desk.turns.claim(limit=room)
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
        return self._desk.limits.concurrent - len(self._running) - self._held

    @contextmanager
    def seat(self) -> Iterator[bool]:
        """Hold room, if there is any, for a turn that may be claimed while its message is accepted.
        The drain waits for such turns as for those that run."""
        is_steady = not (self._is_unsure or self._is_looking or self._is_away)
        is_free = is_steady and not self._is_draining and self._room > 0
        self._held += is_free
        self._idle.clear()
        try:
            yield is_free
        except (Ambiguous, asyncio.CancelledError):
            # Committed or not, we shall not hear of it: it may have given us a turn.
            self._is_unsure = True
            self.wake()
            raise
        finally:
            self._held -= is_free
            self._note_idle()
            if is_free and (self._is_full or self._is_unsure):
                self.wake()  # whoever looked meanwhile found no room

    def _note_idle(self) -> None:
        if not self._running and not self._held:
            self._idle.set()

    def begin(self, claimed: Claimed) -> None:
        """Run a turn that is ours, unless it was ended while its claim was on the way to us."""
        if claimed.lease.turn in self._abandoned:
            return
        surface = self._surfaces.of(claimed.address)
        turn = claimed.lease.turn
        why_not = self._desk.admission.refusal(claimed.speaker) if claimed.speaker else ""
        runner = Runner(
            self._desk,
            claimed,
            surface,
            thinks=partial(self._stage.think, turn),
            refusal=why_not,
        )
        if surface is not None and not why_not and not is_errand(claimed.events):
            self._stage.begin(surface, claimed)
        started = claimed.events[-1:]
        self._desk.feed.publish(claimed.lease.session, started)
        task = self._start(self._run(runner), name=turn)
        self._running[turn] = (runner, task)
        self._idle.clear()
        self.stirred.set()
        # From outside: cancelled before its first step, a task runs no `finally` of its own, and
        # the drain would wait for it forever.
        task.add_done_callback(lambda _: self._ended(turn, runner))

    async def _run(self, runner: Runner) -> None:
        await attempt(runner.run(), partial(self._fail, runner))

    async def _fail(self, runner: Runner, error: Exception) -> None:
        """If not even that can be written down, the turn is still ours and nobody runs it."""

        async def lose(_: Exception) -> None:
            runner.is_lost = True

        await attempt(runner.fail_unforeseen(error), lose)

    def _ended(self, turn: TurnId, runner: Runner) -> None:
        found = self._running.get(turn)
        if found is not None and found[0] is runner:
            del self._running[turn]
            self._stage.end(turn)
        self._is_unsure = self._is_unsure or runner.is_lost
        self._note_idle()
        if runner.leaves_more or self._is_full or self._reaper.is_holding_back:
            self.wake()

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
        self.wake()

    def steer(self, turn: TurnId) -> None:
        """A message for a running turn has been accepted."""
        found = self._running.get(turn)
        if found is not None:
            found[0].steer()

    def stop_claiming(self) -> None:
        self._is_draining = True
        self.wake()

    async def finished(self) -> None:
        """Wait until no turn runs."""
        await self._idle.wait()

    def interrupt_all(self, reason: Interruption, asked: Asked) -> None:
        """Park what still runs."""
        for runner, task in list(self._running.values()):
            runner.interruption = (reason, asked)
            task.cancel()
