"""Lists how turns and attempts end, and other closed sets of words that programs may rely on."""

from enum import StrEnum


class Outcome(StrEnum):
    """Says how a turn ended. A settled turn has exactly one outcome."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"


class Interruption(StrEnum):
    """Says why an attempt ended before its turn did. AGENT_LOST: the agent's program died while it
    worked on this turn alone; AGENT_LOST_BESIDE: on this one and on others."""

    CRASH = "crash"
    DRAIN_TIMEOUT = "drain_timeout"
    SHUTDOWN = "shutdown"
    RESTART = "restart"
    AGENT_LOST = "agent_lost"
    AGENT_LOST_BESIDE = "agent_lost_beside"

    @property
    def counts_towards_limit(self) -> bool:
        """Tell whether the turn itself may be the cause. That is so only if nobody planned the
        interruption, and no other turn may be the cause as well."""
        return self in _SUSPICIOUS


_SUSPICIOUS = frozenset({Interruption.CRASH, Interruption.DRAIN_TIMEOUT, Interruption.AGENT_LOST})


class NodeRequest(StrEnum):
    """Says what a node was asked for when it cut an attempt short. NOTHING: the node died, or the
    journal was written before this was recorded."""

    NOTHING = ""
    RESTART = "restart"
    STOP = "stop"


class StopReason(StrEnum):
    """Says why an agent's stream ended. The first four carry the provider's own finish marker."""

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
    CONTENT_REFUSED = "content_refused"
    INVALID_REQUEST = "invalid_request"
    PROMPT_FAILED = "prompt_failed"
    AGENT_ERROR = "agent_error"
    STEPS_EXCEEDED = "steps_exceeded"
    CALLS_REPEATED = "calls_repeated"
    ANSWER_EXCEEDED = "answer_exceeded"
    TURN_TIMEOUT = "turn_timeout"
    BUDGET = "budget"
    OUT_OF_DESCRIPTORS = "out_of_descriptors"

    @property
    def is_finish(self) -> bool:
        """Tell whether the provider itself marked the answer as finished."""
        return self in _FINISHES


_FINISHES = frozenset(
    {StopReason.STOP, StopReason.LENGTH, StopReason.CONTENT_FILTER, StopReason.TOOL_CALLS}
)


class Refused(StrEnum):
    """Says what a model's server has refused to take, by its own words. PICTURE: the pictures of
    the request. MESSAGE: something else in it."""

    PICTURE = "picture"
    MESSAGE = "message"


class Busy(StrEnum):
    """Says what a message does if a turn of its conversation is under way already."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    STEER = "steer"


class Repeat(StrEnum):
    """Says whether a tool call that was cut short may be made again. PURE calls change nothing.
    REPEATABLE calls may be made twice. ONCE calls must not be."""

    PURE = "pure"
    REPEATABLE = "repeatable"
    ONCE = "once"


class QuestionKind(StrEnum):
    """Says what a person is asked. APPROVAL: whether a tool call may run. QUESTION: something that
    the agent wants to know."""

    APPROVAL = "approval"
    QUESTION = "question"


class CallEnding(StrEnum):
    """Says how a tool call ended."""

    RETURNED = "returned"
    FAILED = "failed"
    UNKNOWN = "unknown"  # a `once` call that may have happened
    INTERRUPTED = "interrupted"  # safe to call again
    DENIED = "denied"  # it was not run: a rule, a person or a deadline decided so
