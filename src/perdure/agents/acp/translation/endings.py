"""Says how an answer has ended whose agent is a program of its own. It is pure."""

from typing import Final

from perdure.agents.acp.pool.seam import AgentLost, PromptFailed
from perdure.domain.errors import PerdureError, Transient
from perdure.domain.outcomes import Interruption, StopReason
from perdure.domain.turn.stream import Stopped

_FINISHES: Final = {
    "end_turn": StopReason.STOP,
    "max_tokens": StopReason.LENGTH,
    "refusal": StopReason.CONTENT_FILTER,
}
_REASON_MAX: Final = 100
_TOO_MANY: Final = 429
# The codes of the protocol itself for what is wrong on its side; they say nothing of the request.
_BAD_REQUEST: Final = range(400, 429)


def ended(reason: str) -> Stopped:
    """Return how an answer ended that the agent has finished for this reason."""
    if reason in _FINISHES:
        return Stopped(reason=_FINISHES[reason])
    if reason == "cancelled":
        # Nobody here has cancelled it: then nobody would listen any more.
        detail = "the agent's program has cancelled the answer by itself; send the message again"
        return Stopped(reason=StopReason.PROVIDER_CUT, detail=detail)
    if reason == "max_turn_requests":
        detail = "the agent's program has asked its model as often as it may in one turn"
        return Stopped(reason=StopReason.STEPS_EXCEEDED, detail=detail)
    # It has answered, and for whatever reason it stopped, nothing more will come.
    return Stopped(
        reason=StopReason.STOP, detail=f"the agent calls its end {reason[:_REASON_MAX]!r}"
    )


def failed(error: PromptFailed, *, was_heard: bool) -> Stopped:
    """Return how an answer ended that the agent has ended with an error. Some agents use the status
    of their model's server as its code."""
    status = error.code if 400 <= error.code <= 599 else 0
    detail = f"the agent's program failed: {error.words or error.code}"
    if status in _BAD_REQUEST:
        return Stopped(reason=StopReason.PROVIDER_REJECTED, detail=detail, status=status)
    return Stopped(
        reason=StopReason.PROVIDER_ERROR,
        detail=detail,
        status=status,
        may_retry=bool(status) and not was_heard,
    )


def lost(error: AgentLost) -> Stopped:
    """Return how an answer ended whose process has died. Nobody knows how far it came."""
    beside = Interruption.AGENT_LOST_BESIDE
    return Stopped(
        reason=StopReason.PROVIDER_CUT,
        detail=error.message,
        interruption=Interruption.AGENT_LOST if error.was_alone else beside,
    )


def stale(error: PerdureError, *, was_heard: bool) -> Stopped:
    """Return how an answer ended that was not sent, or not followed to its end."""
    is_unsent = isinstance(error, Transient) and not was_heard
    reason = StopReason.PROVIDER_UNREACHABLE if is_unsent else StopReason.PROVIDER_CUT
    return Stopped(reason=reason, detail=error.message, may_retry=is_unsent)


def stuck(silence_s: float) -> Stopped:
    """Return how an answer ended whose agent said nothing any more."""
    detail = f"the agent's program said nothing for {silence_s:g} s, so its answer was given up"
    return Stopped(reason=StopReason.PROVIDER_TIMEOUT, detail=detail)


def unopened(error: PerdureError) -> Stopped:
    """Return how an answer ended for which no session could be had."""
    if isinstance(error, Transient):
        return Stopped(
            reason=StopReason.PROVIDER_UNREACHABLE,
            detail=error.message,
            may_retry=True,
            retry_after_s=error.retry_after_s,
        )
    return Stopped(reason=StopReason.AGENT_ERROR, detail=error.message)
