"""Makes the external agents of a node, and keeps them while their configuration stays the same: an
agent has processes, and sessions that people go on with."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import structlog

from perdure.agents.acp.agent import AcpAgent, AcpTerms
from perdure.agents.acp.pool.pool import ProcessPool
from perdure.agents.acp.pool.settings import PoolSettings
from perdure.agents.acp.programs.presets import OTHER, PRESETS
from perdure.agents.acp.programs.program import AgentProgram
from perdure.app.config import values
from perdure.domain.errors import PerdureError
from perdure.ports.agents.client import ClientCalls, ClientOffers
from perdure.ports.system.children import Children
from perdure.ports.system.clock import Clock
from perdure.web.bridge import relay
from perdure.web.bridge.bridge import ToolBridge

log = structlog.get_logger("agents")


class ExternalAgents:
    """Holds the external agents by name. They share one bridge, over which they reach the gateway's
    tools. `pools` are those of the agents as they are configured now."""

    def __init__(self, home: Path, *, children: Children, clock: Clock) -> None:
        self._home = home
        self._children = children
        self._clock = clock
        # A folder that programs in a sandbox can be shown, before anything listens there.
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-bridge-"))
        self._bridge = ToolBridge(self._folder)
        self._agents: dict[str, tuple[values.AcpAgent, ClientOffers, AcpAgent]] = {}
        self._calls: dict[str, ClientCalls] = {}
        self.pools: dict[str, ProcessPool] = {}

    def calls(self, name: str) -> ClientCalls:
        """Return where the hidden tools of an agent hand over what it has asked its client for. An
        agent that takes the place of another has a place of its own: the old one may still be in
        the middle of answers, and ends what is left of them when it is closed."""
        return self._calls[name]

    def agent(self, name: str, section: values.AcpAgent, offers: ClientOffers) -> AcpAgent:
        """Return the agent of this configuration: the one that is there already if what it depends
        on has not changed. `offers` is what it is told that it can ask its client for."""
        known = self._agents.get(name)
        if known is not None and _is_same(known[0], section) and known[1] == offers:
            return known[2]
        base = self._home / "agents" / name
        pool = ProcessPool(
            self._program(name, section, base),
            _settings(section.pool),
            children=self._children,
            clock=self._clock,
            offers=offers,
        )
        cwd = str(Path(section.cwd).expanduser()) if section.cwd else ""
        terms = AcpTerms(name=name, cwd=cwd, silence_s=section.silence_timeout_s)
        calls = self._calls[name] = ClientCalls()
        agent = AcpAgent(
            terms,
            pool=pool,
            bridge=self._bridge,
            clock=self._clock,
            notes=base / "told",
            calls=calls,
        )
        self._agents[name] = (section, offers, agent)
        self.pools[name] = pool
        return agent

    def keep(self, configured: Mapping[str, object]) -> None:
        """Forget the agents that are not configured any more. Whoever uses them closes them."""
        for name in [each for each in self._agents if each not in configured]:
            del self._agents[name]
            del self.pools[name]
            self._calls.pop(name, None)

    async def warm(self) -> None:
        """Start a process of each agent whose people share one, so that nobody waits for it."""
        sections = {name: section for name, (section, _, _) in self._agents.items()}
        wanted = [
            name
            for name, section in sections.items()
            if section.pool.prewarm and self.pools[name].is_shared
        ]
        await asyncio.gather(*map(self._warmed, wanted))

    async def _warmed(self, name: str) -> None:
        try:
            await self.pools[name].warm("")
        except PerdureError as error:
            log.warning("an agent does not start", agent=name, error=error.message)

    async def close(self) -> None:
        """End the bridge. The agents are closed by whoever uses them."""
        await self._bridge.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _program(self, name: str, section: values.AcpAgent, base: Path) -> AgentProgram:
        return AgentProgram(
            agent=name,
            base=base,
            preset=PRESETS[section.preset] if section.preset else OTHER,
            command=section.command or (),
            env={key: value.reveal() for key, value in section.env.items()},
            roots=roots_of(section),
            # What the relay needs that agents start inside of their sandbox.
            sees=(self._folder, Path(relay.__file__), Path(sys.prefix), Path(sys.base_prefix)),
            hidden=self._home,
            has_own_tools=section.own_tools,
            has_sandbox=section.sandbox != "off",
            share=section.share,
            search_path=os.environ.get("PATH", os.defpath),
        )


def roots_of(section: values.AcpAgent) -> tuple[Path, ...]:
    """Return the folders that the configuration gives an agent."""
    given = [*section.roots, *([section.cwd] if section.cwd else [])]
    return tuple(Path(root).expanduser() for root in given)


def _settings(pool: values.Pool) -> PoolSettings:
    return PoolSettings(
        processes=pool.processes,
        sessions=pool.sessions_per_process or 0,
        has_prewarm=pool.prewarm,
        idle_s=pool.idle_s,
    )


def _is_same(one: values.AcpAgent, other: values.AcpAgent) -> bool:
    """Tell whether two configurations mean the same processes. What every kind of agent has is the
    backend's, and changes nothing here."""
    general = set(values.AgentSection.__struct_fields__)
    own = [key for key in values.AcpAgent.__struct_fields__ if key not in general]
    return all(getattr(one, key) == getattr(other, key) for key in own)
