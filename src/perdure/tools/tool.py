"""One tool: what it is called, what it takes, and what it does.

A tool describes itself to the model once, as JSON text, and reads its own arguments: what a server
elsewhere offers brings a schema along that nobody here has types for. What it cannot do it raises,
in words the model can act on; the toolbox makes a failed result of them.
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
    """One tool of an agent's.

    Guarantees: `name` and `schema` (JSON text, one function in OpenAI's shape) never change; `call`
    touches nothing that is not the caller's, and returns text for the model.
    Requires: arguments that are a JSON object.
    Raises: the errors of `domain/errors.py` only.
    After a crash: `repeat` says whether a call that was cut short may be made again.
    """

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> str: ...

    @property
    def repeat(self) -> Repeat: ...

    async def call(self, call: ToolCall, caller: ToolCaller) -> str: ...


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    """A tool as models are told of it."""
    function = _Function(
        name=name,
        description=description,
        parameters=_Parameters(properties=parameters, required=required),
    )
    return msgspec.json.encode(_Described(function=function)).decode()


def arguments_of(call: ToolCall, kind: type[T]) -> T:
    """The arguments as a value. Raises `Rejected` with what is wrong."""
    try:
        return msgspec.json.decode(call.arguments.strip() or "{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(
            f"wrong arguments: {error}; call {call.name} again with right ones"
        ) from error
