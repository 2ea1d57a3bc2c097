"""Connects to tool servers. The official package is imported with the first connection."""

import asyncio
import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from perdure.ports.system.children import ChildProgram, Children
from perdure.ports.system.outgoing import Outgoing
from perdure.tools.mcp.link import LinkTerms, ServerLink

# These loggers write what servers say, with a traceback for each line that is no message.
_TALKATIVE: Final = ("client", "mcp", "httpx2")


async def connect_program(
    program: ChildProgram, *, children: Children, terms: LinkTerms
) -> ServerLink:
    """Start a tool server, and connect to it over its standard input and output. Raises `Rejected`
    if that cannot work as it is configured, and `Transient` if it may work later. Whatever happens,
    a program without a link does not stay."""
    await _import_wire()
    from perdure.tools.mcp.wire.opening import link_to_program  # noqa: PLC0415 - see above

    return await link_to_program(program, children=children, terms=terms)


async def connect_address(
    url: str, headers: Mapping[str, str], *, outgoing: Outgoing, terms: LinkTerms
) -> ServerLink:
    """Connect to a tool server that runs elsewhere, over HTTP. Raises as `connect_program`."""
    await _import_wire()
    from perdure.tools.mcp.wire.opening import link_to_address  # noqa: PLC0415 - see above

    return await link_to_address(url, headers, outgoing=outgoing, terms=terms)


async def _import_wire() -> None:
    """Import what connects. The first import takes most of a second, so a thread does it."""
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    await asyncio.to_thread(import_module, "perdure.tools.mcp.wire.opening")
