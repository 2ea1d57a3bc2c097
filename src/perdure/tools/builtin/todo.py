"""Implements the tool `todo`: the list of what the agent still has to do in this session.

The list is in the store, so it survives restarts and is there after older turns were summarised.
People see it as it changes. Each call brings the whole list, so it may be repeated.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.todo import ITEMS_MAX, TodoItem, todo_text
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.turns.todos import Todos
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, ToolOutput, arguments_of, schema_of

NAME: Final = "todo"
_DESCRIPTION: Final = (
    "Keep a list of what is still to be done in this conversation, for work of several steps. Give "
    "the whole list each time something changes; without a list, the present one is returned. The "
    "person sees it."
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    items: Annotated[
        tuple[TodoItem, ...] | UnsetType,
        Meta(description="the whole list, in order"),
    ] = UNSET


class TodoTool:
    """Keeps a session's list."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(self, todos: Todos) -> None:
        self._todos = todos

    def traits(self, arguments: str) -> CallTraits:
        return CallTraits(names=(NAME,), repeat=Repeat.REPEATABLE, permission=Permission.OWN)

    def kinds(self) -> Sequence[CallTraits]:
        return (self.traits("{}"),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str | ToolOutput:
        asked = arguments_of(call.arguments, _Arguments, tool=NAME)
        if asked.items is UNSET:
            return todo_text(await self._todos.get(caller.session))
        if len(asked.items) > ITEMS_MAX:
            return f"The list has {len(asked.items)} items; it may have {ITEMS_MAX}. Shorten it."
        recorded = await self._todos.put(caller.session, caller.turn, asked.items)
        return ToolOutput(text=todo_text(asked.items), recorded=tuple(recorded))
