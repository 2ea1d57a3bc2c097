"""Makes the call of the tool `permission` by which an agent's question becomes one of ours. It is
pure.

A question about several files becomes one call for each of them, because a rule or a grant is about
one file. The agent is told yes only if all are allowed.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.domain.text import storable
from perdure.domain.turn.stream import AgentCall

if TYPE_CHECKING:
    from acp import schema

PERMISSION: Final = "permission"
# How many files one question may be about, and how long the arguments of one call may be. Beyond
# that the answer is no: nobody could read what they approve.
FILES_MAX: Final = 16
ARGUMENTS_MAX: Final = 1_000_000
_PATH_KEYS: Final = ("file_path", "path", "abs_path", "filePath", "notebook_path")
_COMMAND_KEYS: Final = ("command", "cmd")
_TITLE_MAX: Final = 2_000


def permission_calls(
    tool: "schema.ToolCallUpdate", *, folder: str, known: Any = None
) -> list[AgentCall]:
    """Return the calls that ask whether an agent may use a tool of its own: none if it asks for too
    much at once. `known` is what it has said of the tool's input before."""
    given = known if tool.raw_input is None else tool.raw_input
    changes = {
        change.path: {"path": change.path, "new": change.new_text, "old": change.old_text}
        for change in tool.content or ()
        if change.type == "diff"
    }
    paths = list(dict.fromkeys(_whole(path, folder) for path in _paths(tool, given, changes)))
    if len(paths) > FILES_MAX:
        return []
    by_path = {_whole(path, folder): change for path, change in changes.items()}
    asked = [_arguments(tool, given, folder, path, by_path.get(path)) for path in paths or [""]]
    if sum(map(len, asked)) > ARGUMENTS_MAX:
        return []
    return [
        AgentCall(id=f"{tool.tool_call_id}-{number}", name=PERMISSION, arguments=arguments)
        for number, arguments in enumerate(asked)
    ]


def _arguments(
    tool: "schema.ToolCallUpdate",
    given: Any,
    folder: str,
    path: str,
    change: dict[str, str | None] | None,
) -> str:
    told: dict[str, Any] = {
        "tool": (tool.title or "")[:_TITLE_MAX],
        "kind": tool.kind or "other",
        "path": path,
        "folder": folder,
        "command": _command(given),
        "change": change,
        "input": given,
    }
    kept = {name: value for name, value in told.items() if value not in ("", None, [])}
    return storable(msgspec.json.encode({"tool": "", **kept}).decode())


def _paths(
    tool: "schema.ToolCallUpdate", given: Any, changes: dict[str, dict[str, str | None]]
) -> Iterator[str]:
    """Yield the files that a tool is about, as far as the agent says so."""
    if tool.kind == "execute":
        return
    yield from changes
    yield from (location.path for location in tool.locations or ())
    if isinstance(given, dict):
        yield from (given[key] for key in _PATH_KEYS if isinstance(given.get(key), str))


def _command(given: Any) -> list[str]:
    """Return the words of a command. Text is divided at blanks only: a shell would read it, and
    what it would read must stay to be seen."""
    if not isinstance(given, dict):
        return []
    found = next((given[key] for key in _COMMAND_KEYS if key in given), None)
    if isinstance(found, str):
        return [word for word in found.split(" ") if word]
    is_words = isinstance(found, list) and all(isinstance(word, str) for word in found)
    return found if is_words and isinstance(found, list) else []


def _whole(path: str, folder: str) -> str:
    """Return a path as a whole one without detours. A link in it stays: what it leads to is seen
    only by the agent, in its sandbox."""
    parts: list[str] = []
    for part in PurePosixPath(folder or "/", path).parts[1:]:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    return "/" + "/".join(parts)
