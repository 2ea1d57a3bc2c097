"""Server-sent events, resumable by `Last-Event-ID`."""

from contextlib import aclosing, suppress

import msgspec
import structlog
from aiohttp import web

from perdure.domain.errors import PerdureError
from perdure.domain.watching import NAMES, News, Position, position
from perdure.web.audiences import as_told, audience_of
from perdure.web.native import NativeApi
from perdure.web.services import Services

SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
KEEP_ALIVE = b": still here\n\n"
_encoder = msgspec.json.Encoder()
log = structlog.get_logger("web")


def frame(at: Position, news: News) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        str(at).encode(),
        NAMES[type(news)].encode(),
        _encoder.encode(news),
    )


class EventsApi:
    def __init__(self, services: Services, native: NativeApi) -> None:
        self._services = services
        self._native = native

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/conversations/{name}/events", self.events)]

    async def events(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID") or request.query.get("last_event_id")
        after = position(last) if last else None
        snapshot = await self._native.find(request)
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        audience = audience_of(request)
        watching = self._services.watchers.conversation(snapshot.view.id, after=after)
        # A client that goes away ends the stream here; it comes back with its last id.
        with suppress(ConnectionResetError):
            async with aclosing(watching) as stream:
                try:
                    async for told in stream:
                        if told is None:
                            await response.write(KEEP_ALIVE)
                            continue
                        at, news = told
                        await response.write(frame(at, as_told(news, audience)))
                except PerdureError as error:
                    # The headers are out: to come back by the last id is the way on here too.
                    log.warning("events ended", path=request.path, error=error.message)
        return response
