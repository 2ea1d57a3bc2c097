"""Makes the running node of this home leave before this one begins (`serve --replace`).

On SQLite the process that holds the lock is in the way, whatever `server.json` says. Its address is
only in `server.json`, so a holder that cannot be asked over HTTP gets SIGTERM, which means the
same. On PostgreSQL nodes share the store, and the node of this home is the one that answers at its
address.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from perdure.app.operate.client import NodeClient
from perdure.app.operate.node_process import drain_by_signal, is_alive, lock_holder
from perdure.domain.errors import PerdureError
from perdure.ports.system.clock import Clock
from perdure.web.ops import node as endpoints

LOOK_S: Final = 0.1
# A starting node takes the lock before it can answer, so it gets this time before a signal is sent.
SIGNAL_AFTER_S: Final = 1.0
# How often the log repeats that we are waiting.
REMIND_S: Final = 10.0
log = structlog.get_logger("replace")


async def make_way(
    home: Path, environ: Mapping[str, str], *, lock: Path | None, clock: Clock
) -> int | None:
    """Ask the running node to drain, and wait until it is gone. Returns its port, if it could be
    asked."""
    node = Predecessor(NodeClient(home, environ), lock, clock)
    while await node.is_there():
        await node.ask()
        await clock.sleep(LOOK_S)
    return node.port


class Predecessor:
    """Asks the node that ran before this one to leave, and watches it."""

    def __init__(self, client: NodeClient, lock: Path | None, clock: Clock) -> None:
        self._client = client
        self._lock = lock
        self._clock = clock
        self._pid = 0
        self._asked = 0
        self._since = clock.monotonic_s()
        self._told = ("", self._since)
        self.port: int | None = None

    async def is_there(self) -> bool:
        """Tell whether the node is still in the way."""
        if self._lock is not None:
            holder = lock_holder(self._lock)
            self._pid = holder or 0
            return holder is not None
        if self._asked:
            return is_alive(self._asked)
        if await self._answers():
            self._pid = self._client.pid
        return bool(self._pid)

    async def ask(self) -> None:
        """Ask it once to drain, then log what it is still doing."""
        if self._asked == self._pid:
            await self._tell()
        elif await self._answers():
            self.port = self._client.port
            if await self._has_agreed():
                self._asked = self._pid
                log.info("asked the running node to drain", pid=self._pid)
        elif self._clock.monotonic_s() - self._since > SIGNAL_AFTER_S:
            self._signal()

    async def _answers(self) -> bool:
        """Tell whether the node that is in the way is the one that answers."""
        try:
            is_found = await self._client.look_again()
        except PerdureError:
            return False
        return is_found and self._pid in (0, self._client.pid)

    async def _has_agreed(self) -> bool:
        try:
            await self._client.ask(endpoints.drain, replaced="true")
        except PerdureError as error:
            log.warning("the running node refused to drain", error=error.message)
            return False
        return True

    def _signal(self) -> None:
        """Send SIGTERM to a holder of the lock that does not answer."""
        self._since = self._clock.monotonic_s()
        if self._lock is None or not drain_by_signal(self._pid, self._lock):
            return
        self._asked = self._pid
        log.warning("the holder of the store does not answer; sent it SIGTERM", pid=self._pid)

    async def _tell(self) -> None:
        try:
            status = await self._client.status()
            text = f"{status.turns.get('running', 0)} turns running"
        except PerdureError:
            text = "closing"
        now = self._clock.monotonic_s()
        if text != self._told[0] or now - self._told[1] > REMIND_S:
            self._told = (text, now)
            log.info("waiting for the running node", pid=self._pid, state=text)
