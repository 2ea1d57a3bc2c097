"""Defines what an agent yields while it works.

An agent's stream never raises: if something goes wrong, its last event says so. It ends with
exactly one `Stopped`, and only the provider's own finish marker makes that a success.
"""

import msgspec

from perdure.domain.journal.model.agent_state import AgentState
from perdure.domain.journal.model.thoughts import Thoughts
from perdure.domain.journal.model.timings import Timings
from perdure.domain.journal.model.usage import Usage
from perdure.domain.outcomes import Interruption, Refused, StopReason
from perdure.domain.tools.todo import TodoItem


class AgentText(msgspec.Struct, frozen=True):
    """Holds a piece of the answer's text."""

    text: str


class AgentFile(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a file for the person. Its place is where it came: between the text before it and the
    text after it."""

    name: str
    mime: str
    data: bytes


class Thinking(msgspec.Struct, frozen=True):
    """Says that the model is at work and has nothing to say yet. Its thoughts themselves are shown
    to nobody."""


class AgentThoughts(msgspec.Struct, frozen=True):
    """Holds the whole reasoning that led to the calls which follow, or to what the agent did next
    with a tool of its own. It is kept beside them, because
    the model may want it back in the next call of the turn."""

    thoughts: Thoughts


class AgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a whole tool call. The agent's wire has put its fragments together."""

    id: str
    name: str
    arguments: str


class AgentBegan(msgspec.Struct, frozen=True, kw_only=True):
    """Says that the agent has begun to use a tool of its own. People who watch are told."""

    id: str
    name: str
    arguments: str = ""


class AgentActed(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the agent has done with a tool of its own: the whole call, and what came of it. It
    is journalled at its place in the answer."""

    id: str
    name: str
    arguments: str
    text: str
    has_failed: bool = False


class AgentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what the agent plans to do. It takes the place of the plan before it."""

    items: tuple[TodoItem, ...]


class AgentKept(msgspec.Struct, frozen=True, kw_only=True):
    """Says that the agent keeps a session of its own under this name, and that it holds everything
    up to the end of this answer. A later turn may go on there."""

    session: str


class AgentTimed(msgspec.Struct, frozen=True, kw_only=True):
    """Holds where the time went since the turn's first call of the agent."""

    timings: Timings


class AgentTold(msgspec.Struct, frozen=True):
    """Holds what the agent has told of its own session, if that is new or has changed."""

    state: AgentState


class AgentSpent(msgspec.Struct, frozen=True):
    """Holds what the model call has used. Without `is_of_one_call` it is the sum of calls that the
    agent itself has made, which says nothing of how long one request was."""

    usage: Usage
    is_of_one_call: bool = True


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Ends the stream. `detail` says in words what happened, for the person and the log; it is
    empty if the answer was finished.

    The other fields describe a failure of which people have seen nothing. `may_retry`: the same
    call may be made again, and may succeed; it is never set once a part of an answer has come.
    `status` is the HTTP status by which the server has refused, or 0. `retry_after_s` is the wait
    that the server asked for, or None. If the request was longer than the model's window, `window`
    and `asked` are the tokens that the refusal names, or 0. `refused` says what the server did not
    take, if its words tell, and `words` what everybody may read about the refusal.

    With an `interruption` nothing is wrong with the turn, as far as anybody knows: what the agent
    worked with is gone. The attempt ends for that reason, and the turn goes on in the next one.
    """

    reason: StopReason
    detail: str = ""
    may_retry: bool = False
    status: int = 0
    retry_after_s: float | None = None
    window: int = 0
    asked: int = 0
    refused: Refused | None = None
    words: str = ""
    interruption: Interruption | None = None


AgentEvent = (
    AgentText
    | AgentFile
    | Thinking
    | AgentThoughts
    | AgentCall
    | AgentBegan
    | AgentActed
    | AgentPlan
    | AgentKept
    | AgentTimed
    | AgentTold
    | AgentSpent
    | Stopped
)
