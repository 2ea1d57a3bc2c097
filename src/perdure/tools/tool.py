"""Defines what a tool is: its name, its arguments, and what it does.

A tool describes itself to the model once, as JSON text, and reads its own arguments, because tools
of another server bring a schema for which no types exist here. A tool raises an error in words that
the model can act on, and the toolbox turns it into a failed result.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.ports.turns.tools import ToolCaller

T = TypeVar("T")


class Tool(Protocol):
    """Does one thing for an agent.

    Guarantees: `name` and `schema` (JSON text, one function in OpenAI's format) never change;
    `call` touches nothing that is not the caller's, and returns text for the model.

    Requires: arguments that are a JSON object.

    Raises: the errors of `domain/errors.py` only.

    After a crash: `repeat` says whether a call that was cut short may be made again.
    """

    @property
    def name(self) -> str:
        """Return the name by which the model calls the tool."""

    @property
    def schema(self) -> str:
        """Return the description that the model is given, as JSON text."""

    @property
    def repeat(self) -> Repeat:
        """Return whether a call may be repeated if its fate is unknown."""

    async def call(self, call: ToolCall, caller: ToolCaller) -> str:
        """Do the work, and return the text for the model."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes one argument to the model, as JSON Schema."""

    type: str
    description: str
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    type: str = "object"
    properties: Mapping[str, Parameter]
    required: Sequence[str]
    additional_properties: bool = False


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    parameters: _Parameters


class _Described(msgspec.Struct, frozen=True, kw_only=True):
    type: str = "function"
    function: _Function


def described(
    name: str, description: str, parameters: Mapping[str, Parameter], *, required: Sequence[str]
) -> str:
    """Return a tool's description for the model, as JSON text."""
    function = _Function(
        name=name,
        description=description,
        parameters=_Parameters(properties=parameters, required=required),
    )
    return msgspec.json.encode(_Described(function=function)).decode()


def arguments_of(call: ToolCall, kind: type[T]) -> T:
    """Return a call's arguments as a value. Raises `Rejected` that says what is wrong."""
    try:
        return msgspec.json.decode(call.arguments.strip() or "{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(
            f"wrong arguments: {error}; call {call.name} again with right ones"
        ) from error
