"""Tells which of the tool calls that an agent reports are calls of the gateway's own tools, which
come over the bridge as well and are journalled there.

A report only decides what is shown, so it may be matched by likeness. A question for permission
decides what may happen: it counts as one about a tool of the gateway only if the agent calls the
tool exactly as it would call that one, because the words of a title may be the model's.
"""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.domain.tools.traits import canonical

if TYPE_CHECKING:
    from acp import schema

# How agents call the tool `t` of the server `s`.
_FORMS: Final = (
    "{t} ({s} MCP Server)",
    "{t} ({s})",
    "mcp__{s}__{t}",
    "mcp_{s}_{t}",
    "mcp.{s}.{t}",
    "{s}_{t}",
    "{s}.{t}",
    "{s}/{t}",
    "Tool: {s}/{t}",
)
# The kinds that agents give to tools which they do not know. A command may be called like anything.
_UNKNOWN: Final = (None, "other")
# How Codex asks about any tool of a server. It names the server beside the question.
_CODEX_TITLE: Final = "Approve MCP tool call"
_CODEX_KIND: Final = "mcp_tool_call"


class BridgedNames:
    """Knows the tools of one binding as the agent may call them."""

    def __init__(self, server: str, names: Iterable[str]) -> None:
        self._server = server
        self._names = {name: name for name in names}
        self._titles = {
            form.format(s=server, t=name): name for name in self._names for form in _FORMS
        }

    def has(self, name: str) -> bool:
        return name in self._names

    def asked_about(self, tool: "schema.ToolCallUpdate") -> bool:
        """Tell whether a question is about a tool of the gateway, which asks people itself."""
        is_named = (tool.title or "") in self._titles or self._is_asked_by_codex(tool)
        return is_named and tool.kind in _UNKNOWN and bool(self._names)

    def _is_asked_by_codex(self, tool: "schema.ToolCallUpdate") -> bool:
        match tool.raw_input:
            case {"server_name": server, "request": {"_meta": {"codex_approval_kind": kind}}}:
                is_call = kind == _CODEX_KIND and tool.title == _CODEX_TITLE
                return is_call and server == self._server
            case _:
                return False

    def named(self, title: str) -> str:
        """Return the tool of the gateway that a report may be about, or an empty string."""
        return self._titles.get(title) or self._names.get(title, "")


class BridgedCalls:
    """Counts the calls that have come over the bridge during one prompt, and matches reports."""

    def __init__(self, names: BridgedNames) -> None:
        self.names = names
        self._made: Counter[str] = Counter()
        self._arguments: Counter[str] = Counter()

    def came(self, name: str, arguments: str) -> None:
        """Note a call that has come over the bridge."""
        self._made[name] += 1
        self._arguments[canonical(arguments)] += 1

    def is_one(self, title: str, given: object) -> bool:
        """Tell whether a report that is over is about a call that came over the bridge. Each call
        is matched once."""
        name = self.names.named(title)
        arguments = canonical(msgspec.json.encode(given).decode()) if given else ""
        if name and self._made[name] > 0:
            self._made[name] -= 1
            self._arguments[arguments] -= 1
            return True
        if arguments and self._arguments[arguments] > 0 and not name:
            self._arguments[arguments] -= 1
            return True
        return False
