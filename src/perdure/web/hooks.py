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
from perdure.ports.adapter import HookRequest, HookResponse

PREFIX: Final = "/hooks/"
Hook = Callable[[HookRequest], Awaitable[HookResponse]]
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
        answer = await hook(
            HookRequest(
                method=request.method,
                path=request.match_info["path"],
                headers=_joined(request.headers.items()),
                query={name: request.query[name] for name in request.query},
                body=await request.read(),
            )
        )
        response = web.Response(
            status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type}
        )
        if answer.afterwards is not None:
            await _sent_and_then(request, response, answer.afterwards)
        return response


def _joined(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """By names in lower case; a header that came twice is one list, as HTTP has it."""
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
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
