"""Handles the signals of the process, from its first moment on.

SIGTERM and SIGINT ask for a drain, and a second one asks not to wait for it. Before there is a node
they end the start. During a restart the first one only makes it faster, and the next one turns it
into a stop. SIGHUP reads the configuration again. It never ends the process.

Every stop has a time limit, however it was asked for. A separate thread enforces it if nothing else
does (`app/life/last_resort.py`): the drain's time and a margin, or less than a second after another
signal.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Final

import structlog

from perdure.app.config.environment import GAVE_UP
from perdure.app.life.last_resort import LastResort
from perdure.app.life.node import Node
from perdure.app.logs import LAST_LINES_S

# How much longer than its drain a stop may take before the last resort ends it. Three seconds are
# promised; the last line of the log and the end itself take the rest.
MARGIN_S: Final = 2.7
# The time limit after a further signal, which asks not to wait.
HURRIED_S: Final = 0.8
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
log = structlog.get_logger("stop")


class Signals:
    """Turns signals into a drain, a faster end, or a reload. `leave` ends the process at once. It
    is called on another thread, only if the stop did not end in time, with the port at which the
    node is to begin again, or None."""

    def __init__(self, leave: Callable[[int | None], None]) -> None:
        self._starting = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._leave = leave
        self._node: Node | None = None
        self._reload: Callable[[], None] | None = None
        self._port = 0
        self._stop_within_s = MARGIN_S
        self._is_ending = False
        self._is_hurried = False
        self.has_ended_the_start = False
        self.is_for_good = False
        # The name of the signal that asked for the stop, or an empty string.
        self.name = ""
        self.write_log: Callable[[], None] = lambda: None
        self._last_resort = LastResort(heard=self._heard, end=self._give_up)
        self._last_resort.listen(*_ENDING, signal.SIGHUP)

    def lead_to(self, node: Node, *, reload: Callable[[], None], port: int, drain_s: float) -> None:
        """Connect the signals with a node that has started."""
        self._node = node
        self._reload = reload
        self._port = port
        self._stop_within_s = drain_s + MARGIN_S
        # The time limit begins in this callback, not when the node's own task wakes up. If the loop
        # stands still right after it answered a request to restart, that task never wakes up, and
        # the process would hang forever.
        node.when_drain_requested(self._bound_stop)

    def _bound_stop(self) -> None:
        """Limit the time of a stop, whether a signal, an HTTP request or a chat asked for it."""
        self._is_ending = True
        self._last_resort.end_within(self._stop_within_s)

    def outlive_the_loop(self) -> None:
        """Keep handling signals after the event loop has ended."""
        self._last_resort.outlive_the_loop()

    def _heard(self, number: int) -> None:
        """Handle a signal. Runs on the last resort's thread, because the loop may stand still."""
        if number in _ENDING:
            node = self._node
            is_again = self._is_ending or (node is not None and node.drain_requested.is_set())
            self._is_ending = True
            self._last_resort.end_within(HURRIED_S if is_again else self._stop_within_s)
            self.name = self.name or signal.Signals(number).name
        # the loop has ended, so the process is about to end
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end if number in _ENDING else self._look)

    def _give_up(self) -> None:
        """End the process when the time of the stop is over. Runs on the last resort's thread."""
        # If the loop stands still in the middle of a log line, it holds the log's lock forever. So
        # another thread writes the last line, and we wait for it only a moment.
        telling = threading.Thread(target=self._tell_of_giving_up, daemon=True)
        telling.start()
        telling.join(LAST_LINES_S)
        self._leave(self._port if self.is_restart else None)

    def _tell_of_giving_up(self) -> None:
        log.warning(GAVE_UP, turns=self._node.running if self._node else 0)
        self.write_log()

    @property
    def is_restart(self) -> bool:
        """Tell whether the node begins again when its stop is over."""
        return self._node is not None and self._node.is_restarting and not self.is_for_good

    def _end(self) -> None:
        """Take the next step towards the end: cancel the start, or drain, or hurry, or turn a
        restart into a stop."""
        node = self._node
        if node is None:
            self.has_ended_the_start = True
            if self._starting is not None:
                self._starting.cancel()
        elif self._is_hurried:
            self.is_for_good = True
        elif node.drain_requested.is_set():
            self._is_hurried = True
            node.hurry()
        else:
            node.request_drain()

    def _look(self) -> None:
        """Read the configuration again."""
        if self._reload is not None:
            self._reload()
