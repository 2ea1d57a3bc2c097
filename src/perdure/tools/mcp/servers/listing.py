"""Asks a server what it offers, and makes tools of it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from perdure.domain.errors import PerdureError
from perdure.tools.mcp.calls.names import wire_name, wire_names
from perdure.tools.mcp.calls.resources import RESOURCES, ResourcesTool
from perdure.tools.mcp.calls.schemas import schema_problem
from perdure.tools.mcp.calls.tool import LinkUser, McpTool
from perdure.tools.mcp.calls.traits import is_taken, traits_of
from perdure.tools.mcp.link import ListedPrompt, ListedTool, ServerLink
from perdure.tools.mcp.server_log import ServerLog
from perdure.tools.mcp.servers.settings import ServerSettings
from perdure.tools.tool import Tool

T = TypeVar("T")
# How many characters the schemas and descriptions of one server may have together. It is as much as
# most models can read.
LISTED_MAX: Final = 400_000


class ServerOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a server has listed."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    has_resources: bool = False


class ServerListing:
    """Holds the tools that were made of what a server has listed."""

    def __init__(
        self, server: LinkUser, settings: ServerSettings, offer: ServerOffer, *, log: ServerLog
    ) -> None:
        """Make the tools. What is left out of them is noted in the log."""
        self.offer = offer
        taken = [each for each in offer.tools if is_taken(each.name, settings.takes)]
        usable = list(_usable(taken, log))
        self.tools: tuple[Tool, ...] = tuple(_tools(server, settings, offer, usable).values())


async def asked(link: ServerLink) -> ServerOffer:
    """Ask a server what it offers. Raises `Transient`, or `Permanent` if what it says is no list of
    tools. Many servers say that they have resources or prompts, and list none."""
    tools, prompts, resources = await asyncio.gather(
        link.tools(),
        _listed(link, link.prompts) if link.has_prompts else _nothing(),
        _listed(link, link.resources) if link.has_resources else _nothing(),
    )
    return ServerOffer(
        tools=tuple(sorted(tools, key=lambda each: each.name)),
        prompts=tuple(sorted(prompts, key=lambda each: each.name)),
        has_resources=bool(resources),
    )


async def _listed(link: ServerLink, ask: Callable[[], Awaitable[list[T]]]) -> list[T]:
    """Return a list that a server can do without: if it fails to give it, there is nothing."""
    try:
        return await ask()
    except PerdureError:
        if link.ended:
            raise
        return []


async def _nothing() -> list[Any]:
    return []


def _usable(tools: Sequence[ListedTool], log: ServerLog) -> Iterator[ListedTool]:
    """Yield the tools that models can be shown."""
    room = LISTED_MAX
    for tool in tools:
        room -= len(tool.parameters) + len(tool.description)
        if room < 0:
            log.note(f"the tool {tool.name!r} and those after it are left out: they are too much")
            return
        if problem := schema_problem(tool.parameters):
            why = f"its schema cannot be used, because {problem}"
            log.note(f"the tool {tool.name!r} is left out: {why}")
        else:
            yield tool


def _tools(
    server: LinkUser, settings: ServerSettings, offer: ServerOffer, usable: Sequence[ListedTool]
) -> Mapping[str, Tool]:
    """Return the tools by the names that models use."""
    listed = {each.name: each for each in usable}
    tools: dict[str, Tool] = {
        name: McpTool(
            server,
            listed[own],
            name=name,
            traits=traits_of(settings.name, listed[own], settings.repeat),
            limit_s=settings.timeout_s,
        )
        for name, own in wire_names(settings.name, listed).items()
    }
    # A tool that the server itself calls so is likely to be better.
    is_free = wire_name(settings.name, RESOURCES) not in tools
    if offer.has_resources and is_free and is_taken(RESOURCES, settings.takes):
        resources = ResourcesTool(server, limit_s=settings.timeout_s)
        tools[resources.name] = resources
    return tools
