"""The outbox pump: intent, effect, receipt.

A part is marked attempting before the platform is called and gets its receipt after. If we die in
between, the next life finds it attempting: where the platform can be asked or takes our key, it is
reconciled; elsewhere it becomes unknown and is shown, never blindly sent again. What may be
repeated (edits, deletions, marks) is, until it has worked or never will.

Parts of different conversations go out side by side, so that a slow place holds up nobody else; the
account's pacer decides when each may go.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from perdure.domain.delivery import GONE, KEPT, Capabilities, PartState, Step, backoff_s
from perdure.domain.errors import Ambiguous, Conflict, NotFound, Permanent, Rejected, Transient
from perdure.domain.ids import PartId
from perdure.engine.lookout import Lookout
from perdure.engine.patience import happens
from perdure.engine.persist import persist
from perdure.engine.stage import Stage
from perdure.engine.supervisor import Start, attempt
from perdure.engine.surfaces import Surface, Surfaces
from perdure.ports.adapter import (
    Delete,
    Edit,
    Effect,
    Post,
    React,
    Receipt,
    Upload,
)
from perdure.ports.clock import Clock
from perdure.ports.media import MediaLibrary
from perdure.ports.outbox import Outbox, Part

TAKE_MAX = 64
LAST_TAKE = 8
RECOVER_S = 5.0
EXPIRE_EVERY_S = 60.0
# How long a preview is given before we look again whether it has ended.
PREVIEW_S = 0.1
_DIED_SENDING = "the gateway died while sending; it may have arrived"
_REPEATABLE = (Step.EDIT, Step.DELETE, Step.REACT)
log = structlog.get_logger("outbox")


class OutboxPump:
    def __init__(  # noqa: PLR0913 - what a part may need on its way
        self,
        outbox: Outbox,
        surfaces: Surfaces,
        *,
        media: MediaLibrary,
        stage: Stage,
        clock: Clock,
        start: Start,
        expire_s: int,
        is_shared: bool = False,
        poll_s: float = 30,
    ) -> None:
        self._outbox = outbox
        self._surfaces = surfaces
        self._media = media
        self._stage = stage
        self._clock = clock
        self._start = start
        self._expire_s = expire_s
        self._poll_s = poll_s
        self._lookout = Lookout(clock)
        self._is_shared = is_shared
        self._recover_at: dict[str, float] = {}
        self._expire_at = -math.inf
        self._in_flight: dict[PartId, str] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False

    def wake(self) -> None:
        self._lookout.wake()

    def stop(self) -> None:
        self._is_draining = True
        self.wake()

    async def finish(self, within_s: float) -> None:
        """Before the end: what is due goes out. Nothing begins after that time; what has begun is
        never cut short, or nobody would know whether it arrived."""
        deadline_s = self._clock.monotonic_s() + within_s
        while self._surfaces and (left_s := deadline_s - self._clock.monotonic_s()) > 0:
            if not await self._begin(limit=LAST_TAKE):
                break
            await happens(self._idle, within_s=left_s)
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
                log.warning("outbox cannot be read", error=error.message)
                await self._clock.sleep(1)

    async def _begin(self, *, limit: int = TAKE_MAX) -> bool:
        """Start sending what is due, side by side. False when nothing was."""
        taken = await self._take_due(limit=limit)
        for surface, part in taken:
            self._in_flight[part.id] = surface.name
            self._idle.clear()
            task = self._start(self._send_safely(surface, part), name=f"send {part.id}")
            # From outside: cancelled before its first step, a task runs no `finally` of its own.
            task.add_done_callback(partial(self._sent_beside, part))
        return bool(taken)

    def _sent_beside(self, part: Part, _: object) -> None:
        self._in_flight.pop(part.id, None)
        if not self._in_flight:
            self._idle.set()
        self.wake()  # the next part of its conversation may go

    async def _wait_until_due(self) -> None:
        """What was due and not taken waits for room, or for its platform to be reached again."""
        at_most_s = min(self._poll_s, RECOVER_S) if self._is_shared else self._poll_s
        await self._lookout.wait(await self._outbox.next_due_ms(), at_most_s=at_most_s)

    async def recover(self) -> None:
        """Settle the fate of parts that an owner who is gone left attempting. Where others share
        the store, an owner may go at any time, and its lease outlives it for a while."""
        now_s = self._clock.monotonic_s()
        for surface in self._surfaces:
            if not surface.is_open or now_s < self._recover_at.get(surface.name, 0):
                continue
            stranded = await self._outbox.stranded(adapter=surface.name)
            for part in stranded:
                await attempt(
                    self._reconcile(surface, part),
                    partial(self._unforeseen, part),
                    foreseen=(Transient, Ambiguous),
                )
            is_again = self._is_shared or bool(stranded)
            self._recover_at[surface.name] = now_s + RECOVER_S if is_again else math.inf

    async def _reconcile(self, surface: Surface, part: Part) -> None:
        can = surface.capabilities(part.address)
        if part.step in _REPEATABLE:
            await self._record(part, PartState.PENDING)
        elif can.can_find:
            try:
                receipt = await surface.adapter.find(part.id, part.address)
            except (Transient, Ambiguous, Permanent, Rejected) as error:
                await self._record(part, PartState.UNKNOWN, error=error.message)
                return
            if receipt is not None:
                await self._record(part, PartState.SENT, receipt=receipt.external_id)
            else:
                await self._record(part, PartState.PENDING)
        elif can.takes_key and self._clock.now_ms() - part.changed_at < can.key_s * 1000:
            await self._record(part, PartState.PENDING)  # repeating the key cannot show it twice
        else:
            await self._record(part, PartState.UNKNOWN, error=_DIED_SENDING)

    async def step(self) -> bool:
        """Send what is due, one part after another. False when nothing was."""
        taken = await self._take_due()
        for surface, part in taken:
            await self._send_safely(surface, part)
        return bool(taken)

    async def _take_due(self, *, limit: int = TAKE_MAX) -> list[tuple[Surface, Part]]:
        """Each platform has room of its own: one that hangs takes none from the others."""
        await self.recover()
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
        """Now and then: it is a write, and what expires has waited for a day."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._expire_at:
            await self._outbox.expire(older_than_s=self._expire_s)
            self._expire_at = now_s + min(EXPIRE_EVERY_S, self._expire_s / 10)

    async def _take(self, adapter: str, room: int) -> list[Part]:
        """If the answer is lost we hold parts we do not know, none of them sent: give them back."""
        try:
            return await self._outbox.take(adapter=adapter, limit=room)
        except Ambiguous:
            keep = tuple(self._in_flight)
            release = partial(self._outbox.release, adapter=adapter, keep=keep)
            await persist(release, clock=self._clock)
            return []

    async def _send_safely(self, surface: Surface, part: Part) -> None:
        await attempt(self._send(surface, part), partial(self._unforeseen, part))

    async def _unforeseen(self, part: Part, error: Exception) -> None:
        """An adapter broke in a way nobody foresaw: the part may have arrived, so it is shown."""
        await self._record(part, PartState.UNKNOWN, error=f"internal: {type(error).__name__}")

    async def _send(self, surface: Surface, part: Part) -> None:
        wait_s = self._wait_s(surface, part)
        if wait_s:
            # It waits as a row that nobody has tried: if we die meanwhile, it certainly did not
            # arrive.
            await self._unless_taken(partial(self._defer, part, wait_s), part)
            return
        try:
            if await self._is_divided(surface, part):
                return
            shown = await self._quiet(part)
            effect = await self._effect(surface, part, shown)
            receipt = await surface.adapter.perform(effect) if effect else Receipt(external_id=KEPT)
        except (Transient, Ambiguous, Permanent, Rejected, Conflict) as error:
            await self._failed(surface, part, error)
        else:
            await self._sent(part, receipt)

    def _wait_s(self, surface: Surface, part: Part) -> float:
        """Until its turn has no preview under way, which would appear behind it (an edit may wait
        for that with its row taken, for it may be repeated), and until the pace allows it."""
        is_post = part.step is Step.POST and _follows_previews(part)
        if is_post and part.turn is not None and self._stage.is_showing(part.turn):
            return PREVIEW_S
        pace = surface.capabilities(part.address).pace
        return surface.pacer.final_wait_s(part.address.place, pace, part.id)

    async def _defer(self, part: Part, due_in_s: float) -> None:
        await self._outbox.defer(part.id, due_in_s=due_in_s, attempt=part.attempts)

    async def _quiet(self, part: Part) -> str:
        """The final words of a turn wait for its last preview."""
        if part.turn is None or not _follows_previews(part):
            return ""
        return await self._stage.quiet(part.turn, part.receipt)

    async def _is_divided(self, surface: Surface, part: Part) -> bool:
        """Replies to commands, notices and the words of a turn that was given up were put down by
        those who do not know what fits; what a turn's runner has planned does."""
        if part.step not in (Step.POST, Step.EDIT):
            return False
        texts = await surface.plan(part.text, part.address)
        if len(texts) < 2:
            return False
        divide = partial(self._outbox.divide, part.id, texts, attempt=part.attempts)
        await self._unless_taken(divide, part)
        return True

    async def _sent(self, part: Part, receipt: Receipt) -> None:
        is_gone = part.step is Step.DELETE and receipt.external_id != KEPT
        proof = GONE if is_gone else receipt.external_id
        await self._record(part, PartState.SENT, receipt=proof or KEPT)

    async def _effect(self, surface: Surface, part: Part, shown: str) -> Effect | None:
        """What to ask of the platform; None where it cannot do it, and nobody waits for it."""
        can = surface.capabilities(part.address)
        match part.step:
            case Step.POST | Step.BUBBLE:
                return self._post(part, can)
            case Step.EDIT:
                return Edit(
                    key=part.id,
                    address=part.address,
                    receipt=part.receipt,
                    text=part.text,
                    shown=shown,
                )
            case Step.DELETE:
                is_there = part.receipt not in ("", KEPT)
                wanted = Delete(address=part.address, receipt=part.receipt)
                return wanted if is_there and can.can_delete else None
            case Step.UPLOAD:
                return await self._upload(surface, part)
            case Step.REACT:
                mark = React(address=part.address, external_id=part.reply_to, emoji=part.text)
                return mark if can.can_react and part.reply_to else None

    def _post(self, part: Part, can: Capabilities, text: str = "") -> Post:
        """Where there are no buttons, the words to choose from are named."""
        has_buttons = len(part.choices) <= can.choices_max
        named = "" if has_buttons else f"\n\n(Answer: {' / '.join(part.choices)})"
        return Post(
            key=part.id,
            address=part.address,
            text=(text or part.text) + named,
            reply_to=part.reply_to,
            choices=part.choices if has_buttons else (),
            after=part.after,
            is_repeat=part.attempts > 1,
        )

    async def _upload(self, surface: Surface, part: Part) -> Effect:
        """A file that cannot be sent is named to the person instead."""
        assert part.media is not None
        media = await self._media.get(part.media, principal=None)
        can = surface.capabilities(part.address)
        limit = can.upload_bytes_max
        if media.size > limit:
            why = "files cannot be sent here" if not limit else f"the limit is {limit:,} bytes"
            named = f"(The file {media.name}, {media.size:,} bytes, could not be sent: {why}.)"
            return self._post(part, can, named)
        return Upload(
            key=part.id,
            address=part.address,
            name=media.name,
            mime=media.mime,
            data=await self._media.read(part.media),
            caption=part.text,
            after=part.after,
            is_repeat=part.attempts > 1,
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
                surface.heed(error, part.address)
                await self._record(part, PartState.PENDING, error=error.message, due_in_s=wait_s)
            case Ambiguous():
                await self._settle_unknown(surface, part, error)
            case NotFound() if part.step is Step.EDIT:
                await self._post_instead(part, error.message)
            case _ if part.step in (Step.DELETE, Step.REACT):
                # What cannot be deleted stays, and a mark is no news: nobody waits for it.
                await self._record(part, PartState.SENT, receipt=KEPT, error=error.message)
            case _:
                log.warning("a part cannot be delivered", part=part.id, error=error.message)
                await self._record(part, PartState.FAILED, error=error.message)

    async def _settle_unknown(self, surface: Surface, part: Part, error: Ambiguous) -> None:
        can = surface.capabilities(part.address)
        if can.can_find and part.step not in _REPEATABLE:
            await self._reconcile(surface, part)
        elif can.takes_key or part.step in _REPEATABLE:
            wait_s = backoff_s(part.attempts)
            await self._record(part, PartState.PENDING, error=error.message, due_in_s=wait_s)
        else:
            await self._record(part, PartState.UNKNOWN, error=error.message)

    async def _post_instead(self, part: Part, error: str) -> None:
        post = partial(self._outbox.post_instead, part.id, error=error, attempt=part.attempts)
        await self._unless_taken(post, part)

    async def _record(
        self,
        part: Part,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
    ) -> None:
        """Once the platform was called, its answer must be written down, however long it takes."""
        record = partial(
            self._outbox.record,
            part.id,
            state,
            receipt=receipt,
            error=error,
            due_in_s=due_in_s,
            attempt=part.attempts,
        )
        await self._unless_taken(record, part)

    async def _unless_taken(self, write: Callable[[], Awaitable[None]], part: Part) -> None:
        try:
            await persist(write, clock=self._clock)
        except Conflict as conflict:
            # We were away for so long that another node has settled the part's fate.
            log.warning("a part is no longer ours", part=part.id, error=conflict.message)


def _follows_previews(part: Part) -> bool:
    """What only speaks of a turn does not: that may still run for long."""
    return part.is_of_turn and not part.is_ahead and part.step is not Step.BUBBLE
