"""Streams a conversation as server-sent events. A client resumes with `Last-Event-ID`."""

from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Final

import msgspec
import structlog
from aiohttp import web

from perdure.domain.errors import PerdureError
from perdure.domain.turn.endings import Audience
from perdure.domain.turn.watching import NAMES, News, Position, Told, position
from perdure.ports.records.history import ConversationView
from perdure.web.access import PRINCIPAL
from perdure.web.api.native import conversation_out, read_along
from perdure.web.audiences import as_told, audience_of
from perdure.web.http.outlet import Outlet
from perdure.web.services import Services

SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}
KEEP_ALIVE = b": still here\n\n"
# Bounds of the frames kept for sharing. A frame that was dropped is encoded again when needed.
FRAMES_MAX: Final = 200
FRAMES_BYTES: Final = 4 * 1024 * 1024
_encoder = msgspec.json.Encoder()
log = structlog.get_logger("web")


def frame(at: Position, news: News) -> bytes:
    """Encode one piece of news as a server-sent event. Its id is the position to resume after."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        str(at).encode(),
        NAMES[type(news)].encode(),
        _encoder.encode(news),
    )


def list_frame(views: Sequence[ConversationView]) -> bytes:
    """Encode conversations that have changed as a server-sent event."""
    shown = [conversation_out(view) for view in views]
    return b"event: conversations\ndata: %s\n\n" % _encoder.encode({"conversations": shown})


class Frames:
    """Keeps recently encoded frames. All watchers of a conversation are given the same objects, so
    each object is encoded once per audience instead of once per watcher."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, Audience], tuple[Told, bytes]] = {}
        self._bytes = 0

    def of(self, told: Told, audience: Audience) -> bytes:
        """Return the frame for one object and audience, and encode it if it is not kept."""
        key = (id(told), audience)
        kept = self._kept.get(key)
        # An `id` may be reused after its object is gone, so the object itself is compared as well.
        if kept is not None and kept[0] is told:
            return kept[1]
        at, news = told
        encoded = frame(at, as_told(news, audience))
        self._keep(key, (told, encoded))
        return encoded

    def _keep(self, key: tuple[int, Audience], frame: tuple[Told, bytes]) -> None:
        self._kept[key] = frame
        self._bytes += len(frame[1])
        while len(self._kept) > FRAMES_MAX or (self._bytes > FRAMES_BYTES and len(self._kept) > 1):
            _, forgotten = self._kept.pop(next(iter(self._kept)))
            self._bytes -= len(forgotten)


class EventsApi:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._frames = Frames()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/conversations/{name}/events", self.events),
            web.get("/api/events", self.lists),
        ]

    async def lists(self, request: web.Request) -> web.StreamResponse:
        """Send the caller's newest conversations and then those that change, until the client
        disconnects. The first piece after each connection is the whole first page of the list."""
        by = request[PRINCIPAL]
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        outlet = Outlet(request)
        with suppress(ConnectionResetError):
            async with aclosing(self._services.watchers.lists(by.id)) as stream:
                try:
                    async for views in stream:
                        await outlet.write(list_frame(views) if views else KEEP_ALIVE)
                except PerdureError as error:
                    log.debug("events ended", path=request.path, error=error.message)
        return response

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send a conversation's events from the client's last id on, until the client
        disconnects."""
        last = request.headers.get("Last-Event-ID") or request.query.get("last_event_id")
        after = position(last) if last else None
        by = request[PRINCIPAL]
        snapshot = await read_along(self._services, by, request.match_info["name"])
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        outlet, audience = Outlet(request), audience_of(by)
        watching = self._services.watchers.conversation(snapshot.view.id, after=after)
        # The stream ends when the client disconnects or stops reading; it resumes by its last id.
        with suppress(ConnectionResetError):
            async with aclosing(watching) as stream:
                try:
                    async for told in stream:
                        frames = [self._frames.of(each, audience) for each in told]
                        await outlet.write(b"".join(frames) or KEEP_ALIVE)
                except PerdureError as error:
                    # The headers are already sent, so no error status is possible. The client
                    # resumes by its last id.
                    log.debug("events ended", path=request.path, error=error.message)
        return response
