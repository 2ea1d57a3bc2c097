"""What one model call gave."""

from collections.abc import Iterable

import msgspec

from perdure.domain.journal.events import AssistantSaid, Recorded, ToolCall, TurnQueued, Usage
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import AnswerRoom, Bounds, size_of
from perdure.domain.turn.next_action import Settle
from perdure.domain.turn.stream import Stopped
from perdure.engine.models.roster import Seat
from perdure.engine.turns.scribe import Scribe
from perdure.ports.turns.turns import Settlement


def room_left(bounds: Bounds, events: Iterable[Recorded]) -> AnswerRoom:
    """Return how much may be said in a turn of which earlier attempts have left these events."""
    said = [each.event for each in events if isinstance(each.event, AssistantSaid)]
    texts = sum(size_of(each.text) for each in said)
    calls = [call for each in said for call in each.calls]
    return AnswerRoom(
        bounds=bounds,
        said_bytes=texts + sum(size_of(call.name + call.arguments) for call in calls),
        said_calls=len(calls),
    )


class ModelStep(msgspec.Struct, kw_only=True):
    """`text` is of the message that was being written at the end; `has_given`: files came before
    it, and are said already."""

    stopped: Stopped
    seat: Seat
    scribe: Scribe
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    has_given: bool = False

    @property
    def has_spoken(self) -> bool:
        return bool(self.text or self.calls or self.has_given)

    @property
    def is_final(self) -> bool:
        """Whether nobody else is to be asked: there is an answer, a piece of one, more of it than
        may be, or no money."""
        reason = self.stopped.reason
        is_over = reason in (StopReason.BUDGET, StopReason.ANSWER_EXCEEDED)
        return reason.is_finish or self.has_spoken or is_over

    def settlement(self, ending: Settle, queued: TurnQueued, usage: Usage) -> Settlement:
        """Return how the turn ends so, if this was its last model call."""
        is_reached = self.stopped.reason.is_finish or self.has_spoken
        is_asked = not queued.answer
        return Settlement(
            outcome=ending.outcome,
            reason=ending.reason,
            detail=ending.detail,
            agent=self.seat.name,
            origin=TurnKind.SENT if queued.kind == TurnKind.SENT else "",
            usage=usage,
            message=self.scribe.message,
            text=self.text,
            calls=self.calls,
            attachments=queued.files,
            acknowledgements=self.scribe.acknowledgements if is_reached and is_asked else (),
        )
