"""Hears signals on a separate thread, and ends the process if its stop takes too long.

The steps of a node's end have time limits of their own (`engine/node/ending.py`). But they run on
the event loop, and the loop may stand still, or wait for a thread that the disk never answers. So
the first signal also sets a time here, on a thread that depends on neither. When the time is over,
the process ends as if it were killed, except that the log says why.

Signals reach this thread through the file descriptor to which Python's C code writes their numbers.
So they are heard even while the main thread runs no Python code.
"""

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

# Enough for any burst of signals. If a signal finds the pipe full, there are many others in it.
READ_BYTES: Final = 512
_WAKE_UP: Final = b"\0"  # no signal has this number


class LastResort:
    """Calls `heard` with the number of each signal, and `end` when the time is over, both on a
    thread of its own. `end` must not return."""

    def __init__(self, *, heard: Callable[[int], None], end: Callable[[], None]) -> None:
        self._heard = heard
        self._end = end
        self._at_s = math.inf
        self._inbound, self._outbound = os.pipe()
        os.set_blocking(self._outbound, False)
        self._numbers: tuple[signal.Signals, ...] = ()
        threading.Thread(target=self._run, name="perdure-last-resort", daemon=True).start()

    def listen(self, *numbers: signal.Signals) -> None:
        """Handle these signals from now on. Must be called on the main thread while its event loop
        runs, because the loop sets the wake-up descriptor for itself when it begins."""
        self._numbers = numbers
        for number in numbers:
            signal.signal(number, _leave_to_the_thread)
            signal.siginterrupt(number, False)  # noqa: FBT003 - Python's own signature
        signal.set_wakeup_fd(self._outbound, warn_on_full_buffer=False)

    def outlive_the_loop(self) -> None:
        """Keep hearing signals after the event loop has ended and removed the descriptor."""
        signal.set_wakeup_fd(-1)
        for number in self._numbers:
            signal.signal(number, self._pass_on)

    def end_within(self, seconds: float) -> None:
        """End the process after this time, unless an earlier time was set before."""
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
    """Do nothing. Without a handler the signal would have its default effect; the thread handles
    it."""
