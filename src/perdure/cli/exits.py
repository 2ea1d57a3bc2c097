"""Exit codes, and the one place where failures become them.

0 done, 1 failed, 2 wrong usage or configuration, 3 not running; 75 asks systemd to start the node
again. A person reads one line on stderr, never a traceback of something we foresaw.
"""

import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from perdure.domain.errors import PerdureError

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
        code = work()
        sys.stdout.flush()
    except PerdureError as error:
        code = _failed(error)
    except BaseExceptionGroup as group:
        # What fails below a task group comes wrapped in it.
        if (foreseen := group.subgroup(PerdureError)) is None or group.split(PerdureError)[1]:
            raise
        code = _failed(_first(foreseen))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, a closed pager) has seen enough. Python flushes once more at the
        # end and would complain, so that goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    raise SystemExit(code or 0)


def _failed(error: PerdureError) -> int:
    complain(error.message)
    return _BY_CODE.get(error.code, FAILED)


def _first(group: BaseExceptionGroup[PerdureError]) -> PerdureError:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def complain(message: str) -> None:
    print(f"perdure: {message}", file=sys.stderr)
