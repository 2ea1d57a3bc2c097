"""Reads a write-ahead log of SQLite: which pages each commit has written, and to which table they
belong.

A frame is a header of 24 bytes and a page. The last frame of a commit carries the size of the
database. Frames of an earlier round of the log, not yet overwritten, have another salt.
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import apsw

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
BLOCK_BYTES: Final = 4096
# A page that belongs to no table or index any more: its rows are deleted.
FREE: Final = "free pages"


class Commit(NamedTuple):
    """Describes what one commit has written: the table or index of each page, and the number of
    disk blocks. A block shared with the commit before it counts for both."""

    owners: tuple[str, ...]
    blocks: int


class Tail:
    """Follows the log of a database that another process writes."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._salt: list[int] = []
        self._known = 0
        self.page_bytes = 0

    def news(self) -> list[Commit] | None:
        """Return what was committed since the last look. Returns None if the log was restarted
        since: then the end of the old log is unknown."""
        raw = self._database.with_name(self._database.name + "-wal").read_bytes()
        _, _, self.page_bytes, _, *salt, _, _ = _HEADER.unpack_from(raw)
        is_whole = salt == self._salt
        if not is_whole:
            self._salt, self._known = salt, 0
        owners = _owners(self._database)
        commits = []
        for first, pages in self._commits(raw):
            step = _FRAME.size + self.page_bytes
            begin = _HEADER.size + first * step
            end = begin + len(pages) * step
            blocks = -(-end // BLOCK_BYTES) - begin // BLOCK_BYTES
            commits.append(Commit(tuple(owners.get(page, FREE) for page in pages), blocks))
            self._known = first + len(pages)
        return commits if is_whole else None

    def _commits(self, raw: bytes) -> Iterator[tuple[int, list[int]]]:
        """Yield each whole commit that is not known yet: the number of its first frame, and its
        pages. A commit that is still being written has no last frame, and is left for the next
        look."""
        step = _FRAME.size + self.page_bytes
        first, pages = self._known, list[int]()
        for number in range(self._known, (len(raw) - _HEADER.size) // step):
            page, size, *rest = _FRAME.unpack_from(raw, _HEADER.size + number * step)
            if rest[:2] != self._salt:
                return
            pages.append(page)
            if size:
                yield first, pages
                first, pages = number + 1, []


def _owners(database: Path) -> Mapping[int, str]:
    """Return the table or index that each page belongs to."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return dict(connection.execute("SELECT pageno, name FROM dbstat"))
    finally:
        connection.close()
