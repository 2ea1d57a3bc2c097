"""Keeps SQLite's write-ahead log in proportion to the disk it is on.

What is committed stands in the log first; a checkpoint copies it into the database and lets the log
begin anew. The copy needs room for everything that is new, so a log that has used up the disk can
never be copied: nothing can be written any more, and nothing frees itself. Hence the log is given a
share of what is free, and its size is looked at again as it grows.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

import apsw

LOG_BYTES_MAX: Final = 32 * 1024 * 1024
# The log takes a quarter of the free space. A commit that comes on top may add a third, which its
# checkpoint takes once more in the database.
SHARE: Final = 4
NEW_SHARE: Final = 3
# The database stops growing before the disk is full: what is committed last needs room to be
# copied, and the next start has a few rows to write. That one keeps half of what it finds.
RESERVE_BYTES_MAX: Final = 1024 * 1024
RESERVE_SHARE: Final = 16  # of a disk that is smaller than that
RESERVE_SHARE_OF_ROOM: Final = 2
UNLIMITED: Final = 2**32 - 2  # SQLite's own limit of pages
PATIENCE: Final = 2  # so many times its share may the log become before readers are waited for
LOOKS: Final = 8  # so often is the disk looked at while the log fills up
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
# With less than this left on its disk, the next message may be the one that does not fit.
ROOM_BYTES: Final = 4 * 1024 * 1024
# Whoever waits for a write is not to wait long for somebody who reads an old state.
MAKE_ROOM_MS: Final = 500


class WriteAheadLog:
    """The log of one writing connection, which no longer checkpoints by itself."""

    def __init__(self, connection: apsw.Connection, path: Path, *, busy_timeout_ms: int) -> None:
        self._connection = connection
        self._database = path
        self._path = path.with_name(path.name + "-wal")
        self._busy_timeout_ms = busy_timeout_ms
        self._page_bytes = int(connection.pragma("page_size"))
        self._pages = 0
        self._look_at = 0
        self._insist_at = 0
        self._pages_most = LOG_BYTES_MAX // self._page_bytes
        self._pages_max = self._pages_most
        self._limit_pages = UNLIMITED
        self.is_stuck = False
        room = self._room()
        reserve = min(RESERVE_BYTES_MAX, room.disk_bytes // RESERVE_SHARE)
        self._reserve_bytes = min(reserve, room.bytes // RESERVE_SHARE_OF_ROOM)
        connection.pragma("journal_size_limit", KEPT_BYTES_MAX)
        connection.wal_autocheckpoint(0)
        connection.set_wal_hook(self._committed)
        self._look()

    def _committed(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        if pages < self._pages:
            self._insist_at = 0  # the log has begun anew
        self._pages = pages
        return apsw.SQLITE_OK

    def tend(self) -> None:
        """Copy the log into the database if it has reached its share. Called after commits, when
        no transaction is open. What fails here is tried again after the next commit."""
        if self._pages < self._look_at:
            return
        self._look()
        if self._pages < self._pages_max:
            return
        if self._pages < max(self._insist_at, PATIENCE * self._pages_max):
            self._copy(apsw.SQLITE_CHECKPOINT_PASSIVE, wait_ms=0)
        else:
            # There was always somebody reading. Those who read on now are waited for, once for so
            # much of the log: somebody may read for hours.
            self._copy(apsw.SQLITE_CHECKPOINT_RESTART, wait_ms=MAKE_ROOM_MS)
            self._insist_at = self._pages + self._pages_max
        self._look()

    def make_room(self) -> bool:
        """Copy the whole log into the database and give its space back. Returns whether a write may
        succeed that has just failed. `is_stuck`: it may not, since the copy itself needs room."""
        before = (-self.bytes, self._limit_pages)
        self.is_stuck = not self._copy(apsw.SQLITE_CHECKPOINT_TRUNCATE, wait_ms=MAKE_ROOM_MS)
        self._look()
        return (-self.bytes, self._limit_pages) > before

    def _copy(self, mode: int, *, wait_ms: int) -> bool:
        """Copy what the readers allow. Returns False if the disk does not."""
        self._connection.set_busy_timeout(wait_ms)
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            pass  # somebody reads an older state; what is committed stays in the log until later
        except apsw.Error:
            return False
        finally:
            self._connection.set_busy_timeout(self._busy_timeout_ms)
        return True

    @property
    def is_cramped(self) -> bool:
        """Tell whether the disk leaves less to the log than it could use."""
        return self._pages_max < self._pages_most

    @property
    def bytes(self) -> int:
        """The size of the file, whatever of it is in use."""
        return _size_of(self._path)

    def has_room(self) -> bool:
        """Tell whether the next message fits on the disk for sure. It may be called in any thread,
        since it only looks at the disk."""
        return self._room().bytes - self.bytes - self._reserve_bytes >= ROOM_BYTES

    def _look(self) -> None:
        """Decide how large log and database may become, by what is free now."""
        room = self._room()
        pages_max = max(1, min(self._pages_most, room.bytes // SHARE // self._page_bytes))
        is_cramped = pages_max < self._pages_most
        if is_cramped or self.is_cramped:
            self._limit(room, pages_max if is_cramped else None)
        self._pages_max = pages_max
        is_over = self._pages >= pages_max
        self._look_at = 0 if is_over else min(self._pages + pages_max // LOOKS, pages_max)

    def _limit(self, room: "_Room", pages_max: int | None) -> None:
        """Refuse early what would leave no room for its own checkpoint, as one large message could.
        The file of the log keeps no more than it may use. None lifts the limits."""
        copied = _size_of(self._database) // self._page_bytes
        new = max(0, room.bytes - self._reserve_bytes) // NEW_SHARE // self._page_bytes
        limit = UNLIMITED if pages_max is None else max(1, copied + new)
        kept = KEPT_BYTES_MAX if pages_max is None else pages_max * self._page_bytes
        with contextlib.suppress(apsw.Error):  # a disk that fails now tells the next commit so
            self._connection.pragma("max_page_count", limit)
            self._connection.pragma("journal_size_limit", kept)
            self._limit_pages = limit

    def _room(self) -> "_Room":
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return _UNKNOWN
        if not disk.f_blocks:  # some network file systems do not tell
            return _UNKNOWN
        free = disk.f_bavail * disk.f_frsize
        return _Room(free + self.bytes, disk.f_blocks * disk.f_frsize)


class _Room(NamedTuple):
    """What is free together with what the log has taken of it already, and the whole disk."""

    bytes: int
    disk_bytes: int


_UNKNOWN: Final = _Room(2**62, 2**62)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
