"""Chooses the page size of a SQLite database file.

A commit writes every page it touches as a whole, and what a turn changes in a table or an index is
mostly a row of a few hundred bytes. A quarter of SQLite's default size writes a third less than
half of it. Still smaller pages would not help: a row of an index, or of a table without rowids,
that is longer than a quarter of a page is split over several pages.
"""

from typing import Final

import apsw

PAGE_BYTES: Final = 1024
# A larger database keeps its page size: rewriting this much already takes a few seconds at start.
REWRITTEN_BYTES_MAX: Final = 256 * 1024 * 1024


def resize(connection: apsw.Connection) -> bool:
    """Rewrite a small database whose pages have another size. Returns whether that was done. Leaves
    the file as it is if it is large, if another process reads it, or if the disk has no room for a
    copy.

    VACUUM is one transaction. If the process dies in it, the next process that opens the file rolls
    it back from SQLite's rollback journal, and tries again.
    """
    page_bytes = _number(connection, "page_size")
    pages = _number(connection, "page_count") - _number(connection, "freelist_count")
    if page_bytes == PAGE_BYTES or page_bytes * pages > REWRITTEN_BYTES_MAX:
        return False
    try:
        # The page size cannot change in WAL mode. The copy is as large as the database, so it must
        # go to the disk and not to memory.
        connection.execute("PRAGMA journal_mode = DELETE; PRAGMA temp_store = FILE").fetchall()
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}; VACUUM").fetchall()
    except (apsw.BusyError, apsw.FullError, apsw.IOError, apsw.CantOpenError):
        return False
    finally:
        connection.execute("PRAGMA temp_store = MEMORY; PRAGMA journal_mode = WAL").fetchall()
    return True


def keep(connection: apsw.Connection) -> None:
    """Give copies made by VACUUM INTO the page size that the database has now. With smaller pages,
    rows of tables of an older schema might no longer fit."""
    connection.execute(f"PRAGMA page_size = {_number(connection, 'page_size')}").fetchall()


def _number(connection: apsw.Connection, pragma: str) -> int:
    ((number,),) = connection.execute(f"PRAGMA {pragma}").fetchall()
    assert isinstance(number, int)
    return number
