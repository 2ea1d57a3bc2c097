"""Finds out whether parts have arrived whose answer was lost, because the connection broke or
because the process that sent them died.

Edits, deletions and reactions are repeated. If the platform still knows the part's key, the part is
sent again under it. If the platform can be asked, it is asked until it can tell; meanwhile the part
stays in doubt. Only if nothing can be known the part becomes unknown: it is shown to the operators
and never sent again blindly.
"""

import math
from functools import partial
from typing import Final

from perdure.domain.content.speech import SPEECH_NAME
from perdure.domain.delivery import (
    Capabilities,
    DeliveryStep,
    PartState,
    backoff_s,
    with_choices,
    without_promise,
)
from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.waits import is_ahead
from perdure.engine.delivery.attempts import AttemptRecords
from perdure.engine.delivery.surfaces import Surface, Surfaces
from perdure.engine.foundation.supervisor import attempt
from perdure.engine.foundation.wakes import Bus
from perdure.ports.delivery.outbox import Outbox, Part, Rivals
from perdure.ports.platform.adapter import Receipt, Sought
from perdure.ports.records.media import MediaLibrary
from perdure.ports.system.clock import Clock
from perdure.ports.turns.wakes import Topic

# How long until stranded parts are looked for again.
RECOVER_S: Final = 5.0
# For how long the platform is asked about a bubble in doubt. Final words wait behind a bubble, so
# it is given up sooner than they are.
BUBBLE_S: Final = 60.0
# How long to wait while a part with the same words is being sent.
TWIN_S: Final = 1.0
# A part that is not found may still arrive for so long after it was sent.
LATE_S: Final = 10.0
# How often a repeatable part is tried on an adapter that fails unexpectedly.
BROKEN_TRIES_MAX: Final = 3
REPEATABLE: Final = (DeliveryStep.EDIT, DeliveryStep.DELETE, DeliveryStep.REACT)
_DIED_SENDING: Final = "the gateway died while sending; it may have arrived"


