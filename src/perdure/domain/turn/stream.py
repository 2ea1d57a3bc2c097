"""What an agent says while it works.

An agent's stream never raises: whatever goes wrong is its last event. It ends with exactly one
`Stopped`, and only the provider's own finish marker makes that a success.
"""

import msgspec

from perdure.domain.journal.events import Usage
from perdure.domain.outcomes import StopReason


class AgentText(msgspec.Struct, frozen=True):
    text: str


class AgentFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file for the person. It stands where it came: between the text before it and after it."""

    name: str
    mime: str
    data: bytes


class Thinking(msgspec.Struct, frozen=True):
    """The model is at work and says nothing yet. What it thinks is nobody's to read."""


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """A whole tool call: the fragments are put together by the agent's wire."""

    id: str
    name: str
    arguments: str


class AgentSpent(msgspec.Struct, frozen=True):
    usage: Usage


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """`detail` says in words what happened, for the person and the log; empty on a finish.

    The rest is about a failure of which nobody has seen anything. `may_retry`: the same call may
    simply be made again, and may succeed; it is never set once anything came of an answer. `status`
    is the HTTP status by which the server has refused, 0 if there was none. `retry_after_s` is the
    wait that the server asked for, None if it asked for none.
    """

    reason: StopReason
    detail: str = ""
    may_retry: bool = False
    status: int = 0
    retry_after_s: float | None = None


AgentEvent = AgentText | AgentFile | Thinking | AgentCall | AgentSpent | Stopped
