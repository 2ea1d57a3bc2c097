"""Keeps what one connection passes on to the next: cursors, waiting events, and senders.

Everything here is bounded. Only the cursors survive a restart.
"""

import asyncio
from collections import OrderedDict, deque
from pathlib import Path
from typing import Final

from perdure.adapters.discord.catching_up.cursors import Cursors
from perdure.adapters.discord.payloads import GatewayEvent
from perdure.domain.errors import Transient
from perdure.domain.inbound.arrivals import Sender

# Bounds the memory that events use while the store takes none.
WAITING_MAX: Final = 10_000
# How many messages we can still name the author of when they are deleted.
SENDERS_MAX: Final = 5_000


class Line:
    """Queues the events that wait to be taken. The queue survives a lost connection."""

    def __init__(self) -> None:
        self._events: deque[GatewayEvent] = deque()
        self._is_any = asyncio.Event()

    def add(self, event: GatewayEvent) -> None:
        """Append an event. Raises `Transient` if `WAITING_MAX` events wait already."""
        if len(self._events) >= WAITING_MAX:
            # The error ends the connection. The event is not lost: the session is resumed at it.
            raise Transient(f"Discord: {WAITING_MAX:,} events wait to be taken; see to the store")
        self._events.append(event)
        self._is_any.set()

    async def head(self) -> GatewayEvent:
        """Wait for an event, and return the oldest one without removing it."""
        await self._is_any.wait()
        return self._events[0]

    def drop_head(self) -> None:
        """Remove the oldest event, after it was taken."""
        self._events.popleft()
        if not self._events:
            self._is_any.clear()


class Senders:
    """Remembers who wrote the newest messages: Discord does not say it when one is deleted."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Sender] = OrderedDict()

    def add(self, message: str, sender: Sender) -> None:
        """Remember who wrote a message."""
        self._known[message] = sender
        if len(self._known) > SENDERS_MAX:
            self._known.popitem(last=False)

    def of(self, message: str) -> Sender:
        """Return the sender of a message. If it was forgotten, the sender's id is empty."""
        return self._known.get(message) or Sender(id="")


class ConnectionMemory:
    """Holds the cursors, the queue of events, and the senders. Only the cursors survive a
    restart."""

    def __init__(self, folder: Path) -> None:
        self.cursors = Cursors(folder / "cursors.json")
        self.line = Line()
        self.senders = Senders()
