"""Makes backends from configured agents. A backend is an agent together with its settings and
tools."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.app.children.children import LaunchedChildren
from perdure.app.config.loading import AgentConfig
from perdure.app.config.tool_values import (
    DELEGATE,
    FILES,
    MCP,
    MEMORY,
    NO_TOOL_SETTINGS,
    SEARCH,
    SHELL,
    TOOLS,
    ToolsConfig,
)
from perdure.app.config.values import (
    AcpAgent,
    ChatAgentSection,
    Config,
    DemoAgentSection,
)
from perdure.app.network.outgoing import RoutedOutgoing
from perdure.app.schedule.making import job_terms
from perdure.app.wiring.budgets import tariff_of
from perdure.app.wiring.system import SystemEntropy
from perdure.app.wiring.tool_servers import take_over
from perdure.app.wiring.web import web_of, web_tools
from perdure.domain.people.menu import OfferedTool
from perdure.domain.schedule.jobs import NO_TERMS, ScheduleTerms
from perdure.domain.tools.policy import Approve, Do, Rule, ToolPolicy
from perdure.engine.models.roster import Backend
from perdure.ports.system.children import Children
from perdure.ports.system.clock import Clock
from perdure.ports.system.outgoing import DIRECT, Outgoing
from perdure.ports.system.web import PublicWeb
from perdure.ports.turns.agent import Agent
from perdure.ports.turns.tools import NamedPrompts
from perdure.store.store import Store
from perdure.tools.mcp.servers.servers import McpServers
from perdure.tools.tool import Tool
from perdure.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from perdure.app.external.agents import ExternalAgents
    from perdure.app.wiring.shell import NodeShell
    from perdure.tools.workroom import Workroom


# What the tools lack that need settings of their own.
_LACKING: Final = {
    FILES: "[tools.files] roots names no folder",
    SHELL: "[tools.shell] roots names no folder",
    SEARCH: "[tools.search] kind names no search engine",
    DELEGATE: "its `delegates` names no other agent",
}


class BackendMaker:
    """Makes the backends of agents, with the tools of this store. The store may still be closed,
    because no tool is called before a turn runs."""

    def __init__(  # noqa: PLR0913 - what tools need around them
        self,
        store: Store,
        clock: Clock,
        outgoing: Outgoing = DIRECT,
        *,
        children: Children,
        web: PublicWeb,
        home: Path,
        terms: ScheduleTerms = NO_TERMS,
    ) -> None:
        self._store = store
        self._terms = terms
        self._web = web
        self.clock = clock
        self.outgoing = outgoing
        self.children = children
        self._home = home
        self._external: ExternalAgents | None = None
        self._shell: NodeShell | None = None
        self._workroom: Workroom | None = None
        self.servers = McpServers(clock=clock, entropy=SystemEntropy())

    async def close(self) -> None:
        """End what the tools have started. No turn runs any more."""
        shell = [self._shell.close()] if self._shell is not None else []
        external = [self._external.close()] if self._external is not None else []
        await asyncio.gather(self.servers.close(), *shell, *external)
        await self.children.close()

    async def warm(self) -> None:
        """Start what external agents need, so that nobody waits for it."""
        if self._external is not None:
            await self._external.warm()

    def backends(
        self, configured: Mapping[str, AgentConfig], tools: ToolsConfig = NO_TOOL_SETTINGS
    ) -> dict[str, Backend]:
        """Make the backends of the configured agents, by name. From now on the tool servers are
        those that are configured."""
        take_over(self.servers, tools, children=self.children, outgoing=self.outgoing)
        if self._external is not None:
            self._external.keep(configured)
        return {
            name: self._backend(name, config, tools, configured)
            for name, config in configured.items()
        }

    def _kit(
        self,
        settings: ToolsConfig,
        config: AgentConfig,
        policy: ToolPolicy,
        agents: Mapping[str, AgentConfig],
    ) -> dict[str, Tool]:
        """Return the built-in tools that an agent can use with these settings, by name. Their code
        is imported only for agents that have tools."""
        if not config.tools:
            return {}
        from perdure.tools.builtin.ask import AskTool  # noqa: PLC0415
        from perdure.tools.builtin.memory import MemoryTool  # noqa: PLC0415
        from perdure.tools.builtin.schedule import ScheduleTool  # noqa: PLC0415
        from perdure.tools.builtin.send import SendTool  # noqa: PLC0415
        from perdure.tools.builtin.sessions import SessionsTool  # noqa: PLC0415
        from perdure.tools.builtin.todo import TodoTool  # noqa: PLC0415

        store = self._store
        tools: list[Tool] = [
            MemoryTool(store.memory),
            SessionsTool(store.archive),
            TodoTool(store.todos),
            AskTool(),
            ScheduleTool(store.schedule, terms=lambda: self._terms, now_ms=self.clock.now_ms),
            SendTool(),
        ]
        if config.delegates:
            tools.append(_delegate_tool(config, agents))
        if settings.files.roots:
            from perdure.tools.builtin.files.bounds import FilesBounds  # noqa: PLC0415
            from perdure.tools.builtin.files.tool import FilesTool  # noqa: PLC0415
            from perdure.tools.workroom import Workroom  # noqa: PLC0415

            self._workroom = self._workroom or Workroom()
            roots = [Path(root).expanduser() for root in settings.files.roots]
            hidden = policy.denied(FILES, f"{FILES}.read", f"{FILES}.search")
            bounds = FilesBounds(hidden=hidden)
            tools.append(FilesTool(roots, bounds=bounds, work=self._workroom))
        if settings.shell.roots:
            from perdure.app.wiring.shell import NodeShell  # noqa: PLC0415

            self._shell = self._shell or NodeShell(self.children)
            tools.append(self._shell.tool(settings.shell))
        tools.extend(web_tools(settings, config, policy, web=self._web, outgoing=self.outgoing))
        return {tool.name: tool for tool in tools}

    def _backend(
        self,
        name: str,
        config: AgentConfig,
        settings: ToolsConfig,
        agents: Mapping[str, AgentConfig],
    ) -> Backend:
        """Make one backend. Every agent with tools can read on in long results."""
        policy = policy_of(name, config, settings)
        kit = self._kit(settings, config, policy, agents)
        usable = [kit[each] for each in dict.fromkeys(config.tools) if each in kit]
        named = (each.removeprefix(MCP) for each in config.tools if each.startswith(MCP))
        servers = list(dict.fromkeys(named))
        sources = [self.servers.source(each) for each in servers]
        if usable or sources:
            from perdure.tools.builtin.result import ResultTool  # noqa: PLC0415

            usable.append(ResultTool(self._store.media))
        agent, kind = self._agent(name, config, policy)
        backend = _backend(name, config, agent, kind)
        hidden = self._hidden(name, config, settings, policy)
        tools = Toolbox(usable, sources=sources, hidden=hidden)
        missing = tuple(_missing(name, config, kit))
        prompts = self._prompts(servers)
        return msgspec.structs.replace(
            backend,
            tools=tools,
            prompts=prompts,
            policy=policy,
            missing_tools=missing,
            program=self._external.pools.get(name) if self._external is not None else None,
        )

    def _prompts(self, servers: Sequence[str]) -> NamedPrompts | None:
        """Return the prompts of an agent's tool servers."""
        if not servers:
            return None
        from perdure.tools.mcp.calls.prompts import ServerPrompts  # noqa: PLC0415

        return ServerPrompts(self.servers, servers)

    def _hidden(
        self, name: str, config: AgentConfig, settings: ToolsConfig, policy: ToolPolicy
    ) -> list[Tool]:
        """Return the tools of which an agent is not told."""
        if not isinstance(config, AcpAgent) or self._external is None:
            return []
        from perdure.app.external.client import client_offers, client_tools  # noqa: PLC0415
        from perdure.app.wiring.shell import NodeShell  # noqa: PLC0415
        from perdure.tools.builtin.permission import PermissionTool  # noqa: PLC0415
        from perdure.tools.workroom import Workroom  # noqa: PLC0415

        self._workroom = self._workroom or Workroom()
        self._shell = self._shell or NodeShell(self.children)
        asked = client_tools(
            config,
            client_offers(config, policy, home=self._home),
            self._external.calls(name),
            work=self._workroom,
            make_shell=partial(self._shell.tool_in, settings.shell),
            jobs=self._shell.jobs,
        )
        return [PermissionTool(), *asked]

    def _agent(self, name: str, config: AgentConfig, policy: ToolPolicy) -> tuple[Agent, str]:
        """Make an agent, and name its kind. The code of each kind is imported only if it is
        configured."""
        match config:
            case DemoAgentSection():
                from perdure.agents.demo.agent import DemoAgent  # noqa: PLC0415

                return DemoAgent(clock=self.clock), "demo"
            case ChatAgentSection():
                return _chat(name, config, self.clock, self.outgoing), "chat"
            case AcpAgent():
                if self._external is None:
                    from perdure.app.external.agents import ExternalAgents  # noqa: PLC0415

                    self._external = ExternalAgents(
                        self._home, children=self.children, clock=self.clock
                    )
                from perdure.app.external.client import client_offers  # noqa: PLC0415

                offers = client_offers(config, policy, home=self._home)
                return self._external.agent(name, config, offers), "acp"


