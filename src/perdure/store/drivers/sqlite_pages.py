"""How large the pages of a database file are.

A commit writes every page that it touches as a whole, and what a turn changes in a table or an
index is mostly a row of a few hundred bytes. Half of SQLite's usual size halves what is written.
Smaller ones would not do: a row longer than a quarter of a page is divided over several pages.
"""

from typing import Final

import apsw

PAGE_BYTES: Final = 2048
# Rewriting this much takes a few seconds at a start.
REWRITTEN_BYTES_MAX: Final = 256 * 1024 * 1024


def resize(connection: apsw.Connection) -> bool:
    """Rewrite a small database whose pages have another size, and tell whether that was done. A
    large one stays as it is, and so does one that somebody else reads or for which there is no room
    to be written twice.

    VACUUM is one transaction. If the process dies in it, the next one that opens the file rolls it
    back by the journal that SQLite has put beside it, and tries again.
    """
    page_bytes = _number(connection, "page_size")
    pages = _number(connection, "page_count") - _number(connection, "freelist_count")
    if page_bytes == PAGE_BYTES or page_bytes * pages > REWRITTEN_BYTES_MAX:
        return False
    try:
        # The size cannot be changed while there is a log. The copy belongs on the disk.
        connection.execute("PRAGMA journal_mode = DELETE; PRAGMA temp_store = FILE").fetchall()
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}; VACUUM").fetchall()
    except (apsw.BusyError, apsw.FullError, apsw.IOError, apsw.CantOpenError):
        return False
    finally:
        connection.execute("PRAGMA temp_store = MEMORY; PRAGMA journal_mode = WAL").fetchall()
    return True


def keep(connection: apsw.Connection) -> None:
    """Let a copy of the database have pages as large as its own: tables of an older schema may not
    fit into smaller ones."""
    connection.execute(f"PRAGMA page_size = {_number(connection, 'page_size')}").fetchall()


def _number(connection: apsw.Connection, pragma: str) -> int:
    ((number,),) = connection.execute(f"PRAGMA {pragma}").fetchall()
    assert isinstance(number, int)
    return number
