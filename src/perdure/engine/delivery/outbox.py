"""Sends the parts of the outbox to their platforms: intent, effect, receipt.

A part is marked as attempting before the platform is called, and gets its receipt afterwards. If
the process dies in between, the next one finds the part attempting, and finds out whether it
arrived (`reconciling.py`).

Parts of different conversations are sent at the same time, so that a slow place holds up nobody
else; the account's pacer decides when each may be sent. If a platform refuses the form of a part,
the same words are sent in another form.
"""

import asyncio
import math
from functools import partial

import structlog

from perdure.domain.delivery import (
    GONE,
    KEPT,
    DeliveryStep,
    PartState,
    backoff_s,
    without_promise,
)
from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    NotFound,
    PerdureError,
    Permanent,
    Rejected,
    Transient,
)
from perdure.domain.ids import PartId
from perdure.engine.delivery.attempts import AttemptRecords
from perdure.engine.delivery.effects import EffectMaker, otherwise
from perdure.engine.delivery.handover import Handovers
from perdure.engine.delivery.pace import Rank
from perdure.engine.delivery.reconciling import RECOVER_S, Reconciler
from perdure.engine.delivery.surfaces import Surface, Surfaces
from perdure.engine.foundation.leases import Lease, NodeLease
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.pump_waiter import PumpWaiter
from perdure.engine.foundation.supervisor import Start, attempt
from perdure.engine.foundation.timed_waits import happens_within
from perdure.engine.foundation.wakes import Bus
from perdure.engine.watching.feed import Feed
from perdure.ports.delivery.outbox import Outbox, Part
from perdure.ports.platform.adapter import (
    Effect,
    Receipt,
    ThreadGone,
    Unrenderable,
)
from perdure.ports.records.media import MediaLibrary
from perdure.ports.system.clock import Clock
from perdure.ports.system.speech import Voice
from perdure.ports.turns.wakes import Topic

# How many parts of one platform are sent at the same time, at most.
TAKE_MAX = 64
# How many parts of each platform are taken at a time while the node ends. What was taken is waited
# for, so that is kept small.
LAST_TAKE = 8
EXPIRE_EVERY_S = 60.0
# A post that must wait for its turn's preview is tried again after this time.
PREVIEW_S = 0.1
log = structlog.get_logger("outbox")


