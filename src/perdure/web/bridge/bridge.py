"""Implements the bridge to external agents: a server on loopback, and a socket for relays.

Both listen from the first binding on. The official package, which takes most of a second to load,
is loaded then, in a thread.
"""

import asyncio
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from aiohttp import web

from perdure.domain.errors import Transient
from perdure.ports.agents.bridge import BridgeAddress, BridgeCall
from perdure.web.bridge import relay
from perdure.web.bridge.asgi import answer_by
from perdure.web.bridge.bindings import BindingBook, LiveBinding

if TYPE_CHECKING:
    from perdure.web.bridge.tool_server import BridgeServer

PATH: Final = "/mcp"
BODY_MAX: Final = 4_000_000
SECRET_S: Final = 10.0
CLOSE_S: Final = 2.0
_LOOPBACK: Final = "127.0.0.1"
log = structlog.get_logger("bridge")


class ToolBridge:
    """Implements the `Bridge` port. Its socket is in `folder`, which is nobody else's; without one
    it makes a folder of its own."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._book = BindingBook()
        self._starting = asyncio.Lock()
        self._serving: asyncio.Task[None] | None = None
        self._server: BridgeServer | None = None
        self._url = ""
        self._socket = ""
        self._is_closed = False

    async def bind(
        self,
        tools: str,
        *,
        hear: Callable[[BridgeCall], None],
        is_cancelled: Callable[[int], None],
    ) -> LiveBinding:
        server = await self._started()
        binding = LiveBinding(hear=hear, is_cancelled=is_cancelled, forget=self._forget)
        binding.when_changed = server.tell
        binding.publish(tools)
        binding.address = BridgeAddress(
            url=self._url,
            token=binding.token,
            argv=(sys.executable, "-I", "-S", relay.__file__),
            env={"PERDURE_BRIDGE": self._socket, "PERDURE_BRIDGE_TOKEN": binding.token},
            connected=binding.connected,
        )
        self._book.add(binding)
        return binding

    async def close(self) -> None:
        self._is_closed = True
        for binding in self._book.all():
            binding.close()
        if self._serving is not None:
            self._serving.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self._serving}, timeout=CLOSE_S)

    def _forget(self, binding: LiveBinding) -> None:
        self._book.remove(binding)
        if self._server is not None:
            self._server.forget(binding)

    async def _started(self) -> "BridgeServer":
        """Begin to listen, unless that is done. Callers that come at once join one start."""
        async with self._starting:
            if self._is_closed:
                raise Transient("the gateway is stopping; no agent gets tools any more")
            if self._server is None or self._serving is None or self._serving.done():
                module = await asyncio.to_thread(import_module, "perdure.web.bridge.tool_server")
                server: BridgeServer = module.BridgeServer(self._book.find)
                is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._serving = asyncio.create_task(self._serve(server, is_ready))  # noqa: TID251 - `close` ends it
                try:
                    await asyncio.shield(is_ready)
                except OSError as error:
                    why = error.strerror or str(error)
                    raise Transient(f"agents cannot be given tools: {why}") from error
                self._server = server
            return self._server

    async def _serve(self, server: "BridgeServer", is_ready: "asyncio.Future[None]") -> None:
        """Serve until cancelled. The server of the package begins and ends in this task."""
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(server.running())
                await self._listen(stack, server)
                is_ready.set_result(None)
                await asyncio.Event().wait()
        except OSError as error:
            if is_ready.done():
                raise
            is_ready.set_exception(error)

    async def _listen(self, stack: AsyncExitStack, server: "BridgeServer") -> None:
        """Open the address and the socket."""
        runner = web.AppRunner(
            self._application(server),
            access_log=None,
            handle_signals=False,
            handler_cancellation=True,
            shutdown_timeout=CLOSE_S / 2,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        listening = socket.create_server((_LOOPBACK, 0))
        await web.SockSite(runner, listening).start()
        self._url = f"http://{_LOOPBACK}:{listening.getsockname()[1]}{PATH}"
        # Nobody else may enter the folder, so nobody else reaches the socket.
        folder = self._folder
        if folder is None:
            own = tempfile.TemporaryDirectory(prefix="perdure-bridge-")
            folder = Path(stack.enter_context(own))
        self._socket = str(folder / "socket")

        async def serve_relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve_relay(server, reader, writer)

        unix = await asyncio.start_unix_server(serve_relay, self._socket, limit=BODY_MAX)
        stack.callback(unix.close)

    def _application(self, server: "BridgeServer") -> web.Application:
        application = web.Application(client_max_size=BODY_MAX)

        async def answer(request: web.Request) -> web.StreamResponse:
            if problem := self._refusal(request):
                return problem
            return await answer_by(server.app, request, await request.read())

        application.router.add_route("*", PATH, answer)
        return application

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Refuse a request that no agent of ours has sent: of a page in a browser, by another name,
        or without a secret that opens anything."""
        host = request.headers.get("Host", "")
        if "Origin" in request.headers or f"http://{host}{PATH}" != self._url:
            return _refused(403, "this server is for the agents of the gateway only")
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or self._book.find(token) is None:
            return _refused(401, "this token opens nothing; its conversation may be over")
        return None

    async def _serve_relay(
        self, server: "BridgeServer", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one relay, once it has told a secret that opens a binding."""
        try:
            async with asyncio.timeout(SECRET_S):
                secret = await reader.readline()
            binding = self._book.find(secret.decode("ascii", "replace").strip())
            if binding is not None:
                await server.serve_line(binding, reader, writer)
        except (TimeoutError, ValueError, ConnectionError) as error:
            log.debug("a relay went away", error=str(error))
        finally:
            writer.close()


def _refused(status: int, words: str) -> web.Response:
    """Return an error envelope."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": words}}
    body = msgspec.json.encode(error)
    return web.Response(status=status, body=body, content_type="application/json")
