"""Tries a tool server as the configuration says, without a node: connects to it, and lists what it
offers and what agents may do with it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from perdure.app.children.children import LaunchedChildren
from perdure.app.config import loading as config
from perdure.app.config.loading import Config
from perdure.app.config.network import network_of
from perdure.app.config.toml_errors import instead
from perdure.app.config.tool_values import (
    MCP,
    McpServer,
)
from perdure.app.network.outgoing import RoutedOutgoing
from perdure.app.wiring.agents import policy_of
from perdure.app.wiring.tool_servers import settings_of
from perdure.domain.errors import PerdureError, Rejected
from perdure.domain.tools.policy import ToolPolicy, default_for
from perdure.domain.urls import shown_url
from perdure.tools.mcp.calls.names import wire_name
from perdure.tools.mcp.calls.traits import is_taken, traits_of
from perdure.tools.mcp.link import LinkTerms, ListedTool, ServerLink
from perdure.tools.mcp.servers.reaching import reach
from perdure.tools.mcp.servers.settings import ServerSettings

T = TypeVar("T")
# A program that is fetched from a registry at its first start takes a while.
CONNECT_S: Final = 60.0


class TriedTool(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a tool of a server. `called` is its name for models, `rule` that for rules. `asks`
    says of each agent that has the server whether such a call is allowed, asked about or denied.
    With `is_taken` false the configuration leaves the tool out."""

    name: str
    called: str
    rule: str
    description: str
    repeat: str
    is_taken: bool
    asks: dict[str, str]


class TriedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a prompt of a server. Arguments that may be left out are in brackets."""

    name: str
    called: str
    arguments: tuple[str, ...]
    description: str


class TriedResource(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a resource of a server, or a template of addresses."""

    uri: str
    name: str
    description: str


class ServerTrial(msgspec.Struct, kw_only=True):
    """Holds what came of a trial. `problems` say what is wrong; without any, the server can be
    used. `advice` says what to look at then. `where` is the program or the address. `log` is the
    end of what the server has written."""

    name: str
    where: str
    server: str = ""
    version: str = ""
    agents: tuple[str, ...] = ()
    tools: list[TriedTool] = []
    prompts: list[TriedPrompt] = []
    resources: list[TriedResource] = []
    problems: list[str] = []
    advice: str = ""
    log: str = ""

    @property
    def is_usable(self) -> bool:
        """Tell whether the server can be used."""
        return not self.problems


async def tried(
    home: Path, environ: Mapping[str, str], name: str, *, within_s: float = CONNECT_S
) -> ServerTrial:
    """Connect to a tool server within a time, and return what it offers. Raises `ConfigError` if
    the configuration cannot be used, and `Rejected` if it does not name the server."""
    settings = config.load(home, environ)
    server = _configured(settings, name)
    network = network_of(settings, home / config.FILE_NAME, environ)
    outgoing = RoutedOutgoing(network.proxies, trusted=network.trusted)
    trial = ServerTrial(name=name, where=_where(server), agents=tuple(_users(settings, name)))
    terms = LinkTerms(connect_s=within_s, answer_s=within_s)
    children = LaunchedChildren()
    try:
        reached = settings_of(name, server)
        link = await reach(reached, children=children, outgoing=outgoing, terms=terms)
        try:
            await _list(link, trial, reached, settings)
        finally:
            await link.close()
    except PerdureError as error:
        trial.problems.append(error.message)
        trial.advice = _advice(server, trial)
    finally:
        await children.close()
        trial.log = terms.log.text
    return trial


def _advice(server: McpServer, trial: ServerTrial) -> str:
    """Return what to look at if a server cannot be used."""
    section = f"[tools.mcp.{trial.name}]"
    if trial.version:
        return f"it can be reached, so {section} is right; look for another version of the server"
    if server.url:
        return f"check url and headers of {section}, and whether the server runs there"
    return (
        f"check command, args, env and cwd of {section}; the program gets the variables of env and "
        "few others, and one that is installed at its first start may need more time (--wait)"
    )


def _configured(settings: Config, name: str) -> McpServer:
    """Return the settings of a server. Raises `Rejected` if there are none."""
    servers = settings.tools.mcp
    if name not in servers:
        advice = instead(name, list(servers), noun="tool servers") if servers else "add it"
        raise Rejected(f"there is no section [tools.mcp.{name}]; {advice}", code="config")
    return servers[name]


def _where(server: McpServer) -> str:
    """Return the program or the address. Arguments may be secrets."""
    return server.command[0] if server.command else shown_url(server.url or "")


def _users(settings: Config, name: str) -> Iterator[str]:
    """Yield the agents that may call the server's tools."""
    for agent, each in settings.agents.items():
        if f"{MCP}{name}" in each.tools:
            yield agent


async def _list(
    link: ServerLink, trial: ServerTrial, reached: ServerSettings, settings: Config
) -> None:
    """Note what the server offers."""
    trial.server, trial.version = link.server, link.version
    agents = {agent: settings.agents[agent] for agent in trial.agents}
    policies = {agent: policy_of(agent, each, settings.tools) for agent, each in agents.items()}
    trial.tools = [_tool(each, reached, policies) for each in await link.tools()]
    if link.has_prompts:
        trial.prompts = [
            TriedPrompt(
                name=each.name,
                called=wire_name(trial.name, each.name),
                arguments=tuple(
                    one.name if one.is_required else f"[{one.name}]" for one in each.arguments
                ),
                description=each.description,
            )
            for each in await link.prompts()
        ]
    if link.has_resources:
        trial.resources = [
            TriedResource(uri=each.uri, name=each.name, description=each.description)
            for each in await link.resources()
        ]


def _tool(
    listed: ListedTool, reached: ServerSettings, policies: Mapping[str, ToolPolicy]
) -> TriedTool:
    """Describe one tool."""
    traits = traits_of(reached.name, listed, reached.repeat)
    return TriedTool(
        name=listed.name,
        called=wire_name(reached.name, listed.name),
        rule=traits.act,
        description=listed.description,
        repeat=traits.repeat,
        is_taken=is_taken(listed.name, reached.takes),
        asks={agent: default_for(traits, policy) for agent, policy in policies.items()},
    )
