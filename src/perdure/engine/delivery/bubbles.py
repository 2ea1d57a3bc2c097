"""Posts and edits the messages in which a running turn's text grows.

Only the existence of a bubble is stored, before its first words are posted: if the process dies
between, the row is found and no unknown message stays behind. If the answer of the platform is
lost, the bubble is left in doubt: the outbox finds out whether it is there, and until then
everything behind it in the line waits.
"""

import math
from functools import partial

import msgspec

from perdure.domain.delivery import PartState, Streaming
from perdure.domain.errors import Ambiguous, Fenced, PerdureError, Permanent
from perdure.domain.ids import PartId
from perdure.engine.delivery.surfaces import Surface
from perdure.engine.foundation.leases import Lease, NodeLease
from perdure.engine.foundation.persist import persist
from perdure.engine.foundation.supervisor import attempt
from perdure.engine.foundation.wakes import Bus
from perdure.ports.delivery.outbox import Bubble as Opened
from perdure.ports.delivery.outbox import Outbox
from perdure.ports.platform.adapter import Preview
from perdure.ports.system.clock import Clock
from perdure.ports.turns.turns import Claimed, Turns
from perdure.ports.turns.wakes import Topic


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what all previews share. `is_shared`: other nodes work on the same store, and may end a
    turn that runs here. People are told that a turn goes on when nothing of it was shown for
    `still_at_work_s`; 0 means never."""

    outbox: Outbox
    turns: Turns
    clock: Clock
    bus: Bus
    lease: NodeLease
    is_shared: bool = False
    still_at_work_s: float = 0


class GrowingBubble:
    """Holds a message that grows: its receipt, and the text it shows now. `attempt` is the attempt
    of the part that has posted it."""

    def __init__(self, key: PartId, receipt: str = "", *, attempt: int = 0) -> None:
        self.key = key
        self.receipt = receipt
        self.attempt = attempt
        self.shown = ""
        self.shown_at = 0.0


class Bubbles:
    """Holds the bubbles of one attempt. `is_broken`: the adapter failed with an unexpected
    exception. `streams` are the native streams among the bubbles: the text that each was given so
    far, by its receipt. Something new was shown last at `changed_s`."""

    def __init__(self, means: Means, surface: Surface, claimed: Claimed) -> None:
        self.known: list[GrowingBubble] = []
        self.is_broken = False
        self.streams: dict[str, str] = {}
        self.changed_s = -math.inf
        self._means = means
        self._surface = surface
        self._address = claimed.address
        self._lease = claimed.lease

    async def open(self, index: int, piece: str, streaming: Streaming) -> None:
        """Show one more bubble, unless something before it in the line is still on its way. A draft
        leaves no message behind, so it has no row. Raises `Permanent` if nobody will ever know
        whether an earlier try has shown this bubble."""
        lease = self._means.lease.take()
        if streaming is Streaming.DRAFT:
            draft = GrowingBubble(PartId(f"{self._lease.turn}.draft"))
            self.known.append(draft)
            await self._grow(draft, piece, streaming, lease)
            return
        opened = await self.put_down(index, piece)
        if opened is None:
            return
        if opened.is_lost:
            raise Permanent("nobody knows whether this bubble was shown")
        bubble = GrowingBubble(opened.part.id, opened.receipt, attempt=opened.part.attempts)
        if bubble.receipt:
            self.known.append(bubble)
            await self._grow(bubble, piece, streaming, lease)
            return
        if not lease.may_act:
            # The lease ran out before the platform was called, so this process has shown nothing;
            # another one may be looking for the bubble already.
            await self._record(bubble, PartState.FAILED)
            return
        preview = Preview(
            key=bubble.key,
            address=self._address,
            text=piece,
            streaming=streaming,
            reply_to=opened.part.reply_to,
        )
        # Whatever the adapter raises is recorded: a row that stays attempting would hold up the
        # final words.
        await attempt(
            self._post(bubble, preview),
            partial(self._broken, bubble),
            foreseen=(PerdureError,),
        )
        await self._opened(bubble, piece, streaming)

    async def _opened(self, bubble: GrowingBubble, piece: str, streaming: Streaming) -> None:
        if bubble.receipt:
            await self._record(bubble, PartState.SENT)
            bubble.shown = piece
            self.changed_s = self._means.clock.monotonic_s()
            self.known.append(bubble)
            self._remember(bubble, streaming)

    async def _post(self, bubble: GrowingBubble, preview: Preview) -> None:
        try:
            bubble.receipt = await self._surface.adapter.preview(preview)
        except Ambiguous as error:
            await self._surface.heed(error, self._address.place)
            await self._doubt(bubble, error)
        except PerdureError as error:
            # All other errors mean that it was not shown, so it may be tried again.
            await self._record(bubble, PartState.FAILED, error=error.message)
            raise

    async def _broken(self, bubble: GrowingBubble, error: Exception) -> None:
        """Record a bubble as unknown after an unexpected exception: it may be there."""
        self.is_broken = True
        await self._record(bubble, PartState.UNKNOWN, error=f"internal: {type(error).__name__}")

    async def put_down(self, index: int, piece: str) -> Opened | None:
        """Store that a bubble exists, and return it. Returns None while something before it in the
        line is on its way. Raises `Fenced` if the turn is not this node's any more. In that case a
        first write, whose answer was lost, may have stored a row that nobody would ever post. It is
        recorded as not shown, so that the final words do not wait for it."""
        outbox, clock = self._means.outbox, self._means.clock
        try:
            return await persist(partial(outbox.bubble, self._lease, index, piece), clock=clock)
        except Fenced:
            forget = partial(outbox.forget_bubble, self._lease.turn, index)
            await persist(forget, clock=clock)
            self._means.bus.publish(Topic.OUTBOX)
            raise

    async def _doubt(self, bubble: GrowingBubble, error: Ambiguous) -> None:
        doubt = partial(
            self._means.outbox.doubt,
            bubble.key,
            error=error.message,
            due_in_s=0,
            attempt=bubble.attempt,
        )
        await persist(doubt, clock=self._means.clock)
        self._means.bus.publish(Topic.DOUBTED, self._surface.name)
        self._means.bus.publish(Topic.OUTBOX)

    async def _record(self, bubble: GrowingBubble, state: PartState, *, error: str = "") -> None:
        """Record whether a bubble was shown, and repeat that until it is durable."""
        record = self._means.outbox.record
        await persist(
            partial(
                record,
                bubble.key,
                state,
                receipt=bubble.receipt,
                error=error,
                attempt=bubble.attempt,
            ),
            clock=self._means.clock,
        )
        self._means.bus.publish(Topic.LINES, self._address)
        self._means.bus.publish(Topic.OUTBOX)  # the final words may wait behind it

    async def go_on(
        self, bubble: GrowingBubble, index: int, piece: str, streaming: Streaming
    ) -> None:
        """Show more text in a bubble that this attempt has opened."""
        lease = self._means.lease.take()
        if self._means.is_shared and streaming is not Streaming.DRAFT:
            # Raises `Fenced` if another node has ended the turn. Its final words may be shown
            # already, with a mark under them, and this preview would overwrite both.
            await self.put_down(index, piece)
        await self._grow(bubble, piece, streaming, lease)

    async def _grow(
        self, bubble: GrowingBubble, piece: str, streaming: Streaming, lease: Lease
    ) -> None:
        """Show more text in a bubble, unless the lease has run out: then another process may show
        something there by now."""
        if not lease.may_act:
            return
        preview = Preview(
            key=bubble.key,
            address=self._address,
            text=piece,
            streaming=streaming,
            receipt=bubble.receipt,
            shown=bubble.shown,
        )
        await self._surface.adapter.preview(preview)
        is_new = bubble.shown != piece
        bubble.shown = piece
        bubble.shown_at = self._means.clock.monotonic_s()
        if is_new:
            self.changed_s = bubble.shown_at
        self._remember(bubble, streaming)

    def _remember(self, bubble: GrowingBubble, streaming: Streaming) -> None:
        if streaming is Streaming.NATIVE:
            self.streams[bubble.receipt] = bubble.shown
