"""Holds all configured tool servers. Nothing is started before somebody needs it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.domain.ids import PrincipalId
from perdure.ports.system.clock import Clock
from perdure.ports.system.entropy import Entropy
from perdure.ports.turns.servers import ToolServerView, unknown_server

if TYPE_CHECKING:
    # A gateway without tool servers loads nothing for them.
    from perdure.tools.mcp.link import ListedPrompt, ServerAnswer, ServerLink
    from perdure.tools.mcp.servers.reaching import ReachServer
    from perdure.tools.mcp.servers.server import ToolServer
    from perdure.tools.mcp.servers.settings import ServerSettings, ServerTimings


class McpServers:
    """Implements `ToolServers`, and gives the servers to the agents that use them."""

    def __init__(self, *, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._by_name: dict[str, ToolServer] = {}
        self._retired: list[ToolServer] = []

    def replace(
        self,
        configured: Sequence["ServerSettings"],
        reach: "ReachServer",
        timings: "ServerTimings",
    ) -> None:
        """Take over a new configuration. Servers that are configured as before go on; the others
        end once their calls are over."""
        known = self._by_name
        self._by_name = {}
        for settings in configured:
            found = known.get(settings.name)
            if found is not None and found.settings == settings:
                self._by_name[settings.name] = known.pop(settings.name)
            else:
                self._by_name[settings.name] = self._new(settings, reach, timings)
        for gone in known.values():
            gone.retire()
        self._retired = [each for each in (*self._retired, *known.values()) if not each.is_over]

    def source(self, name: str) -> "ToolServer":
        """Return a configured server as a source of tools."""
        return self._by_name[name]

    async def prompts(self, name: str, principal: PrincipalId) -> "Sequence[ListedPrompt]":
        """Return the prompts of a server as they are now for this person."""
        return await self._known(name).prompts(principal)

    def known_prompts(self, name: str) -> "Sequence[ListedPrompt]":
        """Return the prompts of a server as far as they are known, without asking anybody."""
        return self._known(name).known_prompts()

    async def prompt(
        self, name: str, principal: PrincipalId, prompt: str, arguments: Mapping[str, str]
    ) -> "ServerAnswer":
        """Return what a prompt of a server says. Raises the errors of the link."""

        async def act(link: "ServerLink") -> "ServerAnswer":
            return await link.prompt(prompt, arguments)

        return await self._known(name).use(principal, act, may_repeat=True)

    def views(self) -> Sequence[ToolServerView]:
        return [server.view() for server in self._by_name.values()]

    def log(self, name: str) -> str:
        return self._known(name).log()

    async def close(self) -> None:
        """End all servers side by side, in bounded time."""
        servers = (*self._by_name.values(), *self._retired)
        await asyncio.gather(*(server.close() for server in servers))

    def _known(self, name: str) -> "ToolServer":
        if name not in self._by_name:
            raise unknown_server(name)
        return self._by_name[name]

    def _new(
        self, settings: "ServerSettings", reach: "ReachServer", timings: "ServerTimings"
    ) -> "ToolServer":
        from perdure.tools.mcp.servers.server import ToolServer  # noqa: PLC0415 - see above

        return ToolServer(
            settings, reach, clock=self._clock, entropy=self._entropy, timings=timings
        )
