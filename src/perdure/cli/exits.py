"""Exit codes, and the one place where failures become them.

0 done, 1 failed, 2 wrong usage or configuration, 3 not running; 75 asks systemd to start the node
again. A person reads one line on stderr, never a traceback of something we foresaw.
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
    """Do a verb's work and leave the process with its code."""
    try:
        code = _code_of(work)
        sys.stdout.flush()
    except OSError as error:
        if not _is_of_output(error):
            raise
        code = _output_lost(error)
    raise SystemExit(code or 0)


def _code_of(work: Callable[[], int | None]) -> int | None:
    try:
        return work()
    except PerdureError as error:
        return _failed(error)
    except BaseExceptionGroup as group:
        # What fails below a task group comes wrapped in it.
        foreseen, rest = group.split((PerdureError, BrokenPipeError))
        if foreseen is None or rest is not None:
            raise
        return _failed_first(foreseen)
    except KeyboardInterrupt:
        return INTERRUPTED


def _is_of_output(error: OSError) -> bool:
    """Everything else that is read or written has its errors translated where it happens."""
    return isinstance(error, BrokenPipeError) or error.errno in NO_SPACE


def _output_lost(error: OSError) -> int:
    """The reader (`head`, a closed pager) has seen enough, which needs no word; a file that takes
    no more does."""
    lose_output()
    if not isinstance(error, BrokenPipeError):
        complain(f"the output cannot be written ({error.strerror})")
    return FAILED


def _failed(error: PerdureError) -> int:
    complain(error.message)
    return _BY_CODE.get(error.code, FAILED)


def _failed_first(group: BaseExceptionGroup[BaseException]) -> int:
    match group.exceptions[0]:
        case BaseExceptionGroup() as inner:
            return _failed_first(inner)
        case OSError() as error:
            return _output_lost(error)
        case error:
            assert isinstance(error, PerdureError)
            return _failed(error)


def complain(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads what goes wrong either
        print(f"perdure: {clean(message)}", file=sys.stderr, flush=True)
