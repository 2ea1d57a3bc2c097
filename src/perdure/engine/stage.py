"""Shows turns while they are at work: that something is being typed, and the text as it grows.

Nothing here is truth. An act renders what is already durable, the latest wins, and at most one call
of it is under way; the final words wait for that call, and then take the bubbles' place. The only
thing written down is that a bubble exists, before its first words are posted, so that no crash can
leave a message behind that nobody knows of.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from perdure.domain.delivery import PartState, Streaming
from perdure.domain.errors import (
    Ambiguous,
    Conflict,
    Fenced,
    PerdureError,
    Permanent,
    Rejected,
    Transient,
)
from perdure.domain.events import (
    AssistantSaid,
    AttemptInterrupted,
    Recorded,
    ToolFinished,
    ToolStarted,
    TurnSettled,
)
from perdure.domain.ids import CallId, MessageId, PartId, TurnId
from perdure.domain.watching import Delta
from perdure.engine.feed import Feed, Item
from perdure.engine.pace import Rank
from perdure.engine.persist import persist
from perdure.engine.supervisor import Start, attempt
from perdure.engine.surfaces import Surface
from perdure.ports.adapter import Preview, Unsupported
from perdure.ports.clock import Clock
from perdure.ports.outbox import Bubble as Opened
from perdure.ports.outbox import Outbox
from perdure.ports.turns import Claimed

QUIET_S: Final = 20.0
DRAFT_S: Final = 20.0
STREAMS_MAX: Final = 10_000
log = structlog.get_logger("stage")


def _nobody() -> None:
    """Wakes no one: the next look at the rows finds them."""


class Bubble:
    """A message that grows."""

    def __init__(self, key: PartId, receipt: str = "") -> None:
        self.key = key
        self.receipt = receipt
        self.shown = ""
        self.shown_at = 0.0


class Stage:
    """`wake` is told when something was put into the outbox."""

    def __init__(
        self, outbox: Outbox, feed: Feed, *, clock: Clock, start: Start, is_shared: bool = False
    ) -> None:
        """`is_shared`: other nodes work on the same store, and may end a turn that runs here."""
        self.outbox = outbox
        self.is_shared = is_shared
        self.feed = feed
        self.clock = clock
        self.wake: Callable[[], None] = _nobody
        self._start = start
        self._acts: dict[TurnId, tuple[Act, asyncio.Task[None]]] = {}
        self._streams: OrderedDict[str, str] = OrderedDict()

    def begin(self, surface: Surface, claimed: Claimed) -> None:
        """From now on; the act ends with the turn, or with this attempt of it."""
        turn = claimed.lease.turn
        before = self._acts.get(turn)
        act = Act(self, surface, claimed, after=before[1] if before else None)
        task = self._start(act.run(), name=f"stage {turn}")
        self._acts[turn] = (act, task)
        task.add_done_callback(lambda _: self._ended(turn, act))

    def _ended(self, turn: TurnId, act: "Act") -> None:
        # From outside: cancelled before its first step, a task runs no `finally` of its own.
        self.feed.unsubscribe(act.subscription)
        found = self._acts.get(turn)
        if found is not None and found[0] is act:
            del self._acts[turn]

    def end(self, turn: TurnId) -> None:
        """Nobody works on the turn here any more, whether or not it is over."""
        found = self._acts.get(turn)
        if found is not None:
            found[0].end()

    def think(self, turn: TurnId) -> None:
        """The model of this turn is at work and says nothing yet."""
        found = self._acts.get(turn)
        if found is not None:
            found[0].think()

    def is_showing(self, turn: TurnId) -> bool:
        """Whether a call may be under way for this turn."""
        return turn in self._acts

    async def quiet(self, turn: TurnId, receipt: str) -> str:
        """Wait for the call that may be under way for this turn. What the native stream behind
        `receipt` was given so far, if it is one."""
        found = self._acts.get(turn)
        if found is not None:
            await asyncio.wait({found[1]}, timeout=QUIET_S)
            if not found[1].done():
                raise Transient("its last preview is still under way")
        return self._streams.pop(receipt, "")

    def streamed(self, receipt: str, shown: str) -> None:
        self._streams[receipt] = shown
        while len(self._streams) > STREAMS_MAX:
            self._streams.popitem(last=False)


class Act:
    """One attempt of one turn, as its people see it grow."""

    def __init__(
        self,
        stage: Stage,
        surface: Surface,
        claimed: Claimed,
        *,
        after: "asyncio.Task[None] | None",
    ) -> None:
        """`after` is the act of the attempt before, which may have a call under way."""
        self._stage = stage
        self._after = after
        self._surface = surface
        self._claimed = claimed
        self._address = claimed.address
        self._turn = claimed.lease.turn
        self._texts: dict[MessageId, str] = {}
        self._tools: dict[CallId, str] = {}
        self._names: dict[CallId, str] = {}
        self._bubbles: list[Bubble] = []
        self._ahead = 0  # parts
        self._not_before = 0.0
        self._typed_at = float("-inf")
        self._slowness = 1.0
        self._is_over = False
        self._has_ended = False
        self._is_thinking = False
        self._is_blind = False
        # Before the runner's first word.
        self.subscription = stage.feed.subscribe(claimed.lease.session)
        for recorded in claimed.events:
            self._see(recorded)
        self._is_over = False

    async def run(self) -> None:
        if self._after is not None:
            await asyncio.wait({self._after})
        while not self._is_over:
            wait_s = await self._show()
            await self._type()
            for item in await self.subscription.next(self._patience_s(wait_s)):
                self._see(item)
            if self.subscription.is_behind:
                # We have missed words: the final ones come by the outbox.
                self.subscription.is_behind = False
                self._is_blind = True
            self._is_over |= self._has_ended

    def think(self) -> None:
        self._is_thinking = True
        self.subscription.nudge()

    def end(self) -> None:
        self._has_ended = True
        self.subscription.nudge()

    def _see(self, item: Item) -> None:
        if isinstance(item, Delta):
            if item.turn == self._turn:
                self._is_thinking = False
                known = self._texts.get(item.message, "")
                self._texts[item.message] = known[: item.offset] + item.text
        elif item.turn == self._turn:
            self._see_fact(item)

    def _see_fact(self, recorded: Recorded) -> None:
        match recorded.event:
            case AssistantSaid() as said:
                self._texts[said.message] = said.text
                self._names.update({call.id: call.name for call in said.calls})
            case ToolStarted(call=call):
                self._tools[call] = self._names.get(call, "a tool")
            case ToolFinished(call=call):
                self._tools.pop(call, None)
            case AttemptInterrupted() | TurnSettled():
                self._is_over = True
            case _:
                pass

    def _patience_s(self, wait_s: float) -> float:
        typing_s = self._surface.capabilities(self._address).typing_s
        return min(wait_s, typing_s * 0.8) if typing_s else wait_s

    @property
    def _text(self) -> str:
        said = "\n\n".join(text for text in self._texts.values() if text.strip())
        display = self._surface.display
        if self._surface.streaming(self._address) in (Streaming.NATIVE, Streaming.APPEND):
            return said  # it only grows, so nothing may stand there for a while
        working = list(dict.fromkeys(self._tools.values())) if display.has_tools else []
        if self._is_thinking and display.has_reasoning:
            working.append("thinking")
        return f"{said}\n\n_{', '.join(working)} …_".lstrip() if working else said

    async def _show(self) -> float:
        """Show what is new, if the pace allows. How long to wait before looking again."""
        streaming = self._surface.streaming(self._address)
        left_s = self._not_before - self._stage.clock.monotonic_s()
        if streaming is Streaming.NONE or self._is_blind or not self._text:
            return QUIET_S
        if left_s > 0:
            return left_s
        try:
            return await self._preview(streaming)
        except Unsupported as error:
            log.info("this server cannot stream so", adapter=self._surface.name, why=error.message)
            self._surface.lower(streaming)
            self._bubbles.clear()
            return 0.01
        except Transient as error:
            return self._slow_down(error)
        except (Ambiguous, Permanent, Rejected, Conflict) as error:
            log.info("a preview was not shown", turn=self._turn, error=error.message)
            self._not_before = float("inf")
            return QUIET_S

    def _slow_down(self, error: Transient) -> float:
        """The server's wait holds for all that goes there; our own pace gets slower as well."""
        self._surface.heed(error, self._address)
        self._slowness = min(self._slowness * 2, 16)
        return self._pause(max(error.retry_after_s or 0, 1.0))

    def _pause(self, seconds: float) -> float:
        self._not_before = self._stage.clock.monotonic_s() + seconds
        return seconds

    async def _preview(self, streaming: Streaming) -> float:
        if streaming is Streaming.APPEND:
            return await self._go_ahead()
        pieces = await self._pieces(streaming)
        for index, piece in enumerate(pieces):
            bubble = self._bubbles[index] if index < len(self._bubbles) else None
            if bubble is not None and bubble.shown == piece and not self._fades(bubble, streaming):
                continue
            pace = self._surface.capabilities(self._address).pace
            wait_s = self._surface.pacer.wait_s(self._address.place, pace, Rank.PREVIEW)
            if wait_s:
                return self._pause(wait_s)
            if bubble is None:
                await self._open(index, piece, streaming)
            else:
                if self._stage.is_shared and streaming is not Streaming.DRAFT:
                    # Raises `Fenced` when another node has ended the turn: what we show now would
                    # take the mark from its final words.
                    await self._put_down(index, piece)
                await self._grow(bubble, piece, streaming)
            return self._pause(pace.preview_s * self._slowness)
        return DRAFT_S if streaming is Streaming.DRAFT else QUIET_S

    async def _go_ahead(self) -> float:
        """What stands whatever follows goes out like any other part."""
        parts = await self._surface.plan_ahead(self._text, self._address)
        if len(parts) > self._ahead:
            go_ahead = partial(self._stage.outbox.go_ahead, self._claimed.lease, parts)
            await persist(go_ahead, clock=self._stage.clock)
            self._ahead = len(parts)
            self._stage.wake()
        self._pause(self._surface.capabilities(self._address).pace.preview_s)
        return QUIET_S  # more text wakes us before that

    def _fades(self, bubble: Bubble, streaming: Streaming) -> bool:
        """A draft is gone after half a minute: one that does not change is shown again."""
        age_s = self._stage.clock.monotonic_s() - bubble.shown_at
        return streaming is Streaming.DRAFT and age_s >= DRAFT_S

    async def _pieces(self, streaming: Streaming) -> tuple[str, ...]:
        """What each bubble is to show. A native stream takes the text as it is, for it only grows;
        a draft is one, so it shows the end."""
        is_native = streaming is Streaming.NATIVE
        pieces = await self._surface.plan_bubbles(
            self._text, self._address, is_healed=not is_native
        )
        return pieces[-1:] if streaming is Streaming.DRAFT else pieces

    async def _open(self, index: int, piece: str, streaming: Streaming) -> None:
        """A bubble is written down before anyone can see it; a draft leaves nothing behind."""
        if streaming is Streaming.DRAFT:
            bubble = Bubble(PartId(f"{self._turn}.draft"))
            self._bubbles.append(bubble)
            await self._grow(bubble, piece, streaming)
            return
        opened = await self._put_down(index, piece)
        bubble = Bubble(opened.part.id, opened.receipt)
        if opened.is_lost:
            raise Ambiguous("nobody knows whether its bubble is there")
        if bubble.receipt:
            self._bubbles.append(bubble)
            await self._grow(bubble, piece, streaming)
            return
        preview = Preview(
            key=bubble.key,
            address=self._address,
            text=piece,
            streaming=streaming,
            reply_to=opened.part.reply_to,
        )
        # A row that stays attempting would hold up the final words for ever.
        await attempt(
            self._post(bubble, preview),
            partial(self._broken, bubble),
            foreseen=(PerdureError,),
        )
        await self._opened(bubble, piece, streaming)

    async def _opened(self, bubble: Bubble, piece: str, streaming: Streaming) -> None:
        if bubble.receipt:
            await self._record(bubble, PartState.SENT)
            bubble.shown = piece
            self._bubbles.append(bubble)
            self._remember(bubble, streaming)

    async def _post(self, bubble: Bubble, preview: Preview) -> None:
        try:
            bubble.receipt = await self._surface.adapter.preview(preview)
        except PerdureError as error:
            bubble.receipt = await self._found(bubble, error)
            if not bubble.receipt:
                await self._not_opened(bubble, error)
                raise

    async def _broken(self, bubble: Bubble, error: Exception) -> None:
        """An adapter broke in a way nobody foresaw: the bubble may be there, so it is shown."""
        self._is_blind = True
        await self._record(bubble, PartState.UNKNOWN, error=f"internal: {type(error).__name__}")

    async def _put_down(self, index: int, piece: str) -> Opened:
        """If the turn was settled after a first try whose answer was lost, the row is there and
        nobody would ever post it: the final words must not wait for it."""
        outbox, clock = self._stage.outbox, self._stage.clock
        try:
            return await persist(
                partial(outbox.bubble, self._claimed.lease, index, piece), clock=clock
            )
        except Fenced:
            await persist(partial(outbox.forget_bubble, self._turn, index), clock=clock)
            self._stage.wake()
            raise

    async def _found(self, bubble: Bubble, error: PerdureError) -> str:
        """The receipt of a bubble whose answer was lost, where the platform can be asked; it is
        shown as lost if the platform does not know."""
        can = self._surface.capabilities(self._address)
        if not isinstance(error, Ambiguous) or not can.can_find:
            return ""
        try:
            receipt = await self._surface.adapter.find(bubble.key, self._address)
        except (Transient, Ambiguous, Permanent, Rejected):
            return ""
        return receipt.external_id if receipt else ""

    async def _not_opened(self, bubble: Bubble, error: PerdureError) -> None:
        """What certainly was not shown may be tried again. Where nobody knows, a platform that
        takes our key is asked once more by the outbox; elsewhere it is shown as lost."""
        state = PartState.FAILED
        if isinstance(error, Ambiguous):
            takes_key = self._surface.capabilities(self._address).takes_key
            state = PartState.PENDING if takes_key else PartState.UNKNOWN
        await self._record(bubble, state, error=error.message)

    async def _record(self, bubble: Bubble, state: PartState, *, error: str = "") -> None:
        """Once the platform was called, its answer must be written down, however long it takes."""
        record = self._stage.outbox.record
        await persist(
            partial(record, bubble.key, state, receipt=bubble.receipt, error=error),
            clock=self._stage.clock,
        )
        self._stage.wake()  # the final words may wait behind it

    async def _grow(self, bubble: Bubble, piece: str, streaming: Streaming) -> None:
        preview = Preview(
            key=bubble.key,
            address=self._address,
            text=piece,
            streaming=streaming,
            receipt=bubble.receipt,
            shown=bubble.shown,
        )
        await self._surface.adapter.preview(preview)
        bubble.shown = piece
        bubble.shown_at = self._stage.clock.monotonic_s()
        self._remember(bubble, streaming)

    def _remember(self, bubble: Bubble, streaming: Streaming) -> None:
        if streaming is Streaming.NATIVE:
            self._stage.streamed(bubble.receipt, bubble.shown)

    async def _type(self) -> None:
        typing_s = self._surface.capabilities(self._address).typing_s
        now = self._stage.clock.monotonic_s()
        if not typing_s or self._is_over or now - self._typed_at < typing_s * 0.8:
            return
        pace = self._surface.capabilities(self._address).pace
        if self._surface.pacer.wait_s(self._address.place, pace, Rank.SIGNAL):
            return
        self._typed_at = now
        try:
            await self._surface.adapter.typing(self._address)
        except (Transient, Ambiguous, Permanent, Rejected) as error:
            log.debug("typing was not shown", error=error.message)
