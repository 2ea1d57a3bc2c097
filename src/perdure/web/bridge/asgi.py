"""Answers a request of aiohttp's server by an ASGI application.

The official server of tools is such an application, and the gateway's HTTP server is aiohttp's.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from aiohttp import web

# How long an application may take to notice that nobody listens.
LEAVE_S: Final = 5.0
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class _Exchange:
    """Carries one request to the application and its answer back."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self._request = request
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self.response: web.StreamResponse | None = None

    async def receive(self) -> Message:
        """Return the body, and after that wait until nobody listens any more."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        """Note that nobody listens any more."""
        self._gone.set()

    async def send(self, message: Message) -> None:
        """Pass on a part of the answer. Once nobody listens any more, nothing is passed on."""
        try:
            await self._pass_on(message)
        except ConnectionError:
            self._gone.set()

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.response = web.StreamResponse(status=message["status"])
            for name, value in message.get("headers", ()):
                self.response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
            await self.response.prepare(self._request)
        elif message["type"] == "http.response.body" and self.response is not None:
            if body := message.get("body"):
                await self.response.write(body)
            if not message.get("more_body"):
                await self.response.write_eof()


async def answer_by(app: AsgiApp, request: web.Request, body: bytes) -> web.StreamResponse:
    """Let an application answer a request whose body was read already."""
    exchange = _Exchange(request, body)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.raw_path.encode(),
        "query_string": request.query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": None,
        "server": None,
    }
    told = app(scope, exchange.receive, exchange.send)
    answering = asyncio.ensure_future(told)  # noqa: TID251 - it ends with the request
    try:
        await asyncio.shield(answering)
    except asyncio.CancelledError:
        # Who hangs up after the last word has its answer: the application must not take that for a
        # failure, and forget the session that it has just opened.
        exchange.leave()
        await asyncio.wait({answering}, timeout=LEAVE_S)
        answering.add_done_callback(_heard)
        answering.cancel()
        raise
    return exchange.response or web.Response(status=500)


def _heard(answering: "asyncio.Future[None]") -> None:
    """Take note of how an answer has ended to which nobody listens."""
    if not answering.cancelled():
        answering.exception()
