"""Serves MCP by the official package, over HTTP and in all its versions: `--port`. `GET
/ready` answers 200, and `GET /running` which calls run."""

import argparse
import asyncio
import json
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

# The same key in every life, so that a question outlives the process.
KEY = "a key for tests, which is long enough"
server = MCPServer(
    "official", version="1", request_state_security=RequestStateSecurity(keys=[KEY.encode()])
)
running: set[str] = set()


class Colour(BaseModel):
    colour: str


class Size(BaseModel):
    size: int


async def which_colour() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


async def which_size() -> Elicit[Size]:
    return Elicit("Which size?", Size)


async def thought() -> Sample:
    content = TextContent(type="text", text="?")
    return Sample([SamplingMessage(role="user", content=content)], max_tokens=10)


async def folders() -> ListRoots:
    return ListRoots()


@server.tool()
async def paint(
    wall: str,
    colour: Annotated[Colour, Resolve(which_colour)],
    size: Annotated[Size, Resolve(which_size)],
) -> str:
    """Return how a wall was painted, in a colour and a size for which the person is asked."""
    return f"{wall} is {colour.colour} and {size.size}"


@server.tool()
async def think(answer: Annotated[CreateMessageResult, Resolve(thought)]) -> str:
    """Ask the client's model."""
    assert isinstance(answer.content, TextContent)
    return answer.content.text


@server.tool()
async def look(found: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """Ask the client for its roots."""
    return json.dumps([str(each.uri) for each in found.roots])


@server.tool()
async def route(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], ctx: Context
) -> str:
    """Return the header that routes the call."""
    return f"{region} by {(ctx.headers or {}).get('mcp-param-region')}"


@server.tool()
async def hold(name: str, ctx: Context) -> str:
    """Run until cancelled, and tell that it runs."""
    running.add(name)
    await ctx.report_progress(1, 2, "held")
    try:
        await asyncio.Event().wait()
    finally:
        running.discard(name)
    return ""


@server.tool()
async def change(ctx: Context) -> str:
    """Add a tool, and say so."""

    @server.tool()
    async def added() -> str:
        """Return a text."""
        return "added"

    await ctx.notify_tools_changed()
    return "changed"


@server.custom_route("/ready", methods=["GET"])  # type: ignore[untyped-decorator]
async def ready(request: Request) -> Response:
    return PlainTextResponse("ready")


@server.custom_route("/running", methods=["GET"])  # type: ignore[untyped-decorator]
async def what_runs(request: Request) -> Response:
    return PlainTextResponse(json.dumps(sorted(running)))


def main() -> None:
    """Read the options, and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--json", action="store_true", help="answer as JSON, and not as streams")
    given = parser.parse_args()
    app: Any = server.streamable_http_app(json_response=given.json)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
