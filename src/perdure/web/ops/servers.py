"""Serves how the tool servers of the node are."""

from perdure.domain.text import storable
from perdure.ports.people.principals import Principal
from perdure.web import wire
from perdure.web.endpoints import endpoint
from perdure.web.services import Services


@endpoint("GET", "/api/tools/servers", "List tool servers and how they are", is_for_operators=True)
async def servers(services: Services, by: Principal) -> wire.ToolServersOut:
    """List the configured tool servers of this node."""
    return wire.ToolServersOut(servers=list(services.tool_servers.views()))


@endpoint(
    "GET",
    "/api/tools/servers/{name}/log",
    "Read the end of what a tool server has written",
    is_for_operators=True,
)
async def server_log(services: Services, by: Principal, name: str) -> wire.ServerLogOut:
    """Return the end of a tool server's log."""
    name = storable(name)
    return wire.ServerLogOut(name=name, log=services.tool_servers.log(name))
