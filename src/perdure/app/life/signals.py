"""What the process is told from outside, from its first moment on.

SIGTERM and SIGINT ask for a drain, and the next one not to wait for it; before there is a node
they end the start. During a restart the first only hurries it, and the next one makes it an end.
SIGHUP means: read the configuration again. It never ends the process.

However a stop was asked for, it has a bound, which a thread enforces when nothing else does
(`app/life/last_resort.py`): the drain's time and a moment, or less than a second after one more
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

# How much longer than its drain a stop may take before the last resort ends it; the log's last line
# and the end itself take a moment of the three seconds that are promised.
MARGIN_S: Final = 2.7
HURRIED_S: Final = 0.8
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
log = structlog.get_logger("stop")


class Signals:
    """`leave` ends the process at once; it is told the port at which the node is to begin again, if
    it is. It is called on another thread, and only when the stop did not end in time."""

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
        # The signal that asked for the stop; empty while there was none.
        self.name = ""
        self.write_log: Callable[[], None] = lambda: None
        self._last_resort = LastResort(heard=self._heard, end=self._give_up)
        self._last_resort.listen(*_ENDING, signal.SIGHUP)

    def lead_to(self, node: Node, *, reload: Callable[[], None], port: int, drain_s: float) -> None:
        self._node = node
        self._reload = reload
        self._port = port
        self._stop_within_s = drain_s + MARGIN_S
        # Not when the node's own task wakes up: a loop that stands still right after it has
        # answered a request to restart never wakes it, and the process would hang for good.
        node.when_drain_requested(self._bound_stop)

    def _bound_stop(self) -> None:
        """Bound a stop that was asked for by a signal, over HTTP or in a chat."""
        self._is_ending = True
        self._last_resort.end_within(self._stop_within_s)

    def outlive_the_loop(self) -> None:
        self._last_resort.outlive_the_loop()

    def _heard(self, number: int) -> None:
        """Runs on the last resort's thread: the loop may stand still."""
        if number in _ENDING:
            node = self._node
            is_again = self._is_ending or (node is not None and node.drain_requested.is_set())
            self._is_ending = True
            self._last_resort.end_within(HURRIED_S if is_again else self._stop_within_s)
            self.name = self.name or signal.Signals(number).name
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the process will
            self._loop.call_soon_threadsafe(self._end if number in _ENDING else self._look)

    def _give_up(self) -> None:
        """Runs on the last resort's thread, when the time of the stop is up."""
        # A loop that stands still in the middle of a log line holds the log's lock for good:
        # whoever tells of it may wait for ever, and we do not.
        telling = threading.Thread(target=self._tell_of_giving_up, daemon=True)
        telling.start()
        telling.join(LAST_LINES_S)
        self._leave(self._port if self.is_restart else None)

    def _tell_of_giving_up(self) -> None:
        log.warning(GAVE_UP, turns=self._node.running if self._node else 0)
        self.write_log()

    @property
    def is_restart(self) -> bool:
        """Whether the node is to begin again when its stop is over."""
        return self._node is not None and self._node.is_restarting and not self.is_for_good

    def _end(self) -> None:
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
        if self._reload is not None:
            self._reload()
