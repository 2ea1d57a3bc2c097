"""Tells whether this process can open one more file.

If no descriptor is left, SQLite cannot open its file and a host name cannot be looked up. Libraries
then name the file or the host as the cause, and people look in the wrong place.
"""

import os

from perdure.domain.errors import NO_FILES


def are_left() -> bool:
    """Tell whether a file descriptor is left, by opening one."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in NO_FILES
    return True
