"""Where platforms call us: `/hooks/{adapter}/{path}`.

No token is asked for. The adapter knows the platform's signature and checks it before anything
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
    """Return the headers by names in lower case; one that came twice is one list, as HTTP has it.
    Bytes that are no UTF-8 are replaced: no adapter has to expect half a character."""
    joined: dict[str, str] = {}
    for name, given in headers:
        key, value = name.lower(), storable(given)
        joined[key] = f"{joined[key]}, {value}" if key in joined else value
    return joined


async def _sent_and_then(
    request: web.Request, response: web.Response, afterwards: Callable[[], Awaitable[None]]
) -> None:
    """The work is done whether or not the platform stayed for the response."""
    # The next request must not wait in line behind the work.
    response.force_close()
    with suppress(ConnectionResetError):
        await response.prepare(request)
        await response.write_eof()
    try:
        await afterwards()
    except PerdureError as error:
        # The response is out, and an error cannot be another one.
        log.warning("work after a hook failed", path=request.path, error=error.message)
