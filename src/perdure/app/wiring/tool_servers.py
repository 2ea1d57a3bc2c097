"""Hands the configured tool servers to those who run them."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.app.config.tool_values import (
    McpServer,
    ToolsConfig,
)
from perdure.domain.outcomes import Repeat
from perdure.ports.system.children import Children
from perdure.ports.system.outgoing import Outgoing
from perdure.tools.mcp.servers.servers import McpServers

if TYPE_CHECKING:
    from perdure.tools.mcp.servers.settings import ServerSettings

# How much longer than its question a call waits for a person, so that the answer is the first to
# come; and how long it waits where questions stay open for ever.
_MORE_S: Final = 60.0
_FOREVER_S: Final = 7 * 86_400.0


def take_over(
    servers: McpServers, tools: ToolsConfig, *, children: Children, outgoing: Outgoing
) -> None:
    """Give the servers what is configured now. Without any, nothing is loaded for them."""
    if not tools.mcp and not servers.views():
        return
    from perdure.tools.mcp.servers.reaching import reach  # noqa: PLC0415 - see above
    from perdure.tools.mcp.servers.settings import ServerTimings  # noqa: PLC0415

    waits_s = tools.answer_wait_s + _MORE_S if tools.answer_wait_s else _FOREVER_S
    servers.replace(
        [settings_of(name, server) for name, server in tools.mcp.items()],
        partial(reach, children=children, outgoing=outgoing),
        ServerTimings(waits_s=waits_s),
    )


def settings_of(name: str, server: McpServer) -> "ServerSettings":
    """Return what is configured of a server, as those who run it take it. Its secrets stay
    hidden."""
    from perdure.tools.mcp.calls.traits import RepeatRule  # noqa: PLC0415 - as above
    from perdure.tools.mcp.servers.settings import ServerSettings  # noqa: PLC0415

    repeat = {"*": server.repeat} if isinstance(server.repeat, str) else server.repeat
    return ServerSettings(
        name=name,
        command=(*(server.command or ()), *server.args),
        env=server.env,
        cwd=str(Path(server.cwd).expanduser()) if server.cwd else "",
        url=server.url or "",
        headers=server.headers,
        takes=server.tools,
        repeat=tuple(RepeatRule(glob, Repeat(each)) for glob, each in repeat.items()),
        timeout_s=server.timeout_s,
        is_shared=server.shared,
        may_sample=server.sampling,
    )
