"""Checks what a gateway offers of what a tool server lists."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.domain.ids import PrincipalId
from perdure.tools.mcp.link import ListedTool, ServerLink
from perdure.tools.mcp.server_log import ServerLog
from perdure.tools.mcp.servers.listing import LISTED_MAX, ServerListing, ServerOffer
from perdure.tools.mcp.servers.settings import ServerSettings

T = TypeVar("T")


class Unlinked:
    """Stands for a server that is never called."""

    name = "peer"
    may_sample = False

    async def use(
        self,
        principal: PrincipalId,
        act: Callable[[ServerLink], Awaitable[T]],
        *,
        may_repeat: bool,
        call: str = "",
    ) -> T:
        raise AssertionError("no tool is called here")


def listed(*tools: ListedTool, has_resources: bool = False, takes: tuple[str, ...] = ()) -> str:
    """Return the names of the tools that are made, and what the log says."""
    log = ServerLog()
    offer = ServerOffer(tools=tools, has_resources=has_resources)
    settings = ServerSettings(name="peer", takes=takes)
    listing = ServerListing(Unlinked(), settings, offer, log=log)
    return f"{' '.join(tool.name for tool in listing.tools)}|{log.text}"


def test_tools_that_are_too_much_together_are_left_out() -> None:
    long = "x" * (LISTED_MAX // 2)
    tools = [ListedTool(name=name, description=long) for name in ("a", "b", "c")]
    assert listed(*tools).startswith("peer__a|the tool 'b' and those after it are left out")


def test_a_schema_that_cannot_be_used_costs_its_tool_only() -> None:
    bad = ListedTool(name="bad", parameters='{"type": "array"}')
    assert listed(bad, ListedTool(name="good")).startswith("peer__good|the tool 'bad' is left out")


def test_a_servers_own_tool_for_resources_is_kept() -> None:
    assert listed(ListedTool(name="a"), has_resources=True) == "peer__a peer__resources|"
    assert listed(ListedTool(name="resources"), has_resources=True) == "peer__resources|"
    assert listed(ListedTool(name="a"), has_resources=True, takes=("a",)) == "peer__a|"
    assert listed(ListedTool(name="a"), has_resources=True, takes=("!resources",)) == "peer__a|"


def test_tools_are_shown_to_models_in_one_order() -> None:
    tools = [ListedTool(name=name) for name in ("b", "a.b", "c")]
    assert listed(*tools) == listed(*reversed(tools))
