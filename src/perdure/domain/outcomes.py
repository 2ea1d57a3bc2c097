"""How turns and attempts end: closed sets that programs may rely on."""

from enum import StrEnum


class Outcome(StrEnum):
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"


class Interruption(StrEnum):
    """Why an attempt ended before its turn did."""

    CRASH = "crash"
    DRAIN_TIMEOUT = "drain_timeout"
    SHUTDOWN = "shutdown"
    RESTART = "restart"

    @property
    def counts_towards_limit(self) -> bool:
        """Only endings that nobody planned suggest that the turn itself is the culprit."""
        return self in (Interruption.CRASH, Interruption.DRAIN_TIMEOUT)


class NodeRequest(StrEnum):
    """What a node was asked for when it cut an attempt short. NOTHING: it died, or the journal was
    written before this was recorded."""

    NOTHING = ""
    RESTART = "restart"
    STOP = "stop"


class StopReason(StrEnum):
    """Why an agent's stream ended. The first four carry the provider's own finish marker."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALLS = "tool_calls"
    PROVIDER_CUT = "provider_cut"
    PROVIDER_ERROR = "provider_error"
    PROVIDER_REJECTED = "provider_rejected"
    PROVIDER_TIMEOUT = "provider_timeout"
    PROVIDER_UNREACHABLE = "provider_unreachable"
    CONTEXT_EXCEEDED = "context_exceeded"
    INVALID_REQUEST = "invalid_request"
    AGENT_ERROR = "agent_error"
    STEPS_EXCEEDED = "steps_exceeded"
    ANSWER_EXCEEDED = "answer_exceeded"
    TURN_TIMEOUT = "turn_timeout"
    BUDGET = "budget"
    OUT_OF_DESCRIPTORS = "out_of_descriptors"

    @property
    def is_finish(self) -> bool:
        return self in _FINISHES


_FINISHES = frozenset(
    {StopReason.STOP, StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.TOOL_CALLS}
)


class Busy(StrEnum):
    """What a message does when the conversation already has a turn under way."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class Repeat(StrEnum):
    """May a tool call that was cut short be made again?"""

    PURE = "pure"
    REPEATABLE = "repeatable"
    ONCE = "once"


class CallEnding(StrEnum):
    """How a tool call ended."""

    RETURNED = "returned"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a `once` call that may have happened
    INTERRUPTED = "interrupted"  # safe to call again
