"""Defines the port of the tools that an agent may call through the gateway."""

from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat


class ToolCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Says for whom a tool runs, and in which conversation. `is_shared`: other people read there
    too, so the result may contain nothing that is only the caller's."""

    principal: PrincipalId
    conversation: ConversationId
    session: SessionId
    turn: TurnId
    is_shared: bool = False


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how a call has ended, and the text that the model reads."""

    ending: CallEnding
    text: str


class Tools(Protocol):
    """Holds the tools of one agent, and calls them.

    Guarantees: those of each method.
    Requires: a call was journalled as started before it is made.
    Raises: nothing; the failure of a tool is its result.
    After a crash: a call without a journalled result may have happened; `repeat` says whether it
    may be made again.
    """

    def schemas(self) -> str:
        """Return the tools as JSON text in OpenAI's format, the same bytes at each call; an empty
        string if there are none."""

    def repeat(self, name: str) -> Repeat:
        """Return whether a call of this tool may be made again when its result is unknown."""

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        """Call a tool. An unknown name or bad arguments give a failed result that the model
        reads."""
