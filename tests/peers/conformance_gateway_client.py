"""Plays a client of MCP for the official conformance suite, by the links of the gateway:
`conformance_gateway_client.py URL`."""

import asyncio
import json
import os
import sys
from typing import Any

from perdure.ports.system.outgoing import DIRECT
from perdure.tools.mcp.connecting import connect_address
from perdure.tools.mcp.link import InputGiven, InputNeeded, LinkTerms

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


def accepted(needed: InputNeeded) -> InputGiven:
    """Accept a form with the defaults of its fields."""
    fields: dict[str, dict[str, Any]] = json.loads(needed.schema)["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return InputGiven(action="accept", content=content, state=needed.state)


async def main() -> None:
    """Call every tool that the suite offers."""
    assert os.environ["MCP_CONFORMANCE_SCENARIO"]
    link = await connect_address(sys.argv[-1], {}, outgoing=DIRECT, terms=LinkTerms())
    for tool in await link.tools():
        arguments = ARGUMENTS.get(tool.name, {})
        answer = await link.call("call-1", tool.name, arguments, report=lambda _: None)
        while isinstance(answer, InputNeeded):
            given = accepted(answer)
            answer = await link.resume("call-1", tool.name, arguments, given, report=lambda _: None)
    await link.close()


if __name__ == "__main__":
    asyncio.run(main())
