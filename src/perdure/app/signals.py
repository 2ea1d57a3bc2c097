"""What the process is told from outside, from its first moment on.

SIGTERM and SIGINT ask for a drain, and the next one not to wait for it; before there is a node
they end the start. During a restart the first only hurries it, and the next one makes it an end.
SIGHUP means: read the configuration again. It never ends the process.
"""

import asyncio
import signal
from collections.abc import Callable

from perdure.app.node import Node


class Signals:
    def __init__(self) -> None:
        self._starting = asyncio.current_task()
        self._node: Node | None = None
        self._reload: Callable[[], None] | None = None
        self._is_hurried = False
        self.has_ended_the_start = False
        self.is_for_good = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._look)

    def lead_to(self, node: Node, *, reload: Callable[[], None]) -> None:
        self._node = node
        self._reload = reload

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
