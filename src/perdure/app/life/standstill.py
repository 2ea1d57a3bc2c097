"""Notices when the event loop stands still. A thread asks the loop once a second for a sign of
life.

Code that blocks the loop for a second delays everybody. The log then says where the loop stands,
and for how long it stood once it continues. Code that keeps all threads from running is noticed
afterwards, by the CPU time that the process used meanwhile. Nothing is ended here: a signal does
that, through `last_resort.py`, which needs no event loop either.
"""

import asyncio
import contextlib
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import structlog

EVERY_S: Final = 1.0
PATIENCE_S: Final = 1.0
FRAMES_MAX: Final = 15
log = structlog.get_logger("loop")


class Standstill:
    """Watches the running loop from now on, and calls `noticed` each time that it stood still."""

    def __init__(self, noticed: Callable[[], None], *, patience_s: float = PATIENCE_S) -> None:
        self._noticed = noticed
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name="perdure-standstill", daemon=True).start()

    def end(self) -> None:
        """Stop watching."""
        self._is_over.set()

    def _run(self) -> None:
        while True:
            began_s, used_s = time.monotonic(), time.process_time()
            if self._is_over.wait(EVERY_S):
                return
            late_s = time.monotonic() - began_s - EVERY_S
            if late_s > self._patience_s:
                self._tell_of_late(late_s, time.process_time() - used_s)
            else:
                self._ask()

    def _ask(self) -> None:
        sign = threading.Event()
        asked_s = time.monotonic()
        with contextlib.suppress(RuntimeError):  # the loop has ended, and this thread will end too
            self._loop.call_soon_threadsafe(sign.set)
        if sign.wait(self._patience_s) or self._is_over.is_set():
            return
        # otherwise this thread was stopped too, so the loop is not to blame
        if time.monotonic() - asked_s < 1.5 * self._patience_s:
            self._tell(sign, asked_s)

    def _tell(self, sign: threading.Event, asked_s: float) -> None:
        """Log where the loop stands, and later for how long it stood."""
        self._noticed()
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - there is no other way
        frames = traceback.extract_stack(frame)[-FRAMES_MAX:] if frame else []
        # One text: the terminal's format prints a field of this name as it is, below the line.
        where = "\n".join(f"{each.filename}:{each.lineno} {each.name}" for each in frames)
        log.error("the event loop stands still", since_s=self._patience_s, stack=where)
        while not sign.wait(EVERY_S):
            if self._is_over.is_set():
                return
        log.warning("the event loop goes on", stood_s=round(time.monotonic() - asked_s, 1))

    def _tell_of_late(self, late_s: float, used_s: float) -> None:
        """Log a standstill of all threads. A machine that was asleep used no CPU time; code that
        keeps other threads from running did."""
        if used_s > late_s / 2:
            self._noticed()
            log.error(
                "the event loop stood still, and every thread with it", stood_s=round(late_s, 1)
            )
