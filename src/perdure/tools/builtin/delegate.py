"""Implements the tool `delegate`: a piece of work for another agent, whose result is the call's.

The gateway opens an errand for it, and the turn waits without an owner, as it does for an answer of
a person. So a crash loses neither the work nor its result. The tool itself never runs.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.text import most_like, storable
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Delegation, Outlook, Permission
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "delegate"
TASK_MAX: Final = 50_000
FILES_MAX: Final = 10
ABOUT_MAX: Final = 300
_DESCRIPTION: Final = (
    "Give a piece of work to another agent and wait for its result, however long that takes. It "
    "sees nothing of this conversation, so the task must say everything: what is known, what is to "
    "be done, and what to answer. It can ask nobody. Calls that you make together are worked on at "
    "the same time. What it answers is its own words: check what matters. The agents:"
)


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    agent: Annotated[str, Meta(description="the name of the agent", max_length=100)]
    task: Annotated[str, Meta(description="the whole task, in words", max_length=TASK_MAX)]
    files: Annotated[
        tuple[str, ...],
        Meta(
            description="the names of files to pass on: of this turn's messages and tools",
            max_length=FILES_MAX,
        ),
    ] = ()


class DelegateTool:
    """Gives work to the agents that `known` describes, by their names."""

    name: str = NAME
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)
        lines = (
            f"\n- {name}: {about}" if about else f"\n- {name}" for name, about in known.items()
        )
        self.description = _DESCRIPTION + "".join(lines)

    def traits(self, arguments: str) -> CallTraits:
        asked = arguments_of(arguments, _Arguments, tool=NAME)
        if asked.agent not in self._known:
            near = most_like(asked.agent, list(self._known))
            hint = f"did you mean {near}? " if near else ""
            names = ", ".join(self._known)
            raise Rejected(f"there is no agent {asked.agent!r} for this; {hint}you have: {names}")
        if not asked.task.strip():
            raise Rejected("the task is empty; call delegate again and say what is to be done")
        given = Delegation(agent=asked.agent, task=storable(asked.task), files=asked.files)
        return msgspec.structs.replace(_TRAITS, paths=(asked.agent,), delegation=given)

    def kinds(self) -> Sequence[CallTraits]:
        return (_TRAITS,)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        raise Rejected("nothing can be given to another agent from here")


# Rules are about the agent's name. Who may be given work is configuration, so nobody is asked where
# nothing else is set.
_TRAITS: Final = CallTraits(names=(NAME,), repeat=Repeat.REPEATABLE, permission=Permission.OWN)


def about(description: str, instructions: str) -> str:
    """Return in a line what an agent is good at: its description, or else how its instructions
    begin."""
    lines = (description.strip() or instructions.strip()).splitlines()
    line = " ".join(lines[0].split()) if lines else ""
    return line if len(line) <= ABOUT_MAX else f"{line[: ABOUT_MAX - 1]}…"
