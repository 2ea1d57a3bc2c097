"""Defines the one hand-over between the preview of a running turn and the delivery of its final
words.

A turn's preview (`previews.py`) and the outbox (`outbox.py`) both call the platform for the same
messages, but never at the same time:

1. Before a turn says its first word, the owner of its preview calls `expect`. From then on until
   the hand-over only the preview calls the platform for what this attempt says.
2. The preview ends with the attempt. When its last call is over, it hands over what it has shown.
3. The outbox waits for the hand-over, and for nothing else, before it delivers the final words.

Which bubbles exist is not handed over: they are rows of the outbox, written before they were shown.
What is handed over lives in memory only. After a crash no call of the dead process is under way,
and nobody knows what a native stream was given, so the outbox finishes the stream as if it had been
given nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from perdure.domain.errors import Transient
from perdure.domain.ids import TurnId

# How long the final words wait for a hand-over before they are put back and tried again later.
WAIT_S: Final = 20.0
# How many turns are remembered whose native streams the outbox has not finished yet.
KEPT_MAX: Final = 10_000


class ShownPreview(msgspec.Struct, frozen=True):
    """Holds what a preview has shown. `streams` are the native streams that it has left open: the
    text that each was given, by its receipt."""

    streams: Mapping[str, str] = MappingProxyType({})


class Handover:
    """Stands for the hand-over of one attempt. `is_over` is a future that is done once it has taken
    place."""

    def __init__(self, turn: TurnId) -> None:
        self.turn = turn
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Handovers:
    """Knows which turns have a preview under way, and what the previews that are over have
    shown."""

    def __init__(self) -> None:
        self._expected: dict[TurnId, Handover] = {}
        self._shown: OrderedDict[TurnId, dict[str, str]] = OrderedDict()

    def expect(self, turn: TurnId) -> Handover:
        """Announce a preview of this turn. A later attempt replaces an earlier one; its preview
        waits itself until the earlier one is over."""
        handover = self._expected[turn] = Handover(turn)
        return handover

    def expected(self, turn: TurnId) -> Handover | None:
        """Return the hand-over of this turn that has not taken place yet, or None."""
        return self._expected.get(turn)

    def hand_over(self, handover: Handover, shown: ShownPreview) -> None:
        """End a preview: from now on only the outbox calls the platform for the turn's
        messages."""
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
        """Wait for the hand-over of this turn. Returns the text that the native stream with this
        receipt was given, or an empty string if there is no such stream. Returns the text only
        once: after a first attempt to finish the stream, nobody knows what it holds. Raises
        `Transient` if the preview does not end in time."""
        expected = self._expected.get(turn)
        if expected is not None:
            await asyncio.wait({expected.is_over}, timeout=WAIT_S)
            if not expected.is_over.done():
                raise Transient("the preview of its turn is still under way")
        streams = self._shown.get(turn, {})
        given = streams.pop(receipt, "")
        if not streams:
            self._shown.pop(turn, None)
        return given
