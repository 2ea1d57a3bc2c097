"""Logs what a stop waits for and how it ended. `signals.py` sets the time limit of a stop."""

import time

import structlog

from perdure.app.config.environment import STOPPED
from perdure.app.life.node import Node
from perdure.app.life.signals import Signals

log = structlog.get_logger("stop")


class NodeStop:
    """Logs the stop of one node. If the start was broken off, nothing is logged."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._node: Node | None = None
        self._began_s = 0.0

    def begin(self, node: Node) -> None:
        """Log that the node stops, who asked for it, and what it waits for."""
        self._node = node
        self._began_s = time.monotonic()
        asked_by = self._signals.name or "request"
        is_restart = self._signals.is_restart
        log.info("restarting" if is_restart else "stopping", asked_by=asked_by, turns=node.running)
        if whom := _awaited(node):
            log.info(_waiting(whom, again=bool(self._signals.name), restart=is_restart))

    def over(self) -> None:
        """Log how long the stop took, and how many turns continue at the next start."""
        if self._node is None:
            return
        seconds = round(time.monotonic() - self._began_s, 2)
        parked, unparked = self._node.parked
        log.info(STOPPED, seconds=seconds, parked=parked, left_as_after_a_kill=unparked)


def _awaited(node: Node) -> str:
    """Return what the stop waits for: answers, or else messages that a platform has not accepted
    yet."""
    if node.running:
        return f"{node.running} answer{'' if node.running == 1 else 's'}"
    if node.sending == 1:
        return "1 message that is being sent"
    return f"{node.sending} messages that are being sent" if node.sending else ""


def _waiting(whom: str, *, again: bool, restart: bool) -> str:
    """Say what one more signal does. The first signal during a restart only makes it faster."""
    key = "Ctrl-C again" if again else "Ctrl-C"
    return f"waiting for {whom}; {key} {'restarts' if restart else 'ends'} it now"
