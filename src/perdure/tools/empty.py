"""An agent without tools: whatever it calls, it is told that there is nothing."""

from perdure.domain.events import ToolCall
from perdure.domain.outcomes import Ending, Repeat
from perdure.ports.tools import Caller, ToolResult


class NoTools:
    def schemas(self) -> str:
        return ""

    def repeat(self, name: str) -> Repeat:
        return Repeat.PURE

    async def call(self, call: ToolCall, caller: Caller) -> ToolResult:
        return ToolResult(ending=Ending.FAILED, text=f"there is no tool {call.name!r}")