class OutboxPump:
    """Takes the parts that are due and sends them, and reconciles those of unknown fate.
    `is_shared`: other nodes work on the same store."""

    def __init__(  # noqa: PLR0913 - what a part may need on its way
        self,
        outbox: Outbox,
        surfaces: Surfaces,
        *,
        media: MediaLibrary,
        handovers: Handovers,
        feed: Feed,
        clock: Clock,
        start: Start,
        expire_s: int,
        bus: Bus,
        lease: NodeLease,
        speaker: Voice | None = None,
        is_shared: bool = False,
        poll_s: float = 30,
    ) -> None:
        self._tries = AttemptRecords(outbox, feed, clock=clock, wakes=bus)
        self._reconciler = Reconciler(
            outbox,
            surfaces,
            self._tries,
            media=media,
            clock=clock,
            expire_s=expire_s,
            bus=bus,
            is_shared=is_shared,
        )
        self._outbox = outbox
        self._surfaces = surfaces
        self._lease = lease
        self._effects = EffectMaker(media, speaker)
        self._handovers = handovers
        self._clock = clock
        self._start = start
        self._expire_s = expire_s
        self._poll_s = poll_s
        self._lookout = PumpWaiter(bus.waiter(Topic.OUTBOX), clock=clock)
        self._is_shared = is_shared
        self._expire_at = -math.inf
        self._in_flight: dict[PartId, str] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def sending(self) -> int:
        """Return how many parts are being sent to a platform now."""
        return len(self._in_flight)

    def stop(self) -> None:
        """Take no more parts. Those that are being sent go on."""
        self._is_draining = True
        self._lookout.wake()

    async def finish(self, within_s: float) -> None:
        """Send what is due before the node ends. After `within_s` nothing more begins, and what has
        begun is waited for: otherwise nobody would know whether it arrived. The caller bounds that
        wait; a part that is cut short is found attempting by the next process."""
        deadline_s = self._clock.monotonic_s() + within_s
        while self._surfaces and (left_s := deadline_s - self._clock.monotonic_s()) > 0:
            has_begun = await self._begin(limit=LAST_TAKE)
            if self._asking:
                # A part in doubt becomes due when it turns out that it did not arrive.
                await asyncio.wait(self._asking, timeout=left_s)
            elif not has_begun:
                break
            await happens_within(self._idle, within_s=left_s)
        self.stop()
        await self._idle.wait()

    async def run(self) -> None:
        if not self._surfaces:
            return
        while not self._is_draining:
            self._lookout.begin()
            try:
                if not await self._begin():
                    await self._wait_until_due()
            except (Transient, Ambiguous) as error:
                log.debug("outbox cannot be read", error=error.message)
                await self._clock.sleep(1)

    async def _begin(self, *, limit: int = TAKE_MAX) -> bool:
        """Start to send what is due, each part in a task of its own. Returns False if nothing
        was."""
        for surface in self._reconciler.due():
            # In a task of its own, so that a platform that answers slowly holds up no other.
            task = self._start(self._recover_beside(surface), name=f"reconcile {surface.name}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        lease = self._lease.take()
        taken = await self._take_due(limit=limit)
        for surface, part in taken:
            self._in_flight[part.id] = surface.name
            self._idle.clear()
            task = self._start(self._send_safely(surface, part, lease), name=f"send {part.id}")
            # As a callback: a task that is cancelled before its first step runs no `finally`.
            task.add_done_callback(partial(self._sent_beside, part))
        return bool(taken)

    def _sent_beside(self, part: Part, _: object) -> None:
        self._in_flight.pop(part.id, None)
        if not self._in_flight:
            self._idle.set()
        self._lookout.wake()  # the next part of its conversation may go

    async def _wait_until_due(self) -> None:
        """Wait until a part is due or something wakes the pump. A part that was due and could not
        be taken waits for room, or for its platform to be reached again."""
        at_most_s = min(self._poll_s, RECOVER_S) if self._is_shared else self._poll_s
        await self._lookout.wait(await self._outbox.next_due_ms(), at_most_s=at_most_s)

    async def recall(self) -> None:
        """Read what the process before has asked of each platform. Call it before anything is
        sent."""
        for surface in self._surfaces:
            await persist(surface.recall, clock=self._clock)

    async def recover(self) -> None:
        """Find out whether the parts of unknown fate have arrived."""
        for surface in self._reconciler.due():
            await self._reconciler.recover(surface)

    async def _recover_beside(self, surface: Surface) -> None:
        try:
            await self._reconciler.recover(surface)
        except (Transient, Ambiguous) as error:
            log.debug("parts in doubt cannot be read", error=error.message)
        self._lookout.wake()

    async def step(self) -> bool:
        """Send what is due, one part after another. Returns False if nothing was."""
        await self.recover()
        lease = self._lease.take()
        taken = await self._take_due()
        for surface, part in taken:
            await self._send_safely(surface, part, lease)
        return bool(taken)

    async def _take_due(self, *, limit: int = TAKE_MAX) -> list[tuple[Surface, Part]]:
        """Mark due parts as attempting and return them with their platforms. Each platform has room
        of its own, so that one that hangs takes none from the others."""
        await self._expire()
        self._lookout.look()
        taken: list[tuple[Surface, Part]] = []
        for surface in self._surfaces:
            held = sum(name == surface.name for name in self._in_flight.values())
            room = min(TAKE_MAX - held, limit)
            if surface.is_open and room > 0:
                taken += [(surface, part) for part in await self._take(surface.name, room)]
        return taken

    async def _expire(self) -> None:
        """Give up parts that have waited too long. Does so at most once a minute: it is a write,
        and what expires has waited for much longer than that."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._expire_at:
            await self._tries.expire(older_than_s=self._expire_s)
            self._expire_at = now_s + min(EXPIRE_EVERY_S, self._expire_s / 10)

    async def _take(self, adapter: str, room: int) -> list[Part]:
        """Take due parts of one platform. If the answer of the store is lost, this node may hold
        parts that it does not know. None of them was sent, so they are given back."""
        try:
            return await self._outbox.take(adapter=adapter, limit=room)
        except Ambiguous:
            keep = tuple(self._in_flight)
            release = partial(self._outbox.release, adapter=adapter, keep=keep)
            await persist(release, clock=self._clock)
            return []

    async def _send_safely(self, surface: Surface, part: Part, lease: Lease) -> None:
        await attempt(self._send(surface, part, lease), partial(self._reconciler.unforeseen, part))

    async def _send(self, surface: Surface, part: Part, lease: Lease) -> None:
        wait_s = self._wait_s(surface, part)
        if wait_s:
            # The part waits as pending, not as attempting: if the process dies meanwhile, it is
            # certain that the part did not arrive.
            await self._tries.defer(part, due_in_s=wait_s)
            return
        try:
            if await self._is_divided(surface, part):
                return
            shown = await self._shown(part)
            effect = await self._effects.of(surface, part, shown)
            if not lease.may_act:
                # The lease ran out before the platform was called. Another node may have the part
                # by now; then this write is refused. Otherwise it is taken again.
                await self._tries.defer(part, due_in_s=0)
                return
            kept = Receipt(external_id=KEPT)
            receipt = await self._perform(surface, part, effect, lease) if effect else kept
        except (Transient, Ambiguous, Permanent, Rejected, Conflict) as error:
            await self._failed(surface, part, error)
        else:
            await self._sent(part, receipt)

    async def _perform(self, surface: Surface, part: Part, effect: Effect, lease: Lease) -> Receipt:
        """Ask the platform for an effect. If it refuses the form, ask for the same words in another
        form. A missing thread may appear a moment later, so the first attempt of a part does not
        give the thread up."""
        try:
            return await surface.adapter.perform(effect)
        except (Unrenderable, ThreadGone) as error:
            is_early = isinstance(error, ThreadGone) and part.attempts == 1
            other = None if is_early else otherwise(effect, error)
            if other is None:
                raise
        # The second request must be made now, so it is counted without asking the pacer.
        surface.pacer.count(part.address.place)
        if not lease.may_act:
            raise Transient("its form was refused, and there was no time left to try another one")
        return await self._perform(surface, part, other, lease)

    def _wait_s(self, surface: Surface, part: Part) -> float:
        """Return how long a part must wait; 0 if it may be sent now. A post waits while its turn's
        preview is under way, since a preview that comes late would appear behind it. An edit waits
        for the preview later, as attempting, because an edit may be repeated after a crash. Then
        every part waits for the pace; reactions give way to everything else."""
        is_post = part.step is DeliveryStep.POST and _follows_previews(part)
        if is_post and part.turn is not None and self._handovers.expected(part.turn):
            return PREVIEW_S
        pace = surface.capabilities(part.address).pace
        if part.step is DeliveryStep.REACT:
            return surface.pacer.wait_s(part.address.place, pace, Rank.SIGNAL)
        return surface.pacer.final_wait_s(part.address.place, pace, part.id)

    async def _shown(self, part: Part) -> str:
        """Wait until the preview of the part's turn has handed over. Returns the text that a native
        stream was given if the part finishes one, else an empty string."""
        if part.turn is None or not _follows_previews(part):
            return ""
        return await self._handovers.receive(part.turn, part.receipt)

    async def _is_divided(self, surface: Surface, part: Part) -> bool:
        """Divide a part that is too long for its platform, and return whether that was needed. A
        runner plans parts that fit. Replies to commands, notices and the last words of a turn that
        was ended from outside are written by store operations, which do not know the limits."""
        if part.step not in (DeliveryStep.POST, DeliveryStep.EDIT):
            return False
        texts = await surface.plan(part.text, part.address)
        if len(texts) < 2:
            return False
        await self._tries.divide(part, texts)
        return True

    async def _sent(self, part: Part, receipt: Receipt) -> None:
        is_gone = part.step is DeliveryStep.DELETE and receipt.external_id != KEPT
        proof = GONE if is_gone else receipt.external_id
        await self._tries.record(
            part, PartState.SENT, receipt=proof or KEPT, moved_to=receipt.moved_to
        )

    async def _failed(
        self,
        surface: Surface,
        part: Part,
        error: Transient | Ambiguous | Permanent | Rejected | Conflict,
    ) -> None:
        match error:
            case Transient():
                wait_s = error.retry_after_s or backoff_s(part.attempts)
                await surface.heed(error, part.address.place)
                await self._again(part, error, wait_s)
            case Ambiguous():
                await surface.heed(error, part.address.place)
                await self._reconciler.lost(surface, part, error)
            case ThreadGone() if part.attempts == 1:
                await self._again(part, error, backoff_s(part.attempts))
            case NotFound() if part.step is DeliveryStep.EDIT:
                await self._tries.post_instead(part, error=error.message)
            case _ if part.step in (DeliveryStep.DELETE, DeliveryStep.REACT):
                # Nobody waits for a deletion or a reaction, so its failure is not reported.
                await self._tries.record(part, PartState.SENT, receipt=KEPT, error=error.message)
            case _:
                log.warning("a part cannot be delivered", part=part.id, error=error.message)
                why = without_promise(error.message)
                await self._tries.record(part, PartState.FAILED, error=why)

    async def _again(self, part: Part, error: PerdureError, wait_s: float) -> None:
        await self._tries.record(part, PartState.PENDING, error=error.message, due_in_s=wait_s)


def _follows_previews(part: Part) -> bool:
    """Tell whether a part must come after its turn's preview, as all final words do. A notice about
    a turn must not: the turn may still run for long."""
    return part.is_of_turn and not part.is_ahead and part.step is not DeliveryStep.BUBBLE
