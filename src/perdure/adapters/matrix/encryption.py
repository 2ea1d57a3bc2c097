"""Encrypts and decrypts for encrypted rooms. This is the one part of Matrix for which a library is
used.

`nio` keeps the keys, tracks devices, and encrypts and decrypts events. It is given only the parts
of a sync that concern encryption, piece by piece, so that input it cannot handle costs one event.
It talks to the server through our wire, which neither waits nor repeats.

Devices are trusted when they are first seen. Verifying one takes a person on both sides, and on our
side there is only a program.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import nio  # type: ignore[import-untyped]
import structlog
from nio.crypto import ENCRYPTION_ENABLED  # type: ignore[import-untyped]
from nio.crypto.attachments import (  # type: ignore[import-untyped]
    decrypt_attachment,
    encrypt_attachment,
)

from perdure.adapters.matrix.events import (
    ENCRYPTION,
    MEMBER,
    JoinedRoom,
    MatrixEvent,
    SealedFile,
    Sync,
    decoded,
    raw_of,
)
from perdure.adapters.matrix.manifest import ENCRYPTION_EXTRA
from perdure.adapters.matrix.wire import Wire
from perdure.domain.errors import PerdureError, Permanent, Transient

KEYS: Final = "keys"
# How many requests may be made to prepare one message for a room.
PREPARE_MAX: Final = 10
_log = structlog.get_logger("matrix")
# What the library raises on hostile or incomplete input, besides errors of its own.
_INDIGESTIBLE: Final = (
    nio.exceptions.EncryptionError,
    nio.exceptions.GroupEncryptionError,
    nio.exceptions.OlmTrustError,
    nio.exceptions.ProtocolError,
    AssertionError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
)


class _Client(nio.AsyncClient):  # type: ignore[misc]
    """Runs the library's client on our wire. `failures` collects the errors of its own requests,
    because the library swallows some of them."""

    def __init__(self, wire: Wire, folder: Path, user: str, device: str) -> None:
        config = nio.AsyncClientConfig(
            encryption_enabled=True, max_limit_exceeded=0, max_timeouts=0, store_sync_tokens=False
        )
        super().__init__("", user, device, str(folder), config)
        self._wire = wire
        self.failures: list[PerdureError] = []

    async def send(
        self,
        method: str,
        path: str,
        data: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        trace_context: object = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        try:
            async with self._wire.request(method, path, data, headers) as response:
                # aiohttp keeps the body, so the library can still read it after the request ended
                await response.read()
                return response
        except PerdureError as error:
            self.failures.append(error)
            raise


class Vault:
    """Holds the keys of one device, and encrypts and decrypts with them."""

    def __init__(self, wire: Wire, folder: Path, *, user: str, device: str) -> None:
        if not ENCRYPTION_ENABLED:
            raise Permanent(
                f"encryption = true needs more: pip install 'perdure[{ENCRYPTION_EXTRA}]', or "
                "remove it from [adapters.matrix]."
            )
        # The library logs every event that it sees.
        logging.getLogger("nio").setLevel(logging.ERROR)
        keys = folder / KEYS
        keys.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._client = _Client(wire, keys, user, device)
        self._client.restore_login(user, device, wire.token)
        # One request at a time: the library refuses to share a room's key while it is already
        # sharing it, and `failures` must belong to the caller whose request failed.
        self._asking = asyncio.Lock()

    def close(self) -> None:
        """Close the database of keys."""
        if self._client.store is not None:
            self._client.store.database.close()

    async def absorb(self, sync: Sync, encrypted: Mapping[str, JoinedRoom]) -> None:
        """Take in what a sync says about encryption: keys that were sent to us, changed devices,
        and the members of encrypted rooms."""
        for raw in sync.to_device.events:
            with _digesting("a message between devices"):
                parsed = nio.ToDeviceEvent.parse_event(msgspec.json.decode(raw))
                if not isinstance(parsed, nio.UnknownBadEvent | nio.BadEvent):
                    await self._receive(to_device=[parsed])
        joined = {room: _members(update) for room, update in encrypted.items()}
        counts = nio.DeviceOneTimeKeyCount(
            None, sync.device_one_time_keys_count.get("signed_curve25519")
        )
        lists = nio.DeviceList(list(sync.device_lists.changed), list(sync.device_lists.left))
        with _digesting("changes of devices and members"):
            await self._receive(joined=joined, counts=counts, lists=lists)
        for room, update in encrypted.items():
            if update.timeline.limited and room in self._client.rooms:
                # Members may have joined or left in the events that the server left out.
                self._client.rooms[room].members_synced = False

    async def _receive(
        self,
        *,
        to_device: list[Any] | None = None,
        joined: Mapping[str, Any] | None = None,
        counts: Any = None,
        lists: Any = None,
    ) -> None:
        """Give one piece of a sync to the library, in the form of a sync response of its own."""
        self._client.next_batch = ""  # the library ignores a batch whose name it has seen
        await self._client.receive_response(
            nio.SyncResponse(
                next_batch="absorbed",
                rooms=nio.Rooms({}, dict(joined or {}), {}),
                device_key_count=counts or nio.DeviceOneTimeKeyCount(None, None),
                device_list=lists or nio.DeviceList([], []),
                to_device_events=to_device or [],
                presence_events=[],
            )
        )

    async def keep_up(self) -> None:
        """Do what other devices expect from ours: send queued messages, publish our keys, and fetch
        theirs."""
        client = self._client
        async with self._asking:
            await client.send_to_device_messages()
            if client.should_upload_keys:
                await client.keys_upload()
            if client.should_query_keys:
                await client.keys_query()
            if client.should_claim_keys:
                await client.keys_claim(client.get_users_for_key_claiming())

    def open(self, room: str, raw: msgspec.Raw) -> msgspec.Raw | None:
        """Return the decrypted event, or None while we lack its key."""
        try:
            parsed = nio.Event.parse_event(msgspec.json.decode(raw))
            if not isinstance(parsed, nio.MegolmEvent):
                return None
            parsed.room_id = room
            inside = self._client.decrypt_event(parsed)
        except _INDIGESTIBLE:
            return None
        if isinstance(inside, nio.BadEvent | nio.UnknownBadEvent):
            return None
        return raw_of(inside.source)

    async def seal(self, room: str, kind: str, content: object) -> tuple[str, msgspec.Raw]:
        """Encrypt an event for everybody in the room. Returns the type and the content to send.
        Raises `Transient` if it cannot be encrypted now."""
        client = self._client
        async with self._asking:
            client.rooms.setdefault(room, nio.MatrixRoom(room, client.user_id)).encrypted = True
            try:
                await self._prepare(room)
                sealed_kind, sealed = client.encrypt(room, kind, msgspec.to_builtins(content))
            except _INDIGESTIBLE as error:
                raise Transient(f"It could not be encrypted for the room ({error}).") from error
        return sealed_kind, raw_of(sealed)

    async def _prepare(self, room: str) -> None:
        """Learn all members of the room and all their devices, and give them the room's key. People
        come and go during these requests, so this ends when nothing is left to ask."""
        client = self._client
        for _ in range(PREPARE_MAX):
            client.failures.clear()
            if not client.rooms[room].members_synced:
                await client.joined_members(room)
            elif client.should_query_keys:
                await client.keys_query()
            elif client.olm.should_share_group_session(room):
                await self._share(room)
            else:
                return

    async def _share(self, room: str) -> None:
        """Give the room's key to every device before it is used. The library goes on if some
        devices could not be reached, and these could never read the message. So the key is
        discarded and the error raised."""
        client = self._client
        try:
            await client.share_group_session(room, ignore_unverified_devices=True)
        finally:
            # An entry left behind by a failure would block every later message in the room.
            client.sharing_session.pop(room, None)
        if client.failures:
            client.invalidate_outbound_session(room)
            raise client.failures[0]


def seal_file(data: bytes) -> tuple[bytes, Mapping[str, object]]:
    """Encrypt a file. Returns the encrypted bytes, and the key with its parameters."""
    sealed, keys = encrypt_attachment(data)
    return sealed, keys


def open_file(sealed: bytes, file: SealedFile) -> bytes:
    """Decrypt a file. Raises `Permanent` if its key or its digest does not fit."""
    try:
        data: bytes = decrypt_attachment(sealed, file.key.k, file.hashes.sha256, file.iv)
    except _INDIGESTIBLE as error:
        raise Permanent(
            f"The file does not open with the key that came with it ({error}); ask for it again."
        ) from error
    return data


def _members(update: JoinedRoom) -> Any:
    """Return the state events about members and encryption, in the library's own types."""

    def parsed(events: tuple[msgspec.Raw, ...]) -> list[Any]:
        wanted = (raw for raw in events if _concerns_members(decoded(raw, MatrixEvent)))
        found = (nio.Event.parse_event(msgspec.json.decode(raw)) for raw in wanted)
        return [each for each in found if not isinstance(each, nio.BadEvent | nio.UnknownBadEvent)]

    timeline = nio.Timeline(parsed(update.timeline.events), limited=False, prev_batch="")
    return nio.RoomInfo(timeline, parsed(update.state.events), [], [])


def _concerns_members(event: MatrixEvent | None) -> bool:
    return event is not None and event.state_key is not None and event.type in {MEMBER, ENCRYPTION}


@contextlib.contextmanager
def _digesting(what: str) -> Iterator[None]:
    """Skip input that the library cannot handle, and log a warning."""
    try:
        yield
    except _INDIGESTIBLE as error:
        _log.warning("encryption passed something over", what=what, error=type(error).__name__)
