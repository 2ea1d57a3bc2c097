"""Reads older events of a room: the ones that a sync left out, and single events by id."""

from typing import Final

import msgspec
import structlog

from perdure.adapters.matrix.events import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    REDACTION,
    STICKER,
    HistoryPage,
    MatrixEvent,
    decoded,
)
from perdure.adapters.matrix.hearing.rooms import Room
from perdure.adapters.matrix.wire import FORBIDDEN, Wire, room_path, segment
from perdure.domain.errors import NotFound, Permanent

PAGE: Final = 100
# Fifty pages are 5,000 events: more than people write while a gateway restarts.
GAP_PAGES_MAX: Final = 50
INVITED_PAGES_MAX: Final = 5
_READ: Final = (MESSAGE, ENCRYPTED, REDACTION, STICKER, MEMBER)
_log = structlog.get_logger("matrix")


class History:
    """Reads the history of rooms. Its pages leave out the events that the bot sent itself."""

    def __init__(self, wire: Wire, *, me: str) -> None:
        self._wire = wire
        self._filter = msgspec.json.encode({"types": _READ, "not_senders": [me]}).decode()

    async def between(self, room: Room, newer: str, older: str) -> list[msgspec.Raw]:
        """Return all events after the position `older` and before `newer`, oldest first. Beyond
        `GAP_PAGES_MAX` pages the oldest events are left out, and a warning is logged."""
        found: list[msgspec.Raw] = []
        for _ in range(GAP_PAGES_MAX):
            page = await self._page(room, newer, until=older)
            found.extend(page.chunk)
            if not page.end or not page.chunk:
                break
            newer = page.end
        else:
            _log.warning(
                "a gap is too long, its beginning is not read", room=room.id, read=len(found)
            )
        return found[::-1]

    async def since_invited(self, room: Room, newer: str) -> list[msgspec.Raw]:
        """Return what was said before the position `newer`, back to our invitation, oldest
        first."""
        found: list[msgspec.Raw] = []
        for _ in range(INVITED_PAGES_MAX):
            page = await self._page(room, newer)
            found.extend(page.chunk)
            oldest = decoded(page.chunk[-1], MatrixEvent) if page.chunk else None
            if not page.end or oldest is None or not was_invited(oldest, room):
                break
            newer = page.end
        return found[::-1]

    async def event(self, room: str, event_id: str) -> msgspec.Raw | None:
        """Return one event, or None if it does not exist or we are not allowed to see it."""
        path = room_path(room, f"event/{segment(event_id)}")
        try:
            return await self._wire.call("GET", path, answer=msgspec.Raw)
        except NotFound:
            return None
        except Permanent as error:
            if error.code != FORBIDDEN:
                raise
            return None

    async def _page(self, room: Room, newer: str, *, until: str = "") -> HistoryPage:
        query = {"dir": "b", "from": newer, "limit": str(PAGE), "filter": self._filter}
        if until:
            query["to"] = until
        path = room_path(room.id, "messages")
        return await self._wire.call("GET", path, answer=HistoryPage, query=query)


def was_invited(event: MatrixEvent, room: Room) -> bool:
    """Tell whether we were in the room, or invited to it, when this was sent."""
    return event.unsigned.membership == "invite" or was_there(event, room)


def was_there(event: MatrixEvent, room: Room) -> bool:
    """Tell whether we were in the room when this was sent. Some servers do not say so; then the
    time at which we joined decides."""
    if event.unsigned.membership:
        return event.unsigned.membership == "join"
    return event.origin_server_ts >= room.joined_at_ms
