"""Reads the rooms by long polling. Everything of one batch is handed over before the next is asked
for.

A sync from a later position acknowledges everything before it, so the position moves only when all
of a batch was taken. If the process dies anywhere, the next one continues from the position in the
adapter's folder, and is offered again what was not taken.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from perdure.adapters.matrix.events import ENCRYPTED, JoinedRoom, MatrixEvent, Sync, decoded
from perdure.adapters.matrix.hearing.history import History, was_invited, was_there
from perdure.adapters.matrix.hearing.invitations import welcome
from perdure.adapters.matrix.hearing.rooms import DIRECT, Room, Rooms
from perdure.adapters.matrix.inbound import is_malformed
from perdure.adapters.matrix.login.keeping import WAITING_MAX, Cursor, Folder, UndecryptedEvent
from perdure.adapters.matrix.manifest import MatrixSettings
from perdure.adapters.matrix.reading import EventReader
from perdure.adapters.matrix.wire import CLIENT, SIGNED_OUT, Wire, room_path, segment
from perdure.domain.errors import NotFound, PerdureError, Permanent, Rejected
from perdure.domain.inbound.arrivals import departure
from perdure.ports.platform.adapter import ACCOUNT_WAIT, Inlet
from perdure.ports.system.clock import Clock

if TYPE_CHECKING:
    from perdure.adapters.matrix.encryption import Vault

# The time limit of the first sync. It returns all rooms at once, which takes long for a bot that is
# in many.
FIRST_S: Final = 300.0
POLL_S: Final = 30.0
# How much longer than the long poll we wait for its answer.
GRACE_S: Final = 15.0
TIMELINE_MAX: Final = 50
# How often the position is stored while nothing is taken. After a crash, at most the empty batches
# of this time are read again.
KEEP_EVERY_S: Final = 20.0
# How long an encrypted message waits for its key before it is given up.
WAITING_MS_MAX: Final = 24 * 3600 * 1000
_log = structlog.get_logger("matrix")


class Intake:
    """Reads all rooms, from where the last reading ended, until it is cancelled or fails. `nonce`
    is unique to this reading."""

    def __init__(  # noqa: PLR0913 - it joins what the adapter holds
        self,
        wire: Wire,
        rooms: Rooms,
        folder: Folder,
        *,
        settings: MatrixSettings,
        clock: Clock,
        nonce: str,
        my_name: str,
        vault: "Vault | None",
    ) -> None:
        self._wire = wire
        self._rooms = rooms
        self._folder = folder
        self._settings = settings
        self._clock = clock
        self._nonce = nonce
        self._vault = vault
        self._history = History(wire, me=rooms.me)
        self._reader = EventReader(self._history, rooms, my_name=my_name, vault=vault)
        self._unreadable: set[str] = set()
        self._cursor = Cursor(account=rooms.me, next_batch="")
        self._kept_at_s = clock.monotonic_s()
        self._read: dict[str, str] = {}

    async def run(self, inlet: Inlet) -> None:
        """Hand over everything that people write, until the connection fails. Raises what the wire
        raises."""
        await self._begin(inlet)
        while True:
            batch = await self._sync(self._cursor.next_batch)
            inlet.alive()
            before = self._cursor
            await self._take_batch(batch, inlet)
            invitations = welcome(batch, self._settings, me=self._rooms.me)
            joining = (*self._still_joining(batch), *invitations)
            self._move(next_batch=batch.next_batch, joining=tuple(dict.fromkeys(joining)))
            # The order matters. The invitations are stored before the rooms are joined: if the
            # process dies in between, the next one knows that it must read these rooms from the
            # invitation on. Read receipts come last: losing them loses no message.
            await self._keep(before)
            await self._join(invitations)
            await self._mark_read()
            if self._vault is not None:
                await self._vault.keep_up()

    async def _begin(self, inlet: Inlet) -> None:
        """Learn the rooms as they are now. Messages are read from the stored position. On the very
        first start there is none, and reading begins at this moment."""
        start = await self._sync("")
        inlet.alive()
        kept = await self._folder.cursor()
        if kept is not None and kept.account == self._rooms.me:
            self._cursor = kept
        else:
            self._move(next_batch=start.next_batch)
        self._rooms.fold_account(start.account_data)
        for room, update in start.rooms.join.items():
            self._rooms.fold(room, update)
        await self._absorb(start)
        if self._vault is not None:
            await self._vault.keep_up()
        invitations = welcome(start, self._settings, me=self._rooms.me)
        # Store first, then join. If the process dies in between, the next one knows that it must
        # read these rooms from the invitation on, whether it had joined them or not.
        self._move(joining=tuple(dict.fromkeys((*self._cursor.joining, *invitations))))
        await self._folder.keep(self._cursor)
        await self._join(invitations)

    async def _sync(self, since: str) -> Sync:
        query = {"filter": self._filter(is_first=not since), "timeout": "0"}
        if since:
            query |= {"since": since, "timeout": str(round(POLL_S * 1000))}
        timeout_s = POLL_S + GRACE_S if since else FIRST_S
        path = f"{CLIENT}/sync"
        return await self._wire.call("GET", path, answer=Sync, query=query, timeout_s=timeout_s)

    def _filter(self, *, is_first: bool) -> str:
        """Return the filter of a sync. The first sync uses a filter that was never used before:
        servers answer a repeated first sync from a cache for some minutes, and we need the rooms as
        they are now."""
        fresh = {"not_senders": [f"@{self._nonce}:fresh"]} if is_first else {}
        timeline = {"limit": 0 if is_first else TIMELINE_MAX, "not_senders": [self._rooms.me]}
        wanted = {
            "presence": {"types": []},
            "account_data": {"types": [DIRECT]},
            "room": {
                "timeline": timeline,
                "state": {"lazy_load_members": True},
                "ephemeral": {"types": [], **fresh},
                "account_data": {"types": []},
            },
        }
        return msgspec.json.encode(wanted).decode()

    async def _take_batch(self, batch: Sync, inlet: Inlet) -> None:
        """Hand over all messages of one batch, in order. Messages that waited for keys come
        first."""
        self._rooms.fold_account(batch.account_data)
        self._rooms.forget(batch.rooms.leave)
        for left in batch.rooms.leave:
            await inlet.take(departure(left))
        new = {room for room in batch.rooms.join if self._rooms.get(room) is None}
        rooms = {room: self._rooms.fold(room, each) for room, each in batch.rooms.join.items()}
        await self._absorb(batch)
        if batch.to_device.events:
            await self._take_waiting(inlet)
        for room_id, room in rooms.items():
            update = batch.rooms.join[room_id]
            for raw in await self._said(room, update, is_new=room_id in new):
                await self._take(room, raw, inlet)

    async def _absorb(self, batch: Sync) -> None:
        """Give the encryption library what this batch contains for it."""
        if self._vault is None:
            return
        rooms = ((room, self._rooms.get(room)) for room in batch.rooms.join)
        encrypted = {
            room: batch.rooms.join[room] for room, found in rooms if found and found.is_encrypted
        }
        await self._vault.absorb(batch, encrypted)

    async def _said(self, room: Room, update: JoinedRoom, *, is_new: bool) -> list[msgspec.Raw]:
        """Return the events of a room in this batch, with those that the server left out, oldest
        first. For a room that is new to us these begin when we joined or were invited, because
        people write before the bot has joined."""
        timeline = update.timeline
        events = list(timeline.events)
        if room.id in self._cursor.joining:
            if timeline.limited:
                events = await self._history.since_invited(room, timeline.prev_batch) + events
            return _those(events, lambda event: was_invited(event, room))
        if is_new:
            return _those(events, lambda event: was_there(event, room))
        if timeline.limited:
            older = self._cursor.next_batch
            events = await self._history.between(room, timeline.prev_batch, older) + events
        return events

    async def _take(self, room: Room, raw: msgspec.Raw, inlet: Inlet) -> None:
        """Hand over one event. Malformed events are kept for a person to look at, and encrypted
        events whose key is missing wait for it."""
        event = self._reader.opened(room.id, raw)
        if event is None or event.state_key is not None:
            return
        if event.type == ENCRYPTED and not event.is_redacted:
            await self._set_aside(room, raw, event, inlet)
            return
        if is_malformed(event) and event.sender != self._rooms.me:
            await inlet.spoil(event.event_id, bytes(raw).decode(), "its content is malformed")
            return
        payload = bytes(raw)
        async with inlet.handling(event.event_id, payload) as may_read:
            if may_read:
                await self._handle(room, event, payload, inlet)

    async def _handle(self, room: Room, event: MatrixEvent, payload: bytes, inlet: Inlet) -> None:
        offer = await self._reader.offer(room, event, payload)
        if offer is None:
            return
        try:
            await inlet.take(*offer)
        except Rejected as error:
            _log.info("a message was refused", event_id=event.event_id, reason=error.code)
        self._read[room.id] = event.event_id

    async def _set_aside(
        self, room: Room, raw: msgspec.Raw, event: MatrixEvent, inlet: Inlet
    ) -> None:
        """Keep an event whose key is missing. Keys arrive separately, and may arrive later."""
        if event.sender == self._rooms.me:
            return
        if self._vault is not None:
            _log.warning("a message waits for its key", room=room.id, event_id=event.event_id)
            waiting = UndecryptedEvent(
                room=room.id, since_ms=self._clock.now_ms(), event=raw.copy()
            )
            await self._await_keys((*self._cursor.waiting, waiting), inlet)
        elif room.id not in self._unreadable:
            self._unreadable.add(room.id)
            _log.warning(
                "an encrypted room is not read",
                room=room.id,
                remedy="set encryption = true in [adapters.matrix]",
            )

    async def _take_waiting(self, inlet: Inlet) -> None:
        """Try again to decrypt the events that wait for keys. Called when new keys may have
        come."""
        waiting = self._cursor.waiting
        self._move(waiting=())
        for each in waiting:
            room = self._rooms.get(each.room)
            opened = self._reader.opened(each.room, each.event)
            if room is None or opened is None:
                continue
            if opened.type != ENCRYPTED:
                await self._take(room, each.event, inlet)
            elif self._clock.now_ms() - each.since_ms < WAITING_MS_MAX:
                self._move(waiting=(*self._cursor.waiting, each))
            else:
                await self._give_up(each, inlet)

    async def _await_keys(self, waiting: tuple[UndecryptedEvent, ...], inlet: Inlet) -> None:
        """Set the list of events that wait for keys. The oldest are given up when there are too
        many."""
        for oldest in waiting[:-WAITING_MAX]:
            await self._give_up(oldest, inlet)
        self._move(waiting=waiting[-WAITING_MAX:])

    async def _give_up(self, waiting: UndecryptedEvent, inlet: Inlet) -> None:
        """Put an event that could not be decrypted aside, for a person to look at."""
        event = decoded(waiting.event, MatrixEvent)
        event_id = event.event_id if event else ""
        _log.warning("a message was given up, its key never came", event_id=event_id)
        await inlet.spoil(event_id, bytes(waiting.event).decode(), "its key never came")

    async def _join(self, rooms: list[str]) -> None:
        """Accept the invitations. One that cannot be accepted is logged and forgotten."""
        for room in rooms:
            try:
                path = f"{CLIENT}/join/{segment(room)}"
                await self._wire.call("POST", path, body={}, answer=msgspec.Raw)
            except (NotFound, Permanent) as error:
                if error.code == SIGNED_OUT:
                    raise
                _log.warning("an invitation cannot be taken", room=room, reason=error.message)
                self._move(joining=tuple(each for each in self._cursor.joining if each != room))

    def _still_joining(self, batch: Sync) -> list[str]:
        """Return the rooms whose invitation we accepted and whose messages are still to come."""
        ended = {*batch.rooms.join, *batch.rooms.leave}
        return [room for room in self._cursor.joining if room not in ended]

    def _move(self, **changes: object) -> None:
        self._cursor = msgspec.structs.replace(self._cursor, **changes)

    async def _keep(self, before: Cursor) -> None:
        """Store the position: at once when something was taken or changed, else every
        `KEEP_EVERY_S`. Reading an empty batch twice costs little."""
        now_s = self._clock.monotonic_s()
        was, now = before, self._cursor
        is_changed = (was.joining, was.waiting) != (now.joining, now.waiting)
        if self._read or is_changed or now_s - self._kept_at_s >= KEEP_EVERY_S:
            await self._folder.keep(now)
            self._kept_at_s = now_s

    async def _mark_read(self) -> None:
        """Show people that their messages arrived. Failures do not matter, except a wait that the
        server names for the account: the caller must keep it, so it is raised."""
        read, self._read = self._read, {}
        for room, event in read.items():
            path = room_path(room, f"receipt/m.read/{segment(event)}")
            try:
                await self._wire.call("POST", path, body={}, answer=msgspec.Raw)
            except PerdureError as error:
                if error.code == ACCOUNT_WAIT:
                    raise
                _log.debug("not marked as read", room=room, reason=error.code)


def _those(raws: list[msgspec.Raw], test: Callable[[MatrixEvent], bool]) -> list[msgspec.Raw]:
    """Return the raw events that pass the test, without those that cannot be decoded."""
    found = ((raw, decoded(raw, MatrixEvent)) for raw in raws)
    return [raw for raw, event in found if event is not None and test(event)]