class Reconciler:
    """Settles the fate of parts of unknown fate. `is_shared`: other nodes work on the same store,
    and may die at any time."""

    def __init__(  # noqa: PLR0913 - what it takes to find out
        self,
        outbox: Outbox,
        surfaces: Surfaces,
        tries: AttemptRecords,
        *,
        media: MediaLibrary,
        clock: Clock,
        expire_s: int,
        bus: Bus,
        is_shared: bool,
    ) -> None:
        self._outbox = outbox
        self._surfaces = surfaces
        self._tries = tries
        self._media = media
        self._clock = clock
        self._expire_s = expire_s
        self._is_shared = is_shared
        self._look_at: dict[str, float] = {}
        self._asking: set[str] = set()
        bus.listen(Topic.DOUBTED, lambda adapter: self._look_again(str(adapter), 0))

    def due(self) -> list[Surface]:
        """Return the platforms on which there may be parts to ask about. The caller must call
        `recover` for each of them. If other nodes share the store, a platform is due again after a
        few seconds: a node may die at any time, and its lease outlives it for a while."""
        now_s = self._clock.monotonic_s()
        due = [
            surface
            for surface in self._surfaces
            if surface.is_open
            and surface.name not in self._asking
            and now_s >= self._look_at.get(surface.name, 0)
        ]
        for surface in due:
            self._look_at[surface.name] = now_s + RECOVER_S if self._is_shared else math.inf
        return due

    async def recover(self, surface: Surface) -> None:
        """Settle the fate of parts that a dead process left attempting, and of those in doubt
        whose time has come. Raises `Transient` or `Ambiguous` if the store cannot be read or
        written now."""
        self._asking.add(surface.name)
        try:
            stranded = await self._outbox.stranded(adapter=surface.name)
            for part in stranded:
                await attempt(
                    self._reconcile(surface, part, _DIED_SENDING),
                    partial(self.unforeseen, part),
                    foreseen=(Transient, Ambiguous),
                )
        except (Transient, Ambiguous):
            self._look_again(surface.name, RECOVER_S)
            raise
        finally:
            self._asking.discard(surface.name)
        if stranded:
            self._look_again(surface.name, RECOVER_S)

    def _look_again(self, adapter: str, wait_s: float) -> None:
        look_at = self._clock.monotonic_s() + wait_s
        self._look_at[adapter] = min(look_at, self._look_at.get(adapter, math.inf))

    async def unforeseen(self, part: Part, error: Exception) -> None:
        """Record that the adapter failed with an unexpected exception. The part may have arrived,
        so it becomes unknown; one that may be repeated is tried a few times more first."""
        why = f"internal: {type(error).__name__}"
        if part.step in REPEATABLE and part.attempts < BROKEN_TRIES_MAX:
            wait_s = backoff_s(part.attempts)
            await self._tries.record(part, PartState.PENDING, error=why, due_in_s=wait_s)
        else:
            await self._tries.record(part, PartState.UNKNOWN, error=why)

    async def lost(self, surface: Surface, part: Part, error: Ambiguous) -> None:
        """Settle the fate of a part that was just sent and whose answer was lost."""
        wait_s = backoff_s(part.attempts)
        await self._reconcile(surface, part, error.message, wait_s=wait_s)

    async def _reconcile(
        self, surface: Surface, part: Part, why: str, *, wait_s: float = 0
    ) -> None:
        can = surface.capabilities(part.address)
        may_repeat = part.step in REPEATABLE or self._is_key_known(part, can)
        if may_repeat:  # repeating the key cannot show it twice
            await self._tries.record(part, PartState.PENDING, error=why, due_in_s=wait_s)
        elif can.can_find:
            await self._ask(surface, part)
        else:
            await self._tries.record(part, PartState.UNKNOWN, error=without_promise(why))

    def _is_key_known(self, part: Part, can: Capabilities) -> bool:
        """Tell whether the platform still remembers the key of the last attempt. If the clock was
        set back since, nobody knows how long ago that was, so only a platform that never forgets
        counts."""
        now_ms = self._clock.now_ms()
        is_recent = now_ms - part.changed_at < can.key_s * 1000
        is_known = math.isinf(can.key_s) or not is_ahead(part.changed_at, now_ms)
        return can.takes_key and is_recent and is_known

    async def _ask(self, surface: Surface, part: Part) -> None:
        held_s = surface.pacer.held_s(part.address.place)
        rivals = await self._outbox.rivals(part)
        if held_s or rivals.has_twin:
            # If a part with the same words is being sent, a message that is found may be that one.
            same = "a part with the same text is being sent"
            why = "the platform has asked for a pause" if held_s else same
            await self._wait(surface, part, why, held_s or TWIN_S)
            return
        try:
            receipt = await surface.adapter.find(await self._sought(surface, part, rivals))
        except Transient as error:
            await surface.heed(error, part.address.place)
            wait_s = error.retry_after_s or backoff_s(part.attempts)
            await self._wait(surface, part, error.message, wait_s)
        except (Ambiguous, Permanent, Rejected) as error:
            await self._give_up(part, error)
        else:
            await self._found(surface, part, receipt)

    async def _sought(self, surface: Surface, part: Part, rivals: Rivals) -> Sought:
        file = await self._media.get(part.media, principal=None) if part.media else None
        can = surface.capabilities(part.address)
        is_explained = part.question is not None
        text = with_choices(part.text, part.choices, can, is_explained=is_explained)
        return Sought(
            key=part.id,
            address=part.address,
            text="" if part.is_spoken else text,
            name=SPEECH_NAME if part.is_spoken else file.name if file else "",
            tried_at=part.changed_at,
            owned=rivals.receipts,
        )

    async def _found(self, surface: Surface, part: Part, receipt: Receipt | None) -> None:
        """Record the answer of the platform. A part that was not found is sent again only after a
        while: a call that hung may take effect late, and the part would show twice."""
        age_s = (self._clock.now_ms() - part.changed_at) / 1000
        if receipt is not None:
            await self._tries.record(part, PartState.SENT, receipt=receipt.external_id)
        elif 0 <= age_s < LATE_S:
            await self._wait(surface, part, "it may still be on its way", LATE_S - age_s)
        else:
            await self._tries.record(part, PartState.PENDING)

    async def _wait(self, surface: Surface, part: Part, why: str, wait_s: float) -> None:
        """Leave the part in doubt and ask again later. Gives up once the part is too old."""
        patience_s = BUBBLE_S if part.step is DeliveryStep.BUBBLE else self._expire_s
        if self._clock.now_ms() - part.created_at > patience_s * 1000:
            await self._give_up(part, Transient(why))
            return
        await self._tries.doubt(part, error=why, due_in_s=wait_s)
        self._look_again(surface.name, wait_s)

    async def _give_up(self, part: Part, error: PerdureError) -> None:
        text = f"nobody could tell whether it arrived: {without_promise(error.message)}"
        await self._tries.record(part, PartState.UNKNOWN, error=text)
