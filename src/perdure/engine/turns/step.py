"""Holds what one model call gave, and makes a settlement of the last one."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from perdure.domain.journal.events import (
    AssistantSaid,
    Recorded,
    ToolCall,
    TurnQueued,
)
from perdure.domain.journal.model.agent_state import UNTOLD, AgentState
from perdure.domain.journal.model.thoughts import Thoughts
from perdure.domain.journal.model.timings import UNTIMED, Timings
from perdure.domain.journal.model.usage import Usage
from perdure.domain.kinds import TurnKind
from perdure.domain.outcomes import StopReason
from perdure.domain.prompt.bounds import AnswerRoom, Bounds, utf8_size
from perdure.domain.prompt.refusals import Refusal
from perdure.domain.turn.next_action import Settle
from perdure.domain.turn.stream import Stopped
from perdure.engine.models.roster import Backend
from perdure.engine.turns.scribe import Scribe
from perdure.ports.turns.turns import Settlement


def room_left(bounds: Bounds, events: Iterable[Recorded]) -> AnswerRoom:
    """Return how much may still be said in a turn whose earlier attempts left these events."""
    said = [each.event for each in events if isinstance(each.event, AssistantSaid)]
    texts = sum(utf8_size(each.text) for each in said)
    thoughts = sum(utf8_size(each.thoughts.bodies) for each in said if each.thoughts)
    calls = [call for each in said for call in each.calls]
    return AnswerRoom(
        bounds=bounds,
        said_bytes=texts + thoughts + sum(utf8_size(call.name + call.arguments) for call in calls),
        said_calls=len(calls),
    )


@dataclass(slots=True)
class CallsAsked:
    """Collects what one answer asks for: tool calls, and the thoughts that led to them."""

    calls: list[ToolCall] = field(default_factory=list)
    thoughts: Thoughts | None = None


@dataclass(slots=True)
class KeptBeside:
    """Collects what an agent says of a session of its own."""

    session: str = ""
    timings: Timings = UNTIMED
    state: AgentState = UNTOLD


class ModelStep(msgspec.Struct, kw_only=True):
    """Holds what one model call gave. `text` belongs to the message that was being written when the
    call ended. `has_given` is True if the call gave files or used tools of the agent's own, which
    the journal holds already."""

    stopped: Stopped
    backend: Backend
    scribe: Scribe
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thoughts: Thoughts | None = None
    has_given: bool = False
    agent_session: str = ""
    timings: Timings = UNTIMED
    agent_state: AgentState = UNTOLD

    @property
    def has_spoken(self) -> bool:
        return bool(self.text or self.calls or self.has_given)

    @property
    def is_too_long(self) -> bool:
        """Tell whether the request was longer than the model's window, before the first word."""
        return self.stopped.reason is StopReason.CONTEXT_EXCEEDED and not self.has_spoken

    @property
    def is_withheld(self) -> bool:
        """Tell whether the server's filter has held back the whole answer."""
        return self.stopped.reason is StopReason.CONTENT_FILTER and not self.has_spoken

    @property
    def is_refused(self) -> bool:
        """Tell whether the server has refused what was asked, and not just this once."""
        return self.stopped.reason is StopReason.CONTENT_REFUSED or self.is_withheld

    @property
    def refusal(self) -> Refusal | None:
        """Return the refusal of what was asked, or None if the call ended in another way."""
        stopped = self.stopped
        refusal = Refusal(
            agent=self.backend.name,
            is_about_content=self.is_refused,
            status=stopped.status if stopped.reason is StopReason.PROVIDER_REJECTED else 0,
            refused=stopped.refused,
            has_vision=self.backend.has_vision,
        )
        return refusal if refusal.is_about_content or refusal.is_unexplained else None

    @property
    def is_final(self) -> bool:
        """Tell whether no other call may replace this one: it gave an answer or a piece of one, the
        answer was too long, the budget has no room, or the attempt ends with it."""
        reason = self.stopped.reason
        is_over = reason in (StopReason.BUDGET, StopReason.ANSWER_EXCEEDED)
        is_over |= self.stopped.interruption is not None
        is_answered = reason.is_finish and not self.is_withheld
        return is_answered or self.has_spoken or is_over

    def settlement(self, ending: Settle, queued: TurnQueued, usage: Usage) -> Settlement:
        """Return the settlement of a turn that this model call was the last of."""
        # Only a model that was asked, and that answered, has read the notes to acknowledge.
        is_reached = self.stopped.reason.is_finish or self.has_spoken
        is_asked = not queued.answer
        return Settlement(
            outcome=ending.outcome,
            reason=ending.reason,
            detail=ending.detail,
            agent=self.backend.name,
            origin=TurnKind.SENT if queued.kind == TurnKind.SENT else "",
            usage=usage,
            message=self.scribe.message,
            text=self.text,
            calls=self.calls,
            attachments=queued.files,
            agent_session=self.agent_session,
            timings=self.timings,
            agent_state=self.agent_state,
            acknowledgements=self.scribe.acknowledgements if is_reached and is_asked else (),
        )
