"""Makes the three standard streams usable, and checks the words of the command line.

The program that starts us may have closed any stream, may have set an encoding that lacks most
letters, and may stop reading at any moment. None of that may cause a traceback or end a node.
"""

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import Final

STREAMS: Final = (0, 1, 2)


def prepare_streams() -> None:
    """Make sure that all three streams exist, and that any text can be written to them."""
    for descriptor in STREAMS:
        _open_if_closed(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - kept open
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal's encoding lacks are written as escapes.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_if_closed(descriptor: int) -> None:
    """Open a closed standard stream on /dev/null. Otherwise the next file or socket would get its
    number, and everything printed would go into it. libuv aborts the process if it has to close one
    of these numbers."""
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        # Child processes, and this process after a restart, find it open too.
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - Python's own signature


def lose_output() -> None:
    """Discard what is printed from now on, if nobody reads it. Python flushes once more at the end
    of the process, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def is_unicode(word: str) -> bool:
    """Tell whether a word of the command line can be stored and sent. Bytes that are not UTF-8
    arrive as lone surrogates, which cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
