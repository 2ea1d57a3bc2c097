"""Tells whether this process can open one more file. Libraries often do not: where SQLite cannot
open its file, or a name cannot be looked up, for want of a descriptor, they name the file or the
name, and whoever reads it looks in the wrong place."""

import os

from perdure.domain.errors import NO_FILES


def are_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in NO_FILES
    return True
