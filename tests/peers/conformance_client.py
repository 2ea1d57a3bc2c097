"""Plays a client of MCP for the official conformance suite, by the client of the official package:
`conformance_client.py URL`. What fails here fails because of the suite or of that package."""

import asyncio
import os
import sys
from typing import Any

import mcp_types
from mcp import Client
from mcp.client.session import ClientRequestContext

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


async def accept(
    context: ClientRequestContext, params: mcp_types.ElicitRequestParams
) -> mcp_types.ElicitResult:
    """Accept a form with the defaults of its fields."""
    assert isinstance(params, mcp_types.ElicitRequestFormParams)
    fields: dict[str, dict[str, Any]] = params.requested_schema["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return mcp_types.ElicitResult(action="accept", content=content)


async def main() -> None:
    """Call every tool that the suite offers."""
    assert os.environ["MCP_CONFORMANCE_SCENARIO"]
    client = Client(sys.argv[-1], cache=None, mode="legacy", elicitation_callback=accept)
    async with client:
        for tool in (await client.list_tools()).tools:
            await client.call_tool(tool.name, ARGUMENTS.get(tool.name, {}))


if __name__ == "__main__":
    asyncio.run(main())
