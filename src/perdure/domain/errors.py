"""What went wrong, said as what the caller may do about it.

    PerdureError
    ├── Rejected    it did not happen; the request is wrong, fix it
    │   └── NotFound
    ├── Conflict    it did not happen; the facts moved on, read again
    │   └── Fenced  a newer holder owns the session; stop working
    ├── Transient   it did not happen; the same call may work later
    ├── Ambiguous   it may have happened; reconcile, never repeat blindly
    ├── Permanent   it will never happen; park it and tell a human
    └── Corrupt     stored facts break an invariant; quarantine

Foreign exceptions are translated into these in one function per package. `code` is the stable
word that programs see; the message is for people and says what to do next.
"""

import errno
from typing import ClassVar, Final

# How a system says that a disk, or this user's share of it, is full.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# How it says that this process, or the whole system, has no file descriptor left.
NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
OUT_OF_FILES: Final = (
    "out of file descriptors; raise the limit of open files (`ulimit -n`, or LimitNOFILE= of the "
    "service) and restart the node"
)
OUT_OF_FILES_CODE: Final = "out_of_descriptors"


class PerdureError(Exception):
    """The root; never raised itself."""

    default_code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class Rejected(PerdureError):
    default_code = "invalid"


class NotFound(Rejected):
    default_code = "not_found"


class Conflict(PerdureError):
    default_code = "conflict"


class Fenced(Conflict):
    default_code = "fenced"


class Transient(PerdureError):
    default_code = "unavailable"
    retryable = True

    def __init__(
        self, message: str, *, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Ambiguous(PerdureError):
    default_code = "unknown_outcome"


class Permanent(PerdureError):
    default_code = "permanent"


class Corrupt(PerdureError):
    default_code = "corrupt"
