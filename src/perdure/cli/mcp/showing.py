"""Implements `perdure mcp list` and `logs`."""

from perdure.app.config import loading as config
from perdure.app.operate.client import node_client
from perdure.cli.exits import complain
from perdure.cli.mcp.words import state_in_words
from perdure.cli.printing import clean, print_json
from perdure.cli.tables import print_table
from perdure.cli.target import CommandTarget, not_running, running
from perdure.ports.turns.servers import ServerState, ToolServerView
from perdure.web import wire
from perdure.web.ops import servers as endpoints


async def list_servers(target: CommandTarget) -> None:
    """Print the tool servers of the node. Without a node, print those that are configured."""
    node = await node_client(target.home, target.environ)
    if node is not None:
        found = await node.ask(endpoints.servers)
    else:
        found = wire.ToolServersOut(servers=_configured(target))
        complain(f"this is only what is configured, because {(await not_running(target)).message}")
    if target.is_json:
        print_json(found)
    elif not found.servers:
        print("no tool server is configured; [tools.mcp.NAME] adds one")
    else:
        print_table(
            ["NAME", "KIND", "STATE", "TOOLS", "LINKS", "CALLS", "FAILED", "SERVER", "WHY"],
            map(_row, found.servers),
        )


def _configured(target: CommandTarget) -> list[ToolServerView]:
    """Return the tool servers that the configuration names."""
    settings = config.load(target.home, target.environ)
    return [
        ToolServerView(
            name=name,
            kind="program" if each.command else "address",
            state=ServerState.NOT_STARTED,
            is_shared=each.shared,
        )
        for name, each in settings.tools.mcp.items()
    ]


def _row(view: ToolServerView) -> list[str]:
    counts = map(str, (view.tools, view.links, view.calls, view.failures))
    return [view.name, view.kind, state_in_words(view.state), *counts, view.version, view.why]


async def logs(target: CommandTarget, *, name: str) -> None:
    """Print the end of what a tool server has written, as the node knows it."""
    node = await running(target)
    found = await node.ask(endpoints.server_log, name)
    if target.is_json:
        print_json(found)
    elif found.log:
        print(clean(found.log.rstrip("\n")))
    else:
        complain(f"{name} has written nothing yet")
