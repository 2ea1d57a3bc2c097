"""Speaks the Model Context Protocol to agents, by the official package. Only `bridge.py` imports
this, when the first binding is made."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import mcp_types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from perdure import __version__
from perdure.web.bridge.asgi import AsgiApp
from perdure.web.bridge.bindings import GONE, LiveBinding

# How long a session that nobody uses is kept. Agents keep theirs while people are away.
IDLE_S: Final = 86_400.0
LINE_MAX: Final = 4_000_000
_Context = ServerRequestContext[Any, Any]


class BridgeServer:
    """Serves all bindings. `find` returns the binding that a bearer token opens."""

    def __init__(self, find: Callable[[str], LiveBinding | None]) -> None:
        self._find = find
        self._sessions: dict[LiveBinding, set[ServerSession]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._manager = StreamableHTTPSessionManager(
            self._server(self._by_request), session_idle_timeout=IDLE_S
        )

    @property
    def app(self) -> AsgiApp:
        """Return the application that answers HTTP requests."""
        return self._manager.handle_request

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the block ends. It begins and ends in one task."""
        async with self._manager.run():
            yield

    def tell(self, binding: LiveBinding) -> None:
        """Tell those who have listed a binding's tools that there are others now."""
        for session in self._sessions.get(binding, ()):
            task = asyncio.create_task(_say_changed(session))  # noqa: TID251 - it ends with the session
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    def forget(self, binding: LiveBinding) -> None:
        """Tell nobody of a binding any more."""
        self._sessions.pop(binding, None)

    async def serve_line(
        self,
        binding: LiveBinding,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Serve one connection of a relay until it ends: a message on each line."""
        server = self._server(lambda _: binding)
        heard, hear = create_context_streams[SessionMessage | Exception](0)
        say, said = create_context_streams[SessionMessage](0)
        async with heard, hear, say, said, asyncio.TaskGroup() as group:
            reading = group.create_task(_read_lines(reader, heard))
            writing = group.create_task(_write_lines(writer, said))
            try:
                await server.run(hear, say, server.create_initialization_options())
            finally:
                reading.cancel()
                writing.cancel()

    def _by_request(self, context: _Context) -> LiveBinding | None:
        """Return the binding whose secret a request carries."""
        request = context.request
        given = "" if request is None else request.headers.get("authorization", "")
        return self._find(given.removeprefix("Bearer "))

    def _server(self, whose: Callable[[_Context], LiveBinding | None]) -> Server[Any]:
        async def list_tools(
            context: _Context, _: mcp_types.PaginatedRequestParams | None
        ) -> mcp_types.ListToolsResult:
            binding = whose(context)
            if binding is None:
                return mcp_types.ListToolsResult(tools=[])
            self._sessions.setdefault(binding, set()).add(context.session)
            tools = [
                mcp_types.Tool(
                    name=each.name, description=each.description, input_schema=each.parameters
                )
                for each in binding.tools
            ]
            binding.connected.set()
            return mcp_types.ListToolsResult(tools=tools)

        async def call_tool(
            context: _Context, params: mcp_types.CallToolRequestParams
        ) -> mcp_types.CallToolResult:
            binding = whose(context)
            if binding is None:
                return _result(GONE, is_error=True)
            answer = await binding.call(params.name, params.arguments or {})
            return _result(answer.text, is_error=answer.is_error)

        return Server(
            "perdure", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool
        )


def _result(text: str, *, is_error: bool) -> mcp_types.CallToolResult:
    content = [mcp_types.TextContent(type="text", text=text)]
    return mcp_types.CallToolResult(content=content, is_error=is_error)  # type: ignore[arg-type]


async def _say_changed(session: ServerSession) -> None:
    # A session that has ended meanwhile, or that nobody listens to, raises many things.
    with suppress(Exception):
        await session.send_tool_list_changed()


async def _read_lines(reader: asyncio.StreamReader, heard: Any) -> None:
    """Hand over each line as a message. A line that is none is handed over as an error."""
    async with heard:
        while line := await reader.readline():
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line)
            except ValidationError as error:
                await heard.send(error)
                continue
            await heard.send(SessionMessage(message))


async def _write_lines(writer: asyncio.StreamWriter, said: Any) -> None:
    """Write each message on a line."""
    async for each in said:
        text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
        writer.write(text.encode() + b"\n")
        await writer.drain()
