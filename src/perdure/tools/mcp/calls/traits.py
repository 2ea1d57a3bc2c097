"""Decides which tools of a server are taken, and whether a call may be made twice.

What is configured counts. What a server says of its own tools may only tighten it, because nobody
has checked it. Where nothing is configured, a call must not be repeated, and it is asked about.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.domain.outcomes import Repeat
from perdure.domain.tools.globs import is_match
from perdure.domain.tools.traits import CallTraits, Permission
from perdure.tools.mcp.calls.names import plain_name, rule_name
from perdure.tools.mcp.link import ListedTool

LEFT_OUT: Final = "!"
# From what may be done freely to what must not be done twice.
_STRICTNESS: Final = (Repeat.PURE, Repeat.REPEATABLE, Repeat.ONCE)


class RepeatRule(msgspec.Struct, frozen=True):
    """Says of the tools whose names match a glob whether a call may be made twice."""

    glob: str
    repeat: Repeat


def is_taken(own: str, takes: Sequence[str]) -> bool:
    """Tell whether a tool is to be used. `takes` are globs of its name; one that begins with ! is
    left out, whatever the others say. Without any other glob every tool is taken."""
    name = plain_name(own)
    refused = [glob[len(LEFT_OUT) :] for glob in takes if glob.startswith(LEFT_OUT)]
    wanted = [glob for glob in takes if not glob.startswith(LEFT_OUT)]
    if any(is_match(glob, name) for glob in refused):
        return False
    return not wanted or any(is_match(glob, name) for glob in wanted)


def repeat_of(tool: ListedTool, rules: Sequence[RepeatRule]) -> Repeat:
    """Return whether a call of a tool may be made twice. The first rule that matches decides."""
    name = plain_name(tool.name)
    configured = next((rule.repeat for rule in rules if is_match(rule.glob, name)), Repeat.ONCE)
    return max(configured, _claimed(tool), key=_STRICTNESS.index)


def traits_of(server: str, tool: ListedTool, rules: Sequence[RepeatRule]) -> CallTraits:
    """Return what is known of a call of a server's tool, which is the same for all arguments."""
    return CallTraits(
        names=(f"mcp.{server}", rule_name(server, tool.name)),
        repeat=repeat_of(tool, rules),
        permission=Permission.ACT,
        has_siblings=True,
    )


def _claimed(tool: ListedTool) -> Repeat:
    """Return how free a server lets callers be with its tool, as far as it says anything."""
    if tool.is_read_only:
        return Repeat.PURE
    if tool.is_idempotent:
        is_changing = tool.is_read_only is False or tool.is_destructive
        return Repeat.REPEATABLE if is_changing else Repeat.PURE
    is_risky = tool.is_read_only is False or tool.is_destructive or tool.is_idempotent is False
    return Repeat.ONCE if is_risky else Repeat.PURE
