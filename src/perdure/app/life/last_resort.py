"""The last resort: a thread that hears signals and ends the process in time.

The end of a node is bounded by its own steps (`engine/node/ending.py`). They run on the event loop,
and the loop itself may stand still, or wait for a thread that never comes back from the disk. So
the first signal also sets a time here, on a thread that depends on neither. When the time is up,
the process ends as a kill would end it, except that the log says why.

Signals come to this thread through the file descriptor that Python's C code writes their numbers
to, so they are heard even while the main thread runs no Python.
"""

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

# Enough for any burst of signals; a signal that finds the pipe full is one of many.
READ_BYTES: Final = 512
_WAKE_UP: Final = b"\0"  # no signal has this number


class LastResort:
    """Calls `heard` with the number of each signal, and `end` when the time is up, both on a thread
    of its own. `end` must not return."""

    def __init__(self, *, heard: Callable[[int], None], end: Callable[[], None]) -> None:
        self._heard = heard
        self._end = end
        self._at_s = math.inf
        self._inbound, self._outbound = os.pipe()
        os.set_blocking(self._outbound, False)
        self._numbers: tuple[signal.Signals, ...] = ()
        threading.Thread(target=self._run, name="perdure-last-resort", daemon=True).start()

    def listen(self, *numbers: signal.Signals) -> None:
        """Hear these signals from now on. Only the main thread may call this, while its event loop
        runs: the loop sets the descriptor for itself when it begins."""
        self._numbers = numbers
        for number in numbers:
            signal.signal(number, _leave_to_the_thread)
            signal.siginterrupt(number, False)  # noqa: FBT003 - Python's own signature
        signal.set_wakeup_fd(self._outbound, warn_on_full_buffer=False)

    def outlive_the_loop(self) -> None:
        """Go on hearing signals after the event loop has ended and taken the descriptor away."""
        signal.set_wakeup_fd(-1)
        for number in self._numbers:
            signal.signal(number, self._pass_on)

    def end_within(self, seconds: float) -> None:
        """End the process after so much time. A time that was set before stands if it is sooner."""
        self._at_s = min(self._at_s, time.monotonic() + seconds)
        self._write(_WAKE_UP)

    def _pass_on(self, number: int, _: object) -> None:
        self._write(bytes([number]))

    def _write(self, data: bytes) -> None:
        try:
            os.write(self._outbound, data)
        except BlockingIOError:
            return  # the pipe is full, so the thread wakes up anyway

    def _run(self) -> None:
        while (left_s := self._at_s - time.monotonic()) > 0:
            timeout_s = left_s if left_s < math.inf else None
            ready, _, _ = select.select([self._inbound], [], [], timeout_s)
            for number in os.read(self._inbound, READ_BYTES) if ready else b"":
                if number:
                    self._heard(number)
        self._end()


def _leave_to_the_thread(_number: int, _frame: object) -> None:
    """Python wants a handler, or the signal would do what it does by default."""
