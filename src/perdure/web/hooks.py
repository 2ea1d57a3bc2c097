"""Receives the requests of platforms at `/hooks/{adapter}/{path}`.

No token is required. The adapter knows the platform's signature, and checks it before anything
else.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog
from aiohttp import web

from perdure.domain.errors import NotFound, PerdureError
from perdure.domain.text import storable
from perdure.ports.platform.adapter import HookRequest
from perdure.web.http.bodies import bytes_of, too_deep
from perdure.web.services import Hook

PREFIX: Final = "/hooks/"
log = structlog.get_logger("web")


class HooksApi:
    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks

    def routes(self) -> list[web.RouteDef]:
        path = f"{PREFIX}{{adapter}}/{{path:.*}}"
        return [web.route(method, path, self.serve) for method in ("GET", "POST", "PUT")]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Hand a platform's request to its adapter, and send the adapter's answer."""
        adapter = request.match_info["adapter"]
        hook = self._hooks.get(adapter)
        if hook is None:
            raise NotFound(f"no platform {adapter!r} takes requests here; is it configured?")
        asked = HookRequest(
            method=request.method,
            path=request.match_info["path"],
            headers=_joined(request.headers.items()),
            query={name: request.query[name] for name in request.query},
            body=await bytes_of(request),
        )
        try:
            answer = await hook(asked)
        except RecursionError as error:
            raise too_deep() from error
        response = web.Response(
            status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type}
        )
        if answer.afterwards is not None:
            await _sent_and_then(request, response, answer.afterwards)
        return response


def _joined(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return the headers by lower-case name. A header that came twice is joined with commas, as
    HTTP defines it. Bytes that are not UTF-8 are replaced, so that no adapter has to expect
    them."""
    joined: dict[str, str] = {}
    for name, given in headers:
        key, value = name.lower(), storable(given)
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


async def _sent_and_then(
    request: web.Request, response: web.Response, afterwards: Callable[[], Awaitable[None]]
) -> None:
    """Send the response, then do the rest of the work, even if the platform has disconnected."""
    # Close the connection: otherwise the platform's next request on it would wait for this work.
    response.force_close()
    with suppress(ConnectionResetError):
        await response.prepare(request)
        await response.write_eof()
    try:
        await afterwards()
    except PerdureError as error:
        # The response is already sent, so the failure can only be logged.
        log.warning("work after a hook failed", path=request.path, error=error.message)
