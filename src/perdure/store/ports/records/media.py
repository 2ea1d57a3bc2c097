"""Implements the library of files: bytes in a folder, named by their digest, and rows in the
database.

The bytes are written to a temporary file, synced and renamed before their row is committed, so a
row never lacks its bytes. If the process dies in between, there are bytes without a row: somebody
who brings the same content again finds them, and after a day they are deleted. Finding them sets
their time to now, under the lock that deleting takes, so nothing is deleted that is about to get a
row.
"""

import asyncio
import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from perdure.domain.errors import (
    NO_FILES,
    NO_SPACE,
    OUT_OF_FILES,
    OUT_OF_FILES_CODE,
    NotFound,
    Permanent,
    Transient,
)
from perdure.domain.ids import MediaId, PrincipalId
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.domain.reading.kinds import HEAD_BYTES
from perdure.ports.records.media import NOT_WRITABLE, SHARDS, FittedPicture, KeptBytes, Media
from perdure.store.drivers.driver import Driver
from perdure.store.mint import Mint
from perdure.store.operations.files import media as operations
from perdure.store.operations.people import quotas

# Bytes that are collected in memory before they are written to the file.
BUFFER_BYTES: Final = 256 * 1024
# Only files older than this are deleted. A younger one may be about to get its row.
SWEEP_AGE_MS: Final = 86_400_000
# Files that one transaction or one query handles.
SWEEP_BATCH: Final = 500
_DIGEST_LENGTH: Final = 64
_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class StoredMedia:
    """Implements `MediaLibrary`."""

    def __init__(
        self, driver: Driver, mint: Mint, folder: Path, *, quota: Quota = NO_QUOTA
    ) -> None:
        self._driver = driver
        self._quota = quota
        self._mint = mint
        self._folder = folder
        self._sweeping = threading.Lock()

    async def put(
        self, data: bytes, *, mime: str, name: str, principal: PrincipalId, is_loose: bool = True
    ) -> Media:
        """Store a file's bytes, then its row. Raises `OverQuota`; the bytes are then deleted
        later."""
        kept = await self.keep(_whole(data), bytes_max=len(data))
        media = Media(
            id=MediaId(self._mint.id("med")),
            mime=mime,
            name=name,
            size=kept.size,
            digest=kept.digest,
        )
        return await self._driver.write(
            partial(
                operations.put,
                media,
                principal,
                at=self._mint.now_ms(),
                is_loose=is_loose,
                quota=self._quota,
            )
        )

    async def keep(self, pieces: AsyncIterator[bytes], *, bytes_max: int) -> KeptBytes:
        """Store bytes without a row, and return their digest. Raises `Permanent` if there are more
        than `bytes_max`."""
        writing = _Writing(self._folder / f".{self._mint.id('med')}.part")
        try:
            async for piece in pieces:
                writing.take(piece)
                if writing.size > bytes_max:
                    raise Permanent(
                        f"it is larger than {bytes_max:,} bytes; send a smaller one",
                        code="too_large",
                    )
                if writing.is_due:
                    await asyncio.to_thread(writing.flush)
            await asyncio.to_thread(writing.flush)
            await asyncio.to_thread(self._finish, writing)
        finally:
            writing.abandon()
        return KeptBytes(digest=writing.digest, size=writing.size, head=writing.head)

    async def get(self, media: MediaId, *, principal: PrincipalId | None) -> Media:
        """Return a file's row. With a principal, only their own files are found."""
        return await self._driver.read(partial(operations.get, media, principal=principal))

    async def read(self, media: MediaId) -> bytes:
        """Return a file's bytes."""
        found = await self.get(media, principal=None)
        return await self.read_kept(found.digest)

    async def read_kept(self, digest: str) -> bytes:
        """Return the bytes with this digest."""
        try:
            return await asyncio.to_thread(self._path(digest).read_bytes)
        except FileNotFoundError as error:
            raise NotFound(f"the bytes of {digest} are gone from the media folder") from error
        except OSError as error:
            raise _unreadable(error, self._path(digest)) from error

    async def fitted(self, digest: str) -> FittedPicture | None:
        """Return what models are shown instead of the picture with these bytes, if that is
        known."""
        return await self._driver.read(partial(operations.fitted, digest))

    async def remove_loose(self) -> int:
        """Delete the rows of files that no message has named for a day. Returns how many there
        were."""
        before = self._mint.now_ms() - SWEEP_AGE_MS
        return await self._driver.write(
            partial(quotas.remove_loose, before=before, limit=SWEEP_BATCH)
        )

    async def sweep(self, shard: int) -> int:
        """Delete old files of one shard (the first byte of the digest) that no row has, and
        temporary files that a dead process has left. Returns how many were deleted."""
        assert 0 <= shard < SHARDS
        folder = self._folder / f"{shard:02x}"
        old = await asyncio.to_thread(self._old_in, folder)
        left_over = [path for path in old if path.name.endswith(".part")]
        if shard == 0:
            left_over += await asyncio.to_thread(self._old_in, self._folder)
        digests = [path.name for path in old if len(path.name) == _DIGEST_LENGTH]
        for start in range(0, len(digests), SWEEP_BATCH):
            batch = digests[start : start + SWEEP_BATCH]
            alone = await self._driver.read(partial(operations.without_rows, batch))
            left_over += [folder / digest for digest in alone]
        return await asyncio.to_thread(self._remove, left_over)

    def _path(self, digest: str) -> Path:
        """Return where the bytes with this digest are."""
        return self._folder / digest[:2] / digest

    def _finish(self, writing: "_Writing") -> None:
        """Make a written file durable and give it its final name. After a crash before the rename
        there is only a temporary file, which `sweep` deletes."""
        path = self._path(writing.digest)
        with _translated(self._folder), self._sweeping:
            if path.exists():
                self._make_young(path)
                return
            writing.sync()
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            writing.path.replace(path)
            # A name is durable only once its folder is synced. Without this, a power failure could
            # leave a committed row without its bytes.
            for folder in (path.parent, self._folder):
                _sync_folder(folder)

    def _make_young(self, path: Path) -> None:
        """Set the file's time to now, so that `sweep` leaves it."""
        now_s = self._mint.now_ms() / 1000
        os.utime(path, (now_s, now_s))

    def _old_in(self, folder: Path) -> list[Path]:
        """Return the files in a folder that are old enough to be deleted."""
        try:
            return [path for path in folder.iterdir() if path.is_file() and self._is_old(path)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(error, folder) from error

    def _is_old(self, path: Path) -> bool:
        """Tell whether a file is old enough to be deleted."""
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime * 1000 < self._mint.now_ms() - SWEEP_AGE_MS
        return False

    def _remove(self, paths: Sequence[Path]) -> int:
        """Delete these files, except those that have become young since they were listed: somebody
        has found their content again."""
        removed = 0
        for path in paths:
            with self._sweeping, contextlib.suppress(OSError):
                if self._is_old(path):
                    path.unlink()
                    removed += 1
        return removed


class _Writing:
    """Writes a temporary file that grows, and computes its digest. The file exists only after the
    first flush."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.head = b""
        self._hash = hashlib.sha256()
        self._buffer: list[bytes] = []
        self._buffered = 0

    @property
    def digest(self) -> str:
        """Return the digest of what was flushed so far."""
        return self._hash.hexdigest()

    @property
    def is_due(self) -> bool:
        """Tell whether enough is buffered to be flushed."""
        return self._buffered >= BUFFER_BYTES

    def take(self, piece: bytes) -> None:
        """Add a piece to the buffer."""
        self.size += len(piece)
        if len(self.head) < HEAD_BYTES:
            self.head = (self.head + piece)[:HEAD_BYTES]
        self._buffer.append(piece)
        self._buffered += len(piece)

    def flush(self) -> None:
        """Write what is buffered. Call it in a thread, because hashing and the disk take time."""
        with _translated(self.path.parent):
            self._write()

    def _write(self) -> None:
        pieces, self._buffer, self._buffered = self._buffer, [], 0
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.open("ab") as file:
            for piece in pieces:
                self._hash.update(piece)
                file.write(piece)

    def sync(self) -> None:
        """Make the file's content durable."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def abandon(self) -> None:
        """Delete the temporary file. Does nothing if it got its final name."""
        with contextlib.suppress(OSError):
            self.path.unlink()


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    """Yield all bytes as one piece."""
    yield data


@contextlib.contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Translate failures of the disk inside the block."""
    try:
        yield
    except OSError as error:
        raise translate(error, folder) from error


def translate(error: OSError, folder: Path) -> Transient:
    """Return the error that tells what a failed write in the media folder means, and what to do."""
    if error.errno in NO_SPACE:
        return Transient(
            "the file could not be stored: the disk is full; free some space and try again",
            code="disk_full",
        )
    if error.errno in NO_FILES:
        return Transient(f"the file could not be stored: {OUT_OF_FILES}", code=OUT_OF_FILES_CODE)
    if error.errno in _NOT_ALLOWED:
        # The error may name a folder below this one, or the one above if this one does not exist
        # yet.
        named = error.filename2 or error.filename
        where = Path(named).parent if isinstance(named, str) else folder
        return Transient(
            f"the file could not be stored: {where} cannot be written to ({error.strerror}); give "
            "the user that runs Perdure the right to write there, then try again",
            code=NOT_WRITABLE,
        )
    if isinstance(error, FileExistsError | NotADirectoryError):
        return Transient(
            f"the file could not be stored: {error.filename or folder} is no folder; move it away, "
            "then try again",
            code=NOT_WRITABLE,
        )
    return Transient(f"the file could not be stored ({error.strerror}); try again")


def _unreadable(error: OSError, path: Path) -> Transient:
    """Return the error for a file that could not be read."""
    if error.errno in NO_FILES:
        return Transient(f"{path} could not be read: {OUT_OF_FILES}", code=OUT_OF_FILES_CODE)
    return Transient(
        f"{path} could not be read ({error.strerror}); give the user that runs Perdure the right "
        "to read it, then try again",
        code="not_readable",
    )


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
