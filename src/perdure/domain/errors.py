"""Defines the errors of Perdure, sorted by what the caller may do about them.

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

# The system's error numbers for a full disk, or a full share of a user on it.
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# The error numbers for a process, or a whole system, that has no file descriptor left.
NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
OUT_OF_FILES: Final = (
    "out of file descriptors; raise the limit of open files (`ulimit -n`, or LimitNOFILE= of the "
    "service) and restart the node"
)
OUT_OF_FILES_CODE: Final = "out_of_descriptors"


class PerdureError(Exception):
    """Serves as the root of all errors; it is never raised itself."""

    default_code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class Rejected(PerdureError):
    """Says that the call did not happen because the request is wrong. The caller must fix the
    request."""

    default_code = "invalid"


class NotFound(Rejected):
    """Says that something that the request names does not exist."""

    default_code = "not_found"


class Conflict(PerdureError):
    """Says that the call did not happen because the facts have changed. The caller must read them
    again."""

    default_code = "conflict"


class Fenced(Conflict):
    """Says that the call carries an old epoch: the session has a newer holder, or was stopped. The
    caller must stop working on it."""

    default_code = "fenced"


class Transient(PerdureError):
    """Says that the call did not happen, and may work later: after `retry_after_s`, if that is
    known."""

    default_code = "unavailable"
    retryable = True

    def __init__(
        self, message: str, *, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Ambiguous(PerdureError):
    """Says that the call may have happened. The caller must find out, and never repeat it
    blindly. If `retry_after_s` is known, whoever was called wants to be left alone for so long."""

    default_code = "unknown_outcome"

    def __init__(
        self, message: str, *, code: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Permanent(PerdureError):
    """Says that the call will never work. The caller must park it and tell a person."""

    default_code = "permanent"


class Corrupt(PerdureError):
    """Says that stored facts break a rule. The caller must not act upon them."""

    default_code = "corrupt"
