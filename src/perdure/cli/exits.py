"""Defines the exit codes. This is the one place where errors become exit codes.

0 done, 1 failed, 2 wrong usage or configuration, 3 not running; 75 asks systemd to restart the
node. For every expected error a person reads one line on stderr, never a traceback.
"""

import contextlib
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from perdure.cli.printing import clean
from perdure.cli.streams import lose_output
from perdure.domain.errors import NO_SPACE, PerdureError

FAILED: Final = 1
WRONG_USAGE: Final = 2
NOT_RUNNING: Final = 3
START_AGAIN: Final = 75
INTERRUPTED: Final = 130

_BY_CODE: Final = {
    "config": WRONG_USAGE,
    "impossible_address": WRONG_USAGE,
    "not_running": NOT_RUNNING,
}


def conduct(work: Callable[[], int | None]) -> NoReturn:
    """Do a verb's work, and leave the process with its exit code."""
    try:
        code = _code_of(work)
        sys.stdout.flush()
    except OSError as error:
        if not _is_of_output(error):
            raise
        code = _output_lost(error)
    raise SystemExit(code or 0)


def _code_of(work: Callable[[], int | None]) -> int | None:
    """Do the work and return its exit code. Expected errors are printed and become codes."""
    try:
        return work()
    except PerdureError as error:
        return _failed(error)
    except BaseExceptionGroup as group:
        # An error inside a task group arrives wrapped in an exception group.
        foreseen, rest = group.split((PerdureError, BrokenPipeError))
        if foreseen is None or rest is not None:
            raise
        return _failed_first(foreseen)
    except KeyboardInterrupt:
        return INTERRUPTED


def _is_of_output(error: OSError) -> bool:
    """Tell whether an error came from printing. All other input and output has its errors
    translated where it happens."""
    return isinstance(error, BrokenPipeError) or error.errno in NO_SPACE


def _output_lost(error: OSError) -> int:
    """Return the code for output that cannot be written. If the reader (`head`, a pager) has closed
    the pipe, nothing is said; a full disk is reported."""
    lose_output()
    if not isinstance(error, BrokenPipeError):
        complain(f"the output cannot be written ({error.strerror})")
    return FAILED


def _failed(error: PerdureError) -> int:
    complain(error.message)
    return _BY_CODE.get(error.code, FAILED)


def _failed_first(group: BaseExceptionGroup[BaseException]) -> int:
    """Report the first error of a group, and return its exit code."""
    match group.exceptions[0]:
        case BaseExceptionGroup() as inner:
            return _failed_first(inner)
        case OSError() as error:
            return _output_lost(error)
        case error:
            assert isinstance(error, PerdureError)
            return _failed(error)


def complain(message: str) -> None:
    """Print one line to stderr."""
    with contextlib.suppress(OSError):  # stderr may be closed as well
        print(f"perdure: {clean(message)}", file=sys.stderr, flush=True)
