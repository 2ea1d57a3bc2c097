"""Implements the tool `memory`: what an agent remembers about the person it serves.

The person comes from the caller, never from the arguments. In a shared conversation, only memories
of that conversation are shown, and new ones are saved for it alone. A memory is named by its id and
not by its position in a list, so every action may be repeated: the second time finds it done.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal, assert_never

from msgspec import Meta

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.people.memory import TEXT_MAX, MemoryId
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.people.memory import Memories
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "memory"
_DESCRIPTION: Final = (
    "Remember facts about the person you talk with, across conversations. Save lasting facts and "
    "wishes, one short sentence each; nothing passing, no secrets. You are told what is remembered "
    "when a conversation goes on; list shows it with ids, which edit and forget need."
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[
        Literal["list", "save", "edit", "forget"],
        Meta(description="list what is remembered, save a fact, edit one, or forget one"),
    ]
    text: Annotated[
        str, Meta(description=f"save, edit: the fact, at most {TEXT_MAX} characters")
    ] = ""
    id: Annotated[str, Meta(description="edit, forget: which one, as list shows it")] = ""
    scope: Annotated[
        Literal["everywhere", "here"],
        Meta(description="save: everywhere, or here for this conversation only"),
    ] = "everywhere"


class MemoryTool:
    """Serves the `memory` tool, which lists, saves, edits and forgets memories."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def traits(self, arguments: str) -> CallTraits:
        return CallTraits(names=(NAME,), repeat=Repeat.REPEATABLE, permission=Permission.OWN)

    def kinds(self) -> Sequence[CallTraits]:
        return (self.traits("{}"),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked = arguments_of(call.arguments, _Arguments, tool=NAME)
        match asked.action:
            case "list":
                return await self._list(caller)
            case "save":
                return await self._save(asked, call, caller)
            case "edit":
                return await self._edit(asked, caller)
            case "forget":
                return await self._forget(asked, caller)
            case _:
                assert_never(asked.action)

    async def _list(self, caller: ToolCaller) -> str:
        known = await self._memories.recall(
            principal=caller.principal, conversation=caller.conversation
        )
        lines = [
            f"{memory.id}: {memory.text}{' (this conversation only)' if memory.is_here else ''}"
            for memory in known
            if memory.is_here or not caller.is_shared
        ]
        return "\n".join(lines) or "Nothing is remembered about this person yet."

    async def _save(self, asked: _Arguments, call: ToolCall, caller: ToolCaller) -> str:
        is_here = asked.scope == "here" or caller.is_shared
        memory = await self._memories.add(
            _needed(asked.text, "text", "save"),
            # A repeat of the same call after a crash finds the memory by this key, and adds no
            # second one.
            key=call.id,
            principal=caller.principal,
            conversation=caller.conversation if is_here else None,
        )
        return f"Remembered as {memory.id}."

    async def _edit(self, asked: _Arguments, caller: ToolCaller) -> str:
        memory = await self._memories.edit(
            MemoryId(_needed(asked.id, "id", "edit")),
            _needed(asked.text, "text", "edit"),
            principal=caller.principal,
            conversation=caller.conversation,
        )
        return f"Corrected {memory.id}."

    async def _forget(self, asked: _Arguments, caller: ToolCaller) -> str:
        memory = MemoryId(_needed(asked.id, "id", "forget"))
        try:
            await self._memories.forget(
                memory, principal=caller.principal, conversation=caller.conversation
            )
        except NotFound:
            return f"Nothing is remembered as {memory}; list shows what is."
        return f"Forgot {memory}."


def _needed(value: str, key: str, action: str) -> str:
    """Return an argument. Raises `Rejected` if it is missing."""
    if not value:
        raise Rejected(f"{action} needs {key}; call again with it")
    return value
