"""Ensures that every request ends.

A body must arrive at a minimum pace, and a connection that has not signed in is closed after its
answer.
"""

from typing import Final

from aiohttp import StreamReader, web

from perdure.ports.system.time_limits import Timer, running_time
from perdure.web.http.answers import BodyTooSlow, Handler
from perdure.web.http.doorway import Served

# Every body may take `BODY_S`. Signed-in callers get more time in proportion to what has arrived.
BODY_S: Final = 20.0
BODY_BYTES_PER_S: Final = 8 * 1024


@web.middleware
async def attended(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Handle a request while its body is watched. Closes the connection afterwards if its caller
    has not signed in."""
    served = request.protocol
    if not isinstance(served, Served):
        return await handler(request)
    watch = None if request.content.is_eof() else BodyWatch(request.content, served)
    try:
        with served.at_work():
            response = await handler(request)
    finally:
        if watch is not None:
            watch.end()
    if not served.has_signed_in and not response.prepared:
        response.force_close()
    return response


class BodyWatch:
    """Ends a body that comes too slowly: its reader gets `BodyTooSlow`."""

    def __init__(self, body: StreamReader, served: Served) -> None:
        self._body = body
        self._served = served
        served.body = body
        self._begun_s = running_time().now_s()
        self._timer = Timer(self._begun_s + BODY_S, self._look)

    def _look(self) -> None:
        if self._body.is_eof():
            return
        brought = self._body.total_bytes if self._served.has_signed_in else 0
        due_s = self._begun_s + BODY_S + brought / BODY_BYTES_PER_S
        if due_s > running_time().now_s():
            self._timer = Timer(due_s, self._look)
        else:
            self._body.set_exception(BodyTooSlow())

    def end(self) -> None:
        """Stop watching."""
        self._served.body = None
        self._timer.cancel()
