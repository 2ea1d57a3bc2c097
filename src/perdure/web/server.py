"""Puts the surfaces together into one aiohttp application."""

from aiohttp import web

from perdure.web import openapi, pages
from perdure.web.access import Access
from perdure.web.answers import errors_as_json
from perdure.web.events import EventsApi
from perdure.web.health import HealthApi
from perdure.web.hooks import HooksApi
from perdure.web.media import MediaApi
from perdure.web.native import NativeApi
from perdure.web.openai import OpenAiApi
from perdure.web.pairings import PairingsApi
from perdure.web.parked import ParkedApi
from perdure.web.places import PlacesApi
from perdure.web.records import RecordsApi
from perdure.web.responses import ResponsesApi
from perdure.web.services import Services
from perdure.web.tally import Tally


def application(services: Services, tally: Tally) -> web.Application:
    access = Access(services.principals, services.clock)
    native = NativeApi(services)
    app = web.Application(
        client_max_size=services.body_bytes_max,
        middlewares=[errors_as_json, access.middleware],
    )
    app.add_routes(native.routes())
    app.add_routes(MediaApi(services).routes())
    app.add_routes(EventsApi(services, native).routes())
    app.add_routes(RecordsApi(services, access).routes())
    app.add_routes(PlacesApi(services).routes())
    app.add_routes(PairingsApi(services).routes())
    app.add_routes(ParkedApi(services).routes())
    app.add_routes(OpenAiApi(services).routes())
    app.add_routes(ResponsesApi(services).routes())
    app.add_routes(HooksApi(services.hooks).routes())
    app.add_routes(HealthApi(services, tally).routes())
    app.add_routes(openapi.routes(services.info.version))
    app.add_routes(pages.routes())

    async def leave(_: web.Application) -> None:
        """Whoever still waits is told so, while there is a connection to tell it by."""
        services.watchers.close()

    app.on_shutdown.append(leave)
    return app
