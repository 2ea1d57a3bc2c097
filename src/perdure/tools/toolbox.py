"""Holds the tools of one agent, by name.

Every call gets a result that the model can act on: an unknown tool is answered with the known ones,
arguments that are not JSON with what they must be, and a failure with its message. A long result is
cut, because it stays in the conversation and is paid for in every later request.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from perdure.domain.errors import Ambiguous, PerdureError, Transient
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import CallEnding, Repeat
from perdure.domain.text import storable
from perdure.ports.turns.tools import ToolCaller, ToolResult
from perdure.tools.tool import Tool

# The most characters of a result that the model is given.
RESULT_MAX: Final = 20_000
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Toolbox:
    """Implements the `Tools` port. Without tools, it serves an agent that has none."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}
        assert len(self._tools) == len(tools), "two tools of one name"
        self._schemas = f"[{','.join(tool.schema for tool in tools)}]" if tools else ""

    def schemas(self) -> str:
        return self._schemas

    def repeat(self, name: str) -> Repeat:
        tool = self._tools.get(name)
        return tool.repeat if tool else Repeat.PURE

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return _failed(self._unknown(call.name))
        problem = _problem(call)
        if problem:
            return _failed(problem)
        try:
            text = await tool.call(call, caller)
        except PerdureError as error:
            return _failed(_told(error, tool.repeat))
        return ToolResult(ending=CallEnding.RETURNED, text=_cut(text))

    def _unknown(self, name: str) -> str:
        if not self._tools:
            return f"there is no tool {name[:100]!r}, and no other; answer without tools"
        near = get_close_matches(name, self._tools, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"there is no tool {name[:100]!r}{hint}; you have: {', '.join(self._tools)}"


def _problem(call: ToolCall) -> str:
    """Return what is wrong with a call's arguments, or an empty string."""
    if not call.arguments.strip():
        return ""
    try:
        _object.decode(call.arguments)
    except msgspec.ValidationError:
        return "the arguments must be a JSON object; call again with one"
    except (msgspec.DecodeError, RecursionError) as error:
        return f"the arguments are not valid JSON ({error}); call again with a JSON object"
    return ""


def _told(error: PerdureError, repeat: Repeat) -> str:
    """Return the text for a failure. It says whether the call may be repeated, which depends on
    what may have happened already."""
    if isinstance(error, Ambiguous) and repeat is Repeat.ONCE:
        return f"{error.message}; it may have happened: ask the person before you repeat it"
    if isinstance(error, Ambiguous | Transient):
        return f"{error.message}; you may call again"
    return error.message


def _failed(text: str) -> ToolResult:
    return ToolResult(ending=CallEnding.FAILED, text=_cut(text))


def _cut(text: str) -> str:
    """Return the text at a storable length, with a note of how much was left out."""
    left_out = len(text) - RESULT_MAX
    kept = storable(text[:RESULT_MAX])
    if left_out <= 0:
        return kept
    return f"{kept}\n[{left_out:,} more characters were left out; ask for less at once]"
