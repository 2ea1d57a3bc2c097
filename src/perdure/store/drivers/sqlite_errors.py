"""Translates SQLite's failures into the errors of `domain/errors.py`, all in one place."""

from typing import Final

import apsw

from perdure.domain.errors import (
    NO_FILES,
    NO_SPACE,
    OUT_OF_FILES,
    OUT_OF_FILES_CODE,
    Conflict,
    Corrupt,
    PerdureError,
    Rejected,
    Transient,
)
from perdure.ports.system import descriptors

DISK_FULL: Final = "disk_full"


def translate(error: Exception, *, opening: bool = False) -> PerdureError:
    """Return the error that tells the caller what a failure means. `opening` is true at start-up
    only: a file that could be opened then and cannot now (no file handle is left, the disk is being
    remounted) is treated as transient."""
    match error:
        case UnicodeEncodeError():
            return Rejected("no database can hold this text; send valid Unicode")
        case OSError() | apsw.CantOpenError() | apsw.FullError() | apsw.IOError() if (
            lacking := _lacking(error)
        ):
            return lacking
        case OSError():
            return Rejected(
                f"the database cannot be opened ({error.strerror}: {error.filename}); "
                "check the home folder and its permissions",
                code="not_writable",
            )
        case apsw.NotADBError() | apsw.CorruptError():
            return Corrupt(
                f"the database is damaged ({error}); stop Perdure and restore a backup",
                code="damaged",
            )
        case apsw.ConstraintError():
            return Conflict(f"the store refused a write that breaks a rule: {error}")
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            told = f"the database cannot be opened for writing ({error}); check its permissions"
            return (Rejected if opening else Transient)(told, code="not_writable")
        case apsw.IOError() | apsw.BusyError() | apsw.NoMemError():
            return Transient(f"the disk did not take the write ({error}); try again")
        case _:
            return Corrupt(f"the database answered in an unexpected way: {error}")


def _lacking(error: Exception) -> Transient | None:
    """Return `Transient` if the machine has run out of disk space or file handles, else None."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, apsw.FullError) or number in NO_SPACE:
        return Transient("the disk is full; free some space, nothing was stored", code=DISK_FULL)
    # SQLite reports only that a file could not be opened. To learn whether file handles were the
    # reason, ask the system whether any are left.
    is_of_sqlite = isinstance(error, apsw.CantOpenError | apsw.IOError)
    if number in NO_FILES or (is_of_sqlite and not descriptors.are_left()):
        return Transient(f"the database cannot be opened: {OUT_OF_FILES}", code=OUT_OF_FILES_CODE)
    return None
