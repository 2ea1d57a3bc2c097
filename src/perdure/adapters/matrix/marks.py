"""Adds and removes the bot's reactions on people's messages.

The server is asked which reactions there are, so another process can remove one than the process
that added it.
"""

import msgspec

from perdure.adapters.matrix.events import REACTION, HistoryPage, MessageContent, all_of, decoded
from perdure.adapters.matrix.hearing.rooms import Rooms
from perdure.adapters.matrix.render import ReactionContent, Relates
from perdure.adapters.matrix.wire import Wire, room_path, segment
from perdure.domain.delivery import GONE
from perdure.domain.errors import NotFound, Permanent

_ANNOTATION = "m.annotation"


class _Sent(msgspec.Struct, frozen=True):
    event_id: str


class Marks:
    """Sets the bot's reactions in the rooms of one account."""

    def __init__(self, wire: Wire, rooms: Rooms) -> None:
        self._wire = wire
        self._rooms = rooms

    async def put(self, room: str, event: str, emoji: str, nonce: str) -> str:
        """Make `emoji` the bot's only reaction on a message, and remove the others. An empty one
        removes all. Returns the id of the reaction, or `GONE` if there is none."""
        try:
            standing = await self._standing(room, event)
        except NotFound:
            if emoji:
                raise
            return GONE
        for mark, key in standing.items():
            if key != emoji:
                path = room_path(room, f"redact/{segment(mark)}/{segment(nonce + mark)}")
                await self._wire.call("PUT", path, body={}, answer=msgspec.Raw)
        if not emoji or emoji in standing.values():
            return next((mark for mark, key in standing.items() if key == emoji), GONE)
        return await self._add(room, event, emoji, nonce)

    async def _add(self, room: str, event: str, emoji: str, nonce: str) -> str:
        """Add a reaction. If the server has it already, that counts as success."""
        relation = Relates(rel_type=_ANNOTATION, event_id=event, key=emoji)
        path = room_path(room, f"send/{REACTION}/{segment(nonce)}")
        content = ReactionContent(relates_to=relation)
        try:
            return (await self._wire.call("PUT", path, body=content, answer=_Sent)).event_id
        except Permanent as error:
            if error.code != "M_DUPLICATE_ANNOTATION":
                raise
            return event

    async def _standing(self, room: str, event: str) -> dict[str, str]:
        """Return the bot's reactions on the message: emoji by event id."""
        path = room_path(room, f"relations/{segment(event)}/{_ANNOTATION}/{REACTION}")
        page = await self._wire.call(
            "GET", path.replace("/v3/", "/v1/", 1), answer=HistoryPage, query={"limit": "100"}
        )
        mine = (each for each in all_of(page.chunk) if each.sender == self._rooms.me)
        marks = ((each.event_id, decoded(each.content, MessageContent)) for each in mine)
        return {
            mark: content.relates_to.key
            for mark, content in marks
            if content and content.relates_to
        }
