"""Keeps SQLite's write-ahead log small enough for the disk it is on.

A commit is written to the log first; a checkpoint copies it into the database, and the log starts
again. That copy needs room for everything that is new. A log that has used up the disk can
therefore never be copied: nothing can be written any more, and nothing frees space. So the log gets
only a share of the free space, and that share is computed again as the log grows.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, NamedTuple

import apsw

# The size at which the log is copied on a disk with plenty of room.
LOG_BYTES_MAX: Final = 32 * 1024 * 1024
# The log may take a quarter of the free space. One commit on top of that may add a third of what is
# free, and its checkpoint needs the same once more in the database.
SHARE: Final = 4
NEW_SHARE: Final = 3
# The database stops growing before the disk is full: the last commit needs room to be copied, and
# the next start has a few rows to write. The next start reserves at most half of what is free then.
RESERVE_BYTES_MAX: Final = 1024 * 1024
RESERVE_SHARE: Final = 16  # the reserve's share of a disk too small for the above
RESERVE_SHARE_OF_ROOM: Final = 2
UNLIMITED: Final = 2**32 - 2  # SQLite's own maximum of pages
PATIENCE: Final = 2  # the log may grow to twice its share before a checkpoint waits for readers
LOOKS: Final = 8  # how often the disk is measured while the log fills up
# The log file may keep this size after a checkpoint, since overwriting is cheaper than growing.
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
# With less than this left on the disk, the next message might not fit.
ROOM_BYTES: Final = 4 * 1024 * 1024
# How long writers may have to wait for a reader that still uses an old state.
MAKE_ROOM_MS: Final = 500


class WriteAheadLog:
    """Manages the log of one writing connection. Turns off SQLite's own checkpoints."""

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
        """Note the size of the log. SQLite calls this after each commit."""
        if pages < self._pages:
            self._insist_at = 0  # the log was started again from its beginning
        self._pages = pages
        return apsw.SQLITE_OK

    def tend(self) -> None:
        """Copy the log into the database if it has reached its share. Called after commits, while
        no transaction is open. A failure is harmless: it is tried again after the next commit."""
        if self._pages < self._look_at:
            return
        self._look()
        if self._pages < self._pages_max:
            return
        if self._pages < max(self._insist_at, PATIENCE * self._pages_max):
            self._copy(apsw.SQLITE_CHECKPOINT_PASSIVE, wait_ms=0)
        else:
            # Readers have kept the log from starting again so far. Wait a moment for those that
            # read now, but only once for each share of growth: a reader may run for hours.
            self._copy(apsw.SQLITE_CHECKPOINT_RESTART, wait_ms=MAKE_ROOM_MS)
            self._insist_at = self._pages + self._pages_max
        self._look()

    def make_room(self) -> bool:
        """Copy the whole log into the database and truncate it. Returns whether a write that has
        just failed may succeed now. Sets `is_stuck` if it cannot: the copy itself found no room."""
        before = (-self.bytes, self._limit_pages)
        self.is_stuck = not self._copy(apsw.SQLITE_CHECKPOINT_TRUNCATE, wait_ms=MAKE_ROOM_MS)
        self._look()
        return (-self.bytes, self._limit_pages) > before

    def _copy(self, mode: int, *, wait_ms: int) -> bool:
        """Run a checkpoint, as far as readers allow. Returns False if the disk failed."""
        self._connection.set_busy_timeout(wait_ms)
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            pass  # a reader uses an old state; the commits stay in the log until later
        except apsw.Error:
            return False
        finally:
            self._connection.set_busy_timeout(self._busy_timeout_ms)
        return True

    @property
    def is_cramped(self) -> bool:
        """Tell whether the disk leaves the log less than its normal size."""
        return self._pages_max < self._pages_most

    @property
    def bytes(self) -> int:
        """Return the size of the log file, including what is not in use."""
        return _size_of(self._path)

    def has_room(self) -> bool:
        """Tell whether the next message certainly fits on the disk. Safe to call from any thread,
        since it only measures files."""
        return self._room().bytes - self.bytes - self._reserve_bytes >= ROOM_BYTES

    def _look(self) -> None:
        """Decide by the free space how large the log and the database may become."""
        room = self._room()
        pages_max = max(1, min(self._pages_most, room.bytes // SHARE // self._page_bytes))
        is_cramped = pages_max < self._pages_most
        if is_cramped or self.is_cramped:
            self._limit(room, pages_max if is_cramped else None)
        self._pages_max = pages_max
        is_over = self._pages >= pages_max
        self._look_at = 0 if is_over else min(self._pages + pages_max // LOOKS, pages_max)

    def _limit(self, room: "_Room", pages_max: int | None) -> None:
        """Limit the number of pages, so that a write (such as one large message) fails early
        instead of leaving no room for its own checkpoint. Limit the log file too. `None` lifts both
        limits."""
        copied = _size_of(self._database) // self._page_bytes
        new = max(0, room.bytes - self._reserve_bytes) // NEW_SHARE // self._page_bytes
        limit = UNLIMITED if pages_max is None else max(1, copied + new)
        kept = KEPT_BYTES_MAX if pages_max is None else pages_max * self._page_bytes
        with contextlib.suppress(apsw.Error):  # a disk that fails now will fail the next commit too
            self._connection.pragma("max_page_count", limit)
            self._connection.pragma("journal_size_limit", kept)
            self._limit_pages = limit

    def _room(self) -> "_Room":
        """Measure the disk. Returns `_UNKNOWN`, which limits nothing, if the system does not
        tell."""
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return _UNKNOWN
        if not disk.f_blocks:  # some network file systems report no sizes
            return _UNKNOWN
        free = disk.f_bavail * disk.f_frsize
        return _Room(free + self.bytes, disk.f_blocks * disk.f_frsize)


class _Room(NamedTuple):
    """Holds the free bytes plus the bytes of the log itself, and the size of the whole disk."""

    bytes: int
    disk_bytes: int


_UNKNOWN: Final = _Room(2**62, 2**62)


def _size_of(path: Path) -> int:
    """Return the size of a file, or 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
