"""The two small files of the adapter's folder: how far we have read, and who we signed in as.

Both are replaced whole: written beside, synced, renamed. So a crash leaves the old one or the new
one. The cursor is only ever behind what was handed over, never ahead; what is read twice is known
by its event id.
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
WAITING_MAX: Final = 200

_KeptT = TypeVar("_KeptT", "Cursor", "Login")


class UndecryptedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An encrypted event whose key has not come yet."""

    room: str
    since_ms: int
    event: msgspec.Raw


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """`joining` are rooms whose invitation we take: what was said there since it is still to be
    read."""

    v: int = 1
    account: str
    next_batch: str
    joining: tuple[str, ...] = ()
    waiting: tuple[UndecryptedEvent, ...] = ()


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """`token` is empty while the sign-in is under way: if we die there, the next one is of the
    same device."""

    v: int = 1
    homeserver: str
    user: str
    device_id: str
    token: str = ""


class Folder:
    """Where both are kept; nobody else may read it. Whoever is cancelled while a file is being
    replaced does not stop that, so the next one waits for it: two at once would spoil it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing: asyncio.Future[None] | None = None

    async def cursor(self) -> Cursor | None:
        await self.settled()
        return await asyncio.to_thread(self._read, CURSOR, Cursor)

    async def login(self) -> Login | None:
        await self.settled()
        return await asyncio.to_thread(self._read, LOGIN, Login)

    async def keep(self, value: Cursor | Login) -> None:
        await self.settled()
        name = CURSOR if isinstance(value, Cursor) else LOGIN
        data = msgspec.json.encode(value)
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, self._write, name, data)
        await asyncio.shield(self._writing)

    async def settled(self) -> None:
        """Nothing is being written any more."""
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
        """Without it the rename itself may be lost with the power."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
