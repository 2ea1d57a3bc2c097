"""Combines all HTTP surfaces into one aiohttp application."""

from typing import Final

from aiohttp import web, web_response

from perdure.web import openapi, pages, routes
from perdure.web.access import TokenCheck
from perdure.web.api.events import EventsApi
from perdure.web.api.media import MediaApi
from perdure.web.hooks import HooksApi
from perdure.web.http.answers import GUARDS, errors_as_json
from perdure.web.http.callers import Callers
from perdure.web.http.request_limits import attended
from perdure.web.long_reads import LONG_READS, LongReads
from perdure.web.measuring.tally import Tally
from perdure.web.openai.completions import OpenAiApi
from perdure.web.openai.responses import ResponsesApi
from perdure.web.ops.health import HealthApi
from perdure.web.ops.verifying import VerifyApi
from perdure.web.services import Services

SERVER: Final = "Perdure"
# Without this, every answer would reveal the HTTP library and its version.
web_response.SERVER_SOFTWARE = SERVER  # type: ignore[attr-defined]


async def _guard(_: web.Request, response: web.StreamResponse) -> None:
    """Add to every answer the guards that it does not set itself."""
    for name, value in GUARDS.items():
        response.headers.setdefault(name, value)


def application(services: Services, tally: Tally) -> web.Application:
    """Build the application."""
    callers = Callers(proxies=services.proxies, hosts=services.hosts)
    access = TokenCheck(
        services.principals, services.condition, services.clock, callers, gate=services.gate
    )
    app = web.Application(
        client_max_size=services.body_bytes_max,
        # The outermost comes first: errors of the token check must become JSON too.
        middlewares=[attended, errors_as_json, access.middleware],
    )
    app[LONG_READS] = LongReads()
    app.add_routes(routes.routes(services, access))
    app.add_routes(MediaApi(services).routes())
    app.add_routes(EventsApi(services).routes())
    app.add_routes(VerifyApi(services).routes())
    app.add_routes(OpenAiApi(services).routes())
    app.add_routes(ResponsesApi(services).routes())
    app.add_routes(HooksApi(services.hooks).routes())
    app.add_routes(HealthApi(services, tally).routes())
    app.add_routes(openapi.routes(services.info.version))
    app.add_routes(pages.routes())

    async def leave(_: web.Application) -> None:
        """End all watches, so that clients are told of the end while their connections still
        exist."""
        services.watchers.close()

    app.on_shutdown.append(leave)
    app.on_response_prepare.append(_guard)
    if services.is_shared:
        app.cleanup_ctx.append(access.watch_others)
    return app
