"""Defines what a tool is: its name, its arguments, and what it does.

A tool describes itself to the model by a JSON Schema, which is made from the struct that reads its
arguments. A tool of another server brings a schema of its own. A tool raises an error in words that
the model can act on, and the toolbox turns it into a failed result.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from perdure.domain.errors import Rejected
from perdure.domain.ids import PrincipalId
from perdure.domain.journal.events import Recorded, ToolCall
from perdure.domain.tools.traits import CallTraits, Outlook
from perdure.ports.turns.tools import ToolCaller, ToolFile, ToolOffer, ToolQuestion

T = TypeVar("T")
# How long a call may take unless its tool says otherwise.
TIME_LIMIT_S: Final = 120.0


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a tool returns: text for the model, files for the people, and the events that it
    has stored to show something. With `has_failed` the text says what went wrong. With a `question`
    the call goes on when a person has answered; it is then made again with `caller.reply`."""

    text: str = ""
    files: tuple[ToolFile, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    has_failed: bool = False
    question: ToolQuestion | None = None


class Tool(Protocol):
    """Does one thing for an agent.

    Guarantees: `name`, `description` and `parameters` never change; `call` touches nothing that is
    not the caller's, and returns text for the model.

    Requires: arguments that are a JSON object.

    Raises: the errors of `domain/errors.py` only.

    After a crash: the `repeat` of the call's traits says whether a call that was cut short may be
    made again.
    """

    @property
    def name(self) -> str:
        """Return the name by which the model calls the tool."""

    @property
    def description(self) -> str:
        """Return what the tool does, in words for the model."""

    @property
    def parameters(self) -> str:
        """Return the JSON Schema of the arguments, as JSON text."""

    @property
    def time_limit_s(self) -> float:
        """Return how long a call may take."""

    def traits(self, arguments: str) -> CallTraits:
        """Return what is known of a call with these arguments. Does no I/O but to resolve a path,
        and raises `Rejected` if the arguments are wrong."""

    def kinds(self) -> Sequence[CallTraits]:
        """Return the traits of each kind of call, for people who ask what the tool may do. A kind
        that is known not to work now has a `problem`."""

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:
        """Return what the call would do if it ran now."""

    async def call(self, call: ToolCall, caller: ToolCaller) -> str | ToolOutput:
        """Do the work, and return the text for the model."""


class ToolSource(Protocol):
    """Lists tools. It may list others the next time; nobody keeps its tools beyond a turn.

    Guarantees: two tools never have the same name. `tools` ends in time: a source that cannot be
    reached costs its tools, never a turn.
    Requires: nothing.
    Raises: nothing; a source that cannot be reached lists what it has.
    After a crash: it is asked again.
    """

    async def tools(self, principal: PrincipalId) -> Sequence[Tool]:
        """Return the tools as they are now for this person."""

    def offers(self) -> Sequence[ToolOffer]:
        """Return what is known of the tools, without asking anybody."""


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Serves as the root of the structs that read the arguments of a tool."""


def schema_of(arguments: type[ToolArguments]) -> str:
    """Return the JSON Schema of a struct of arguments, as JSON text, without references: not every
    model's server follows them."""
    (schema,), components = msgspec.json.schema_components([arguments])
    whole = _resolved(schema, components)
    whole.pop("title", None)
    whole.pop("description", None)
    return msgspec.json.encode(whole).decode()


def _resolved(schema: Any, components: dict[str, Any]) -> Any:
    """Return a schema with every reference replaced by what it names."""
    match schema:
        case {"$ref": str(name)}:
            found = dict(components[name.rsplit("/", 1)[-1]])
            found.pop("title", None)
            return _resolved(found, components)
        case dict():
            kept = {key: each for key, each in schema.items() if key != "default" or each != ""}
            if "enum" in kept:
                kept = {"type": "string", **kept}
            return {key: _resolved(each, components) for key, each in kept.items()}
        case list():
            return [_resolved(each, components) for each in schema]
        case _:
            return schema


def arguments_of(arguments: str, kind: type[T], *, tool: str) -> T:
    """Return a call's arguments as a value. An argument that is null counts as left out, because
    some models write all of them. Raises `Rejected` that says what is wrong."""
    try:
        given = msgspec.json.decode(arguments.strip() or "{}", type=dict[str, msgspec.Raw])
        kept = {key: value for key, value in given.items() if bytes(value) != b"null"}
        return msgspec.json.decode(msgspec.json.encode(kept), type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Rejected(f"wrong arguments: {error}; call {tool} again with right ones") from error
