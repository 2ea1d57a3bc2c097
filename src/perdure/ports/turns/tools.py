"""What an agent may call through us."""

from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat


class ToolCaller(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf a tool runs: every call lands in its own conversation. `is_shared`: others
    read along there, so nothing may come out that is the caller's alone."""

    principal: PrincipalId
    conversation: ConversationId
    session: SessionId
    turn: TurnId
    is_shared: bool = False


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    ending: CallEnding
    text: str


class Tools(Protocol):
    """The tools one agent has.

    Guarantees: `schemas` is JSON text in OpenAI's shape, the same bytes at each call, empty for no
    tools; `call` answers unknown names and bad arguments with a failed result that the model reads.
    Requires: the call has been journalled as started.
    Raises: nothing; a tool's failure is its result.
    After a crash: a call without a journalled result may have happened; `repeat` says whether it
    may be made again.
    """

    def schemas(self) -> str: ...

    def repeat(self, name: str) -> Repeat: ...

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult: ...
