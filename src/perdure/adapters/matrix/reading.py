"""Reads single events: decrypts them, and finds the earlier event that they refer to."""

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.adapters.matrix.events import ENCRYPTED, MESSAGE, STICKER, MatrixEvent, decoded
from perdure.adapters.matrix.hearing.history import History
from perdure.adapters.matrix.hearing.rooms import Room, Rooms
from perdure.adapters.matrix.inbound import (
    EarlierEvent,
    Scene,
    asks_about,
    envelope_of,
    looked_up,
    needs_known,
    remembered,
    understood,
)
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.platform.adapter import ArrivalReading

if TYPE_CHECKING:
    from perdure.adapters.matrix.encryption import Vault

# How many events are remembered. An older one costs a request to the server.
KNOWN_MAX: Final = 2_000


class EventReader:
    """Remembers the newest events, and asks the server for older ones."""

    def __init__(
        self, history: History, rooms: Rooms, *, my_name: str, vault: "Vault | None"
    ) -> None:
        self._history = history
        self._rooms = rooms
        self._my_name = my_name
        self._vault = vault
        self._known: OrderedDict[str, EarlierEvent] = OrderedDict()

    def opened(self, room: str, raw: msgspec.Raw) -> MatrixEvent | None:
        """Return the event, decrypted if it is encrypted and we have the key. Without the key the
        encrypted event itself is returned."""
        event = decoded(raw, MatrixEvent)
        if event is None or event.type != ENCRYPTED or self._vault is None:
            return event
        inside = self._vault.open(room, raw)
        return event if inside is None else _unsealed(event, decoded(inside, MatrixEvent))

    async def offer(
        self, room: Room, event: MatrixEvent, payload: bytes
    ) -> tuple[Arrival, ArrivalReading] | None:
        """Return an event's envelope and how to read the rest. Returns None for an event that is no
        message to anybody. The server is asked about an earlier event only if the decision who may
        speak depends on it."""
        scene = self._scene(room, event)
        about = asks_about(event)
        known = self._known.get(about)
        if known is None and needs_known(event, scene):
            known = await self._about(room.id, about)
        self._remember(event.event_id, remembered(event))
        envelope = envelope_of(event, scene, known)
        if envelope is None:
            return None
        return envelope, ArrivalReading(whole=partial(self._whole, event, scene), payload=payload)

    async def _whole(self, event: MatrixEvent, scene: Scene) -> Arrival | None:
        known = await self._about(scene.place, asks_about(event))
        return understood(event, scene, known)

    def _scene(self, room: Room, event: MatrixEvent) -> Scene:
        return Scene(
            place=room.id,
            kind=self._rooms.kind(room),
            label=room.label(),
            me=self._rooms.me,
            my_names=(self._my_name, room.names.get(self._rooms.me, "")),
            sender_name=room.name_of(event.sender),
        )

    async def _about(self, room: str, event_id: str) -> EarlierEvent | None:
        """Return what is known about an earlier event, and ask the server if it is not
        remembered."""
        if not event_id:
            return None
        if event_id not in self._known:
            raw = await self._history.event(room, event_id)
            event = self.opened(room, raw) if raw is not None else None
            if event is None:
                return None
            newest = self.opened(room, event.newest) if event.newest is not None else None
            self._remember(event_id, looked_up(event, newest))
        return self._known[event_id]

    def _remember(self, event_id: str, known: EarlierEvent) -> None:
        self._known[event_id] = known
        self._known.move_to_end(event_id)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)


def _unsealed(outside: MatrixEvent, inside: MatrixEvent | None) -> MatrixEvent | None:
    """Return the event with its decrypted type and content. Only messages and stickers are
    accepted: the server checks who may delete messages, and it cannot check a deletion inside an
    encrypted event. All other fields are the server's."""
    if inside is None or inside.type not in {MESSAGE, STICKER}:
        return None
    return msgspec.structs.replace(outside, type=inside.type, content=inside.content)
