"""Keeps the two small files of the adapter's folder: the position in the sync, and the login.

Both are replaced as a whole: a new file is written, synced to disk, and renamed over the old one.
So after a crash there is the old file or the new one, never half of one. The stored position may be
behind what was handed over, but is never ahead of it. What is then read twice is recognized by its
event id.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from perdure.domain.errors import Permanent, Transient

CURSOR: Final = "sync.json"
LOGIN: Final = "login.json"
# How many events may wait for their keys. Beyond that the oldest are given up.
WAITING_MAX: Final = 200

_KeptT = TypeVar("_KeptT", "Cursor", "Login")


class UndecryptedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an encrypted event whose key has not arrived yet."""

    room: str
    since_ms: int
    event: msgspec.Raw


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how far the rooms were read. `joining` are rooms whose invitation we accept and whose
    messages since then are still to be read. `waiting` are events whose keys are missing."""

    v: int = 1
    account: str
    next_batch: str
    joining: tuple[str, ...] = ()
    waiting: tuple[UndecryptedEvent, ...] = ()


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the account, its device and its access token. `token` is empty while the sign-in runs:
    if the process dies then, the next one signs in as the same device."""

    v: int = 1
    homeserver: str
    user: str
    device_id: str
    token: str = ""


class Folder:
    """Reads and replaces both files; only the gateway's user may read them. A cancelled caller does
    not stop a replacement that has begun, so the next access waits for it: two writers at once
    would spoil the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing: asyncio.Future[None] | None = None

    async def cursor(self) -> Cursor | None:
        """Return the stored position, or None if there is none. Raises `Permanent` if it is
        unreadable."""
        await self.settled()
        return await asyncio.to_thread(self._read, CURSOR, Cursor)

    async def login(self) -> Login | None:
        """Return the stored login, or None if there is none. Raises `Permanent` if it is
        unreadable."""
        await self.settled()
        return await asyncio.to_thread(self._read, LOGIN, Login)

    async def keep(self, value: Cursor | Login) -> None:
        """Replace the file of the value. It is on disk when this returns. Raises `Transient` if the
        disk is full or refuses."""
        await self.settled()
        name = CURSOR if isinstance(value, Cursor) else LOGIN
        data = msgspec.json.encode(value)
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write, name, data)
        await asyncio.shield(self._writing)

    async def settled(self) -> None:
        """Wait until no file is being written."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait({self._writing})

    def _read(self, name: str, shape: type[_KeptT]) -> _KeptT | None:
        path = self.path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=shape)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, OSError) as error:
            raise Permanent(
                f"{path} cannot be read ({error}). Repair or remove it; without {CURSOR}, what was "
                "written while the gateway was down is not seen."
            ) from error

    def _write(self, name: str, data: bytes) -> None:
        """Write a new file, sync it, and rename it over the old one. If the process dies before the
        rename, the old file is still complete."""
        beside = self.path / f"{name}.new"
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path / name)
            self._sync_folder()
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise Transient(
                f"{self.path / name} cannot be written ({error}). Make room on the disk, or give "
                "the gateway the right to write there."
            ) from error

    def _sync_folder(self) -> None:
        """Sync the folder to disk. Without this, a power failure may undo the rename."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