def backend_maker(
    store: Store,
    clock: Clock,
    outgoing: RoutedOutgoing,
    settings: Config,
    *,
    home: Path,
    environ: Mapping[str, str],
) -> BackendMaker:
    """Return what makes the agents of a node."""
    return BackendMaker(
        store,
        clock,
        outgoing,
        children=LaunchedChildren(),
        web=web_of(settings.limits, outgoing),
        home=home,
        terms=job_terms(settings, environ),
    )


def _delegate_tool(config: AgentConfig, agents: Mapping[str, AgentConfig]) -> Tool:
    """Return the tool by which an agent gives work to those that it may."""
    from perdure.tools.builtin.delegate import DelegateTool, about  # noqa: PLC0415

    known = {name: agents[name] for name in config.delegates if name in agents}
    return DelegateTool(
        {name: about(each.description, each.instructions) for name, each in known.items()}
    )


def policy_of(name: str, config: AgentConfig, settings: ToolsConfig) -> ToolPolicy:
    """Return when people are asked about this agent's calls."""
    approve = {**settings.approve, **config.approve}
    return ToolPolicy(
        agent=name,
        approve={tool: Approve(mode) for tool, mode in approve.items()},
        rules=tuple(
            Rule(tool=rule.tool, do=Do(rule.do), match=rule.match) for rule in config.rules
        ),
    )


