"""Files that came with messages: bytes by digest in a folder, rows in the database.

The bytes are written to a temporary file, synced and renamed before their row is committed, so a
row never lacks its bytes. If we die in between, the bytes are there without a row, and the next
upload of the same content simply finds them.
"""

import asyncio
import contextlib
import hashlib
import os
from functools import partial
from pathlib import Path

from perdure.domain.errors import NotFound, Transient
from perdure.domain.ids import MediaId, PrincipalId
from perdure.ports.media import Media
from perdure.store.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations import media as operations


class StoredMedia:
    def __init__(self, driver: Driver, mint: Mint, folder: Path) -> None:
        self._driver = driver
        self._mint = mint
        self._folder = folder

    async def put(self, data: bytes, *, mime: str, name: str, principal: PrincipalId) -> Media:
        digest = hashlib.sha256(data).hexdigest()
        media = Media(
            id=MediaId(self._mint.id("med")), mime=mime, name=name, size=len(data), digest=digest
        )
        await asyncio.to_thread(self._write, digest, data, media.id)
        await self._driver.write(partial(operations.put, media, principal, at=self._mint.now_ms()))
        return media

    async def get(self, media: MediaId, *, principal: PrincipalId | None) -> Media:
        return await self._driver.read(partial(operations.get, media, principal=principal))

    async def read(self, media: MediaId) -> bytes:
        found = await self.get(media, principal=None)
        try:
            return await asyncio.to_thread(self._path(found.digest).read_bytes)
        except FileNotFoundError as error:
            raise NotFound(f"the bytes of {media} are gone from the media folder") from error

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def _write(self, digest: str, data: bytes, unique: str) -> None:
        path = self._path(digest)
        if path.exists():
            return
        unfinished = path.with_name(f".{unique}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with unfinished.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            # A name is durable once its folder is; without this a row could outlive its bytes.
            for folder in (path.parent, self._folder):
                _sync_folder(folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise Transient(
                f"the file could not be stored ({error.strerror}); free some space and try again",
                code="disk_full",
            ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
