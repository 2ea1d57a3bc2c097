"""Lets an agent read the resources of a server by one tool."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from perdure.domain.errors import Rejected
from perdure.domain.journal.events import ToolCall
from perdure.domain.outcomes import Repeat
from perdure.domain.tools.traits import NOTHING_AHEAD, CallTraits, Outlook, Permission
from perdure.ports.turns.tools import ToolCaller
from perdure.tools.mcp.calls.names import rule_name, wire_name
from perdure.tools.mcp.calls.results import output_of, resource_line
from perdure.tools.mcp.calls.tool import LinkUser
from perdure.tools.mcp.link import ListedResource, ServerAnswer, ServerLink
from perdure.tools.tool import ToolArguments, ToolOutput, arguments_of, schema_of

RESOURCES: Final = "resources"
LISTED_MAX: Final = 500
_URI_MAX: Final = 4_000


class _Arguments(ToolArguments, frozen=True, kw_only=True):
    action: Annotated[
        Literal["list", "read"], Meta(description="list what there is, or read one resource")
    ]
    uri: Annotated[
        str, Meta(description="for read: the address of the resource", max_length=_URI_MAX)
    ] = ""


class ResourcesTool:
    """Lists and reads the resources of one server."""

    parameters: str = schema_of(_Arguments)

    def __init__(self, server: LinkUser, *, limit_s: float) -> None:
        self.name: str = wire_name(server.name, RESOURCES)
        self.description: str = (
            f"List the resources (documents and other data) of the tool server {server.name}, or "
            "read one of them."
        )
        self.time_limit_s: float = limit_s
        self._server = server
        self._traits = CallTraits(
            names=(f"mcp.{server.name}", rule_name(server.name, RESOURCES)),
            repeat=Repeat.REPEATABLE,
            permission=Permission.ACT,
            has_siblings=True,
        )

    def traits(self, arguments: str) -> CallTraits:
        given = arguments_of(arguments, _Arguments, tool=self.name)
        if given.action == "read" and not given.uri:
            raise Rejected(f"uri is missing; call {self.name} with the uri of a resource")
        return self._traits

    def kinds(self) -> Sequence[CallTraits]:
        return (self._traits,)

    async def outlook(self, call: ToolCall, caller: ToolCaller) -> Outlook:  # noqa: ARG002 - nobody knows
        return NOTHING_AHEAD

    async def call(self, call: ToolCall, caller: ToolCaller) -> ToolOutput:
        given = arguments_of(call.arguments, _Arguments, tool=self.name)

        async def read(link: ServerLink) -> ServerAnswer:
            return await link.read(given.uri)

        async def listed(link: ServerLink) -> list[ListedResource]:
            return await link.resources()

        use = self._server.use
        if given.action == "read":
            return output_of(await use(caller.principal, read, may_repeat=True, call=call.id))
        return _listing(await use(caller.principal, listed, may_repeat=True, call=call.id))


def _listing(resources: Sequence[ListedResource]) -> ToolOutput:
    lines = [f"- {resource_line(each)}" for each in resources[:LISTED_MAX]]
    if len(resources) > LISTED_MAX:
        lines.append(f"({len(resources) - LISTED_MAX} more are not shown.)")
    return ToolOutput(text="\n".join(lines) or "The server has no resources now.")
