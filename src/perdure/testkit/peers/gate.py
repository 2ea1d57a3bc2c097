"""Stands before a server that cannot be told what to refuse.

All requests are passed on as they are, except those that a test has named. They are answered here,
and the server never sees them.
"""

import asyncio
import fnmatch
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

BODY_BYTES_MAX: Final = 64_000_000
# Headers that are about one connection only, or that are written again for the next connection.
_OWN: Final = frozenset(
    {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"}
)


class _GateRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Says how one request is answered: the next with this method whose path matches the pattern
    `path`."""

    method: str
    path: str
    status: int
    body: dict[str, Any] = {}


class PeerGate:
    """Serves at `url`, and passes requests on to `target`."""

    def __init__(self, target: str) -> None:
        self.url = ""
        self.refusals: list[_GateRefusal] = []
        self._target = target
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # No connection is kept open, because tests count open connections.
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        self._http = await self._stack.enter_async_context(session)
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_route("*", "/{path:.*}", self._serve)
        # If a client hangs up while it waits for news, its request to the server ends as well.
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def refuse(self, method: str, path: str, status: int, **body: object) -> None:
        """Refuse the next request with this method and path."""
        self.refusals.append(_GateRefusal(method=method, path=path, status=status, body=body))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        for refusal in self.refusals:
            if request.method == refusal.method and fnmatch.fnmatch(request.path, refusal.path):
                self.refusals.remove(refusal)
                return web.json_response(refusal.body, status=refusal.status)
        return await self._passed_on(request)

    async def _passed_on(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on, and return the server's answer."""
        assert self._http is not None
        headers = {name: each for name, each in request.headers.items() if name.lower() not in _OWN}
        try:
            async with self._http.request(
                request.method,
                f"{self._target}{request.raw_path}",
                data=await request.read(),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                said = {n: each for n, each in answer.headers.items() if n.lower() not in _OWN}
                return web.Response(status=answer.status, body=await answer.read(), headers=said)
        except (aiohttp.ClientError, asyncio.IncompleteReadError):
            return web.Response(status=502)
