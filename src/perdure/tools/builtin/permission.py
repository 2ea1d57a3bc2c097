"""Implements the tool `permission`: a person, a rule or a grant allows an external agent to use a
tool of its own.

No model is told of it. When an agent asks, the gateway makes this call in its place, so that the
rules, the questions, the grants and the journal are those of every other call. Calling it does
nothing: that it may be called is the answer.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.diffs import unified_diff
from perdure.domain.tools.traits import CallTraits, Outlook, Permission
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "permission"
KINDS: Final = (
    *("read", "edit", "delete", "move", "search", "execute"),
    *("think", "fetch", "switch_mode", "other"),
)
_DESCRIPTION: Final = "Ask whether the agent may use a tool of its own."
_EXECUTE: Final = "execute"
_CHANGING: Final = ("edit", "delete", "move")


class _Change(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what becomes of a file. A file that does not exist yet has no old text."""

    path: str
    new: str
    old: str | None = None


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    tool: Annotated[str, Meta(description="what the agent calls it")]
    kind: Annotated[str, Meta(description="what the tool does")] = "other"
    path: Annotated[str, Meta(description="the file that it is about")] = ""
    folder: Annotated[str, Meta(description="where the agent works")] = ""
    command: Annotated[tuple[str, ...], Meta(description="the command that it runs")] = ()
    change: Annotated[_Change | None, Meta(description="what becomes of the file")] = None
    input: Annotated[Any, Meta(description="what else the tool is given")] = None


class PermissionTool:
    """Says yes to an agent that asks."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def traits(self, arguments: str) -> CallTraits:
        asked = arguments_of(arguments, _Arguments, tool=NAME)
        if asked.kind not in KINDS:
            raise Rejected(f"there is no kind {asked.kind!r}; take one of {', '.join(KINDS)}")
        is_vague = asked.kind in _CHANGING and not asked.path
        return CallTraits(
            names=(NAME, f"{NAME}.{asked.kind}"),
            # Of a change to unknown files only exactly this one may be granted, not all of them.
            repeat=Repeat.ONCE if is_vague else Repeat.PURE,
            permission=Permission.ACT,
            paths=() if is_vague or asked.kind == _EXECUTE else _objects(asked),
            argv=_command(asked) if asked.kind == _EXECUTE else (),
            folder=asked.folder,
        )

    def kinds(self) -> Sequence[CallTraits]:
        return tuple(
            CallTraits(
                names=(NAME, f"{NAME}.{kind}"), repeat=Repeat.PURE, permission=Permission.ACT
            )
            for kind in KINDS
        )

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        change = arguments_of(call.arguments, _Arguments, tool=NAME).change
        if change is None:
            return Outlook()
        return Outlook(preview=unified_diff(change.old, change.new, change.path))

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        return "allowed"


def _command(asked: _Arguments) -> tuple[str, ...]:
    """Return the command that rules and grants are compared with. Without one, what the agent calls
    it stands for it. It is divided at blanks only, so that whatever a shell would read in it is
    still there to be seen."""
    return asked.command or tuple(word for word in asked.tool.split(" ") if word) or ("?",)


def _objects(asked: _Arguments) -> tuple[str, ...]:
    """Return what a call is about, as rules may write it: a path, absolute and below the folder
    where the agent works if it is there. Without a path, it is what the agent calls its tool."""
    if not asked.path:
        return (asked.tool,) if asked.tool else ()
    whole = PurePosixPath(asked.path)
    if asked.folder and whole.is_relative_to(asked.folder):
        return str(whole), str(whole.relative_to(asked.folder))
    return (str(whole),)
