"""Exit codes, and the one place where failures become them.

0 done, 1 failed, 2 wrong usage or configuration, 3 not running. A person reads one line on
stderr, never a traceback of something we foresaw.
"""

import sys
from collections.abc import Callable
from typing import Final, NoReturn

from perdure.domain.errors import PerdureError

FAILED: Final = 1
WRONG_USAGE: Final = 2
NOT_RUNNING: Final = 3
INTERRUPTED: Final = 130

_BY_CODE: Final = {"config": WRONG_USAGE, "not_running": NOT_RUNNING}


def conduct(work: Callable[[], int | None]) -> NoReturn:
    """Do a verb's work and leave the process with its code."""
    try:
        code = work()
        sys.stdout.flush()
    except PerdureError as error:
        complain(error.message)
        code = _BY_CODE.get(error.code, FAILED)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, a closed pager) has seen enough. Python would complain once more
        # when it flushes at the end, so stdout is let go of.
        sys.stdout = None  # type: ignore[assignment]
        code = FAILED
    raise SystemExit(code or 0)


def complain(message: str) -> None:
    print(f"perdure: {message}", file=sys.stderr)
