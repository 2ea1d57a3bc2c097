"""Implements the tool `agent_files`: an external agent reads or writes a file through the gateway.

No model is told of it. When an agent asks, the gateway makes this call in its place. It is a call
of the tool `files` with the folders of the agent's session, so the same rules, questions and grants
hold, and the same paths are refused. An agent must read what it will write back, so it is handed
the exact text beside the result.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from perdure.domain.errors import NotFound, Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook
from perdure.ports.agents.client import AGENT_FILES, ClientCalls, FileText, NoFile
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.builtin.files.bounds import FilesBounds
from perdure.tools.builtin.files.tool import FilesTool
from perdure.tools.client.folders import folders_of, whole_path
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of
from perdure.tools.workroom import Workroom

_DESCRIPTION: Final = "Read or write a file for the agent."
_KEPT_MAX: Final = 64
_LINES_MAX: Final = 1_000_000_000


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[Literal["read", "write"], Meta(description="what the agent does")]
    path: Annotated[str, Meta(description="the file")]
    folder: Annotated[str, Meta(description="where the agent works")]
    text: Annotated[str, Meta(description="write: the whole new text")] = ""
    line: Annotated[int, Meta(description="read: the first line", ge=0, le=_LINES_MAX)] = 1
    limit: Annotated[
        Annotated[int, Meta(ge=0, le=_LINES_MAX)] | UnsetType,
        Meta(description="read: how many lines"),
    ] = UNSET


class AgentFilesTool:
    """Serves one agent, in the folder of the session that asks and in `roots`."""

    name: str = AGENT_FILES
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(
        self, roots: Sequence[Path], calls: ClientCalls, *, bounds: FilesBounds, work: Workroom
    ) -> None:
        self._roots = tuple(roots)
        self._calls = calls
        self._bounds = bounds
        self._work = work
        self._tools: dict[tuple[Path, ...], FilesTool] = {}

    def traits(self, arguments: str) -> CallTraits:
        asked, tool, inner = self._asked(arguments)
        if asked.text and asked.action == "read":
            raise Rejected("read takes no text; call again without it")
        return tool.traits(inner)

    def kinds(self) -> Sequence[CallTraits]:
        return ()

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        asked, tool, inner = self._asked(call.arguments)
        if asked.action == "read":
            return NOTHING_AHEAD
        return await tool.outlook(msgspec.structs.replace(call, arguments=inner), caller)

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        asked, tool, inner = self._asked(call.arguments)
        if asked.action == "write":
            return await tool.call(msgspec.structs.replace(call, arguments=inner), caller)
        return await self._read(asked, tool, call, caller)

    async def _read(
        self, asked: _Arguments, tool: FilesTool, call: ToolCall, caller: ToolCaller
    ) -> str:
        path, first = whole_path(asked.folder, asked.path), max(asked.line, 1)
        try:
            text = await tool.read_exactly(
                path, caller, offset=first - 1, count=0 if asked.limit is UNSET else asked.limit
            )
        except NotFound:
            self._calls.hand_over(caller.turn, call.id, NoFile())
            raise
        text = "" if asked.limit == 0 else text
        self._calls.hand_over(caller.turn, call.id, FileText(text))
        lines = text.count("\n") + (not text.endswith("\n"))
        place = f"lines {first:,} to {first + lines - 1:,}" if text else "no lines"
        return f"[{path}, {place}]\n{text}"

    def _asked(self, arguments: str) -> tuple[_Arguments, FilesTool, str]:
        """Return the arguments, the tool that serves them, and its own arguments."""
        asked = arguments_of(arguments, _Arguments, tool=AGENT_FILES)
        told = {"action": asked.action, "path": whole_path(asked.folder, asked.path)}
        if asked.action == "write":
            told["text"] = asked.text
        return asked, self._tool(asked.folder), msgspec.json.encode(told).decode()

    def _tool(self, folder: str) -> FilesTool:
        """Return the tool for the folders of a session."""
        folders = folders_of(folder, self._roots)
        if folders not in self._tools:
            if len(self._tools) >= _KEPT_MAX:
                del self._tools[next(iter(self._tools))]
            self._tools[folders] = FilesTool(folders, bounds=self._bounds, work=self._work)
        return self._tools[folders]
