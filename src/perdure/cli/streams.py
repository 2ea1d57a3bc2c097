"""What the process was started with: the three standard streams and its words, made usable first.

Whoever starts us may have closed any of them, may have set an encoding that lacks most letters, or
may stop reading at any moment. None of that is a reason for a traceback, and none ends a node.
"""

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import Final

STREAMS: Final = (0, 1, 2)


def prepare_streams() -> None:
    """Make sure that all three are there, and that any text can be written to them."""
    for descriptor in STREAMS:
        _open_if_closed(descriptor)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - kept open
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Letters that the terminal does not have are written as escapes.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_if_closed(descriptor: int) -> None:
    """The next file or socket that is opened would get the number, and every word printed would go
    into it; libuv aborts the process when it is to close one of these numbers."""
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR)
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        # Children, and the same process after a restart, find it open too.
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - Python's own signature


def lose_output() -> None:
    """Nobody reads any more: what is printed from now on goes nowhere. Python flushes once more at
    the end of the process, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def is_unicode(word: str) -> bool:
    """Tell whether a word of the command line can be stored and sent. Bytes that are no UTF-8
    arrive as lone surrogates, which cannot."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
