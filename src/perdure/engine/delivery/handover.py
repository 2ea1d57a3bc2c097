"""The one hand-over between the preview of a running turn and the delivery of its final words.

A turn's preview (`previews.py`) and the outbox (`outbox.py`) may both call the platform for the
same messages, and never at the same time:

1. Before a turn says its first word, the owner of its preview makes it `expect`ed. Until the
   hand-over only the preview calls the platform for what this attempt says.
2. The preview ends with the attempt. When its last call is over, it hands over what it has shown.
3. The outbox waits for that, and for nothing else, before it delivers what the turn says at last.

Which bubbles exist is not handed over: they are rows of the outbox, written before they were shown.
What is handed over lives in memory only. After a crash no call of ours is under way, and nobody
knows what a native stream was given, so the outbox finishes it as if it had been given nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from perdure.domain.errors import Transient
from perdure.domain.ids import TurnId

WAIT_S: Final = 20.0
# Turns whose final words nobody has delivered yet.
KEPT_MAX: Final = 10_000


class ShownPreview(msgspec.Struct, frozen=True):
    """What a preview has shown. `streams` are the native streams that it has left open: what each
    was given, by its receipt."""

    streams: Mapping[str, str] = MappingProxyType({})


class Handover:
    """The hand-over of one attempt. `is_over` is a future that ends with it."""

    def __init__(self, turn: TurnId) -> None:
        self.turn = turn
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Handovers:
    """Knows the turns whose previews are under way, and what those have shown that are over."""

    def __init__(self) -> None:
        self._expected: dict[TurnId, Handover] = {}
        self._shown: OrderedDict[TurnId, dict[str, str]] = OrderedDict()

    def expect(self, turn: TurnId) -> Handover:
        """Announce a preview of this turn. A later attempt takes the place of an earlier one, for
        whose end it waits itself."""
        handover = self._expected[turn] = Handover(turn)
        return handover

    def expected(self, turn: TurnId) -> Handover | None:
        """Return the hand-over of this turn that is still to come."""
        return self._expected.get(turn)

    def hand_over(self, handover: Handover, shown: ShownPreview) -> None:
        """End a preview: from now on the turn's messages are the outbox's."""
        turn = handover.turn
        if shown.streams:
            self._shown.setdefault(turn, {}).update(shown.streams)
            while len(self._shown) > KEPT_MAX:
                self._shown.popitem(last=False)
        if self._expected.get(turn) is handover:
            del self._expected[turn]
        if not handover.is_over.done():
            handover.is_over.set_result(None)

    async def receive(self, turn: TurnId, receipt: str) -> str:
        """Wait for the hand-over of this turn. Returns what the native stream behind `receipt` was
        given, if it is one. That is told once: after a try nobody knows what it holds."""
        expected = self._expected.get(turn)
        if expected is not None:
            await asyncio.wait({expected.is_over}, timeout=WAIT_S)
            if not expected.is_over.done():
                raise Transient("its last preview is still under way")
        streams = self._shown.get(turn, {})
        given = streams.pop(receipt, "")
        if not streams:
            self._shown.pop(turn, None)
        return given
