"""Implements the tool `ask`: a question to the person, whose answer is the call's result.

The gateway asks it as it asks for approvals, so the turn waits without an owner, and a crash loses
neither the question nor the answer. The tool itself never runs.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.asking import CHOICE_LENGTH_MAX, CHOICES_MAX, QUESTION_LENGTH_MAX
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Inquiry, Outlook, Permission
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.tool import TIME_LIMIT_S, ToolArguments, arguments_of, schema_of

NAME: Final = "ask"
_DESCRIPTION: Final = (
    "Ask the person a question and wait for the answer, however long that takes. Offer choices "
    "where there are some. Ask only what you need to go on and cannot find out yourself."
)
_Choice = Annotated[str, Meta(min_length=1, max_length=CHOICE_LENGTH_MAX)]


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    question: Annotated[
        str,
        Meta(description="the question, in one or two sentences", max_length=QUESTION_LENGTH_MAX),
    ]
    choices: Annotated[
        tuple[_Choice, ...],
        Meta(description="the answers to choose from, each a few words", max_length=CHOICES_MAX),
    ] = ()


class AskTool:
    """Asks the person something."""

    name: str = NAME
    description: str = _DESCRIPTION
    parameters: str = schema_of(_Arguments)
    time_limit_s: float = TIME_LIMIT_S

    def traits(self, arguments: str) -> CallTraits:
        asked = arguments_of(arguments, _Arguments, tool=NAME)
        if not asked.question.strip():
            raise Rejected("the question is empty; call ask again with one")
        if len({each.strip().casefold() for each in asked.choices}) < len(asked.choices):
            raise Rejected("two of the choices are the same; call ask again with different ones")
        return _traits(Inquiry(text=asked.question, choices=asked.choices))

    def kinds(self) -> Sequence[CallTraits]:
        return (_traits(None),)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        raise Rejected("nobody can be asked here")


def _traits(inquiry: Inquiry | None) -> CallTraits:
    return CallTraits(
        names=(NAME,), repeat=Repeat.REPEATABLE, permission=Permission.OWN, inquiry=inquiry
    )