def _missing(name: str, config: AgentConfig, kit: Mapping[str, Tool]) -> Iterator[OfferedTool]:
    """Yield the built-in tools that an agent does not have, with why."""
    for tool in TOOLS:
        if tool in config.tools and tool not in kit:
            why = _LACKING.get(tool, "it cannot be used here")
        elif tool not in config.tools:
            why = f"[agents.{name}] tools does not name it"
        else:
            continue
        yield OfferedTool(name=tool, description="", state="off", why=why)


def _backend(name: str, config: AgentConfig, agent: Agent, kind: str) -> Backend:
    """Make a backend without tools."""
    wanted = dict.fromkeys(config.tools)
    return Backend(
        name=name,
        kind=kind,
        agent=agent,
        tools=Toolbox(),
        model=config.model if isinstance(config, ChatAgentSection) else "",
        reasoning=(config.reasoning or "") if isinstance(config, ChatAgentSection) else "",
        has_memory=MEMORY in wanted,
        has_vision=_has_vision(config),
        pictures=config.pictures,
        has_context=config.context and not isinstance(config, DemoAgentSection),
        instructions=config.instructions,
        fallbacks=config.fallbacks,
        patience_s=config.patience_s,
        concurrent=config.concurrent,
        account=_account(config),
        tariff=tariff_of(config),
        context_tokens=config.context_tokens,
        compact_at=config.compact_at,
        compact_agent=config.compact_agent or "",
    )


def _has_vision(config: AgentConfig) -> bool:
    """Tell whether an agent is given pictures. An external one is told of them in words."""
    match config:
        case ChatAgentSection():
            return config.vision
        case _:
            return isinstance(config, DemoAgentSection)


def _account(config: AgentConfig) -> str:
    """Return a name for the agent's account at its provider. It is a digest, so it does not reveal
    the key. Agents with the same name share the provider's limits."""
    if not isinstance(config, ChatAgentSection):
        return ""
    key = config.api_key.reveal() if config.api_key else ""
    return sha256(f"{config.base_url}\n{key}".encode()).hexdigest()


def _chat(name: str, config: ChatAgentSection, clock: Clock, outgoing: Outgoing) -> Agent:
    from perdure.agents.chat.agent import ChatAgent  # noqa: PLC0415
    from perdure.agents.chat.manifest import ChatSettings  # noqa: PLC0415

    settings = ChatSettings(
        name=name,
        api=config.api,
        base_url=config.base_url,
        model=config.model,
        api_key=config.api_key.reveal() if config.api_key else None,
        headers={key: value.reveal() for key, value in config.headers.items()},
        max_tokens=config.max_tokens,
        temperature=config.temperature,
        reasoning=config.reasoning or "",
        connect_timeout_s=config.connect_timeout_s,
        first_token_timeout_s=config.first_token_timeout_s,
        silence_timeout_s=config.silence_timeout_s,
    )
    return ChatAgent(settings, session=None, clock=clock, outgoing=outgoing)
