"""Makes a link to a server as it is configured. Only here are the secrets for it revealed."""

from typing import Protocol

from perdure.ports.system.children import ChildProgram, Children
from perdure.ports.system.outgoing import Outgoing
from perdure.tools.mcp.connecting import connect_address, connect_program
from perdure.tools.mcp.link import LinkTerms, ServerLink
from perdure.tools.mcp.servers.settings import ServerSettings


class ReachServer(Protocol):
    """Makes a link to a server. Raises the errors of `connecting.py`."""

    async def __call__(self, settings: ServerSettings, *, terms: LinkTerms) -> ServerLink: ...


async def reach(
    settings: ServerSettings, *, children: Children, outgoing: Outgoing, terms: LinkTerms
) -> ServerLink:
    """Start the server, or connect to its address. Raises `Rejected` or `Transient`."""
    if settings.url:
        headers = {name: value.reveal() for name, value in settings.headers.items()}
        return await connect_address(settings.url, headers, outgoing=outgoing, terms=terms)
    env = {name: value.reveal() for name, value in settings.env.items()}
    program = ChildProgram(argv=settings.command, env=env, cwd=settings.cwd)
    return await connect_program(program, children=children, terms=terms)
