"""What one model call gave."""

import msgspec

from perdure.domain.events import SENT, ToolCall, TurnQueued, Usage
from perdure.domain.outcomes import Outcome, StopReason
from perdure.domain.stream import Stopped
from perdure.engine.roster import Seat
from perdure.engine.scribe import Scribe
from perdure.ports.turns import Settlement


class Step(msgspec.Struct, kw_only=True):
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

    def settlement(self, queued: TurnQueued, usage: Usage) -> Settlement:
        """How the turn ends if this was its last model call."""
        stopped = self.stopped
        is_reached = stopped.reason.is_finish or self.has_spoken
        is_asked = not queued.answer
        outcome = Outcome.DONE if stopped.reason.is_finish else Outcome.FAILED
        if stopped.reason is StopReason.BUDGET:
            outcome = Outcome.REFUSED
        return Settlement(
            outcome=outcome,
            reason=stopped.reason,
            detail=stopped.detail,
            agent=self.seat.name,
            origin=SENT if queued.kind == SENT else "",
            usage=usage,
            message=self.scribe.message,
            text=self.text,
            calls=self.calls,
            attachments=queued.files,
            acknowledgements=self.scribe.acknowledgements if is_reached and is_asked else (),
        )
