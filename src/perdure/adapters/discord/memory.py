"""What is kept from one connection to the next, all of it bounded."""

import asyncio
from collections import OrderedDict, deque
from pathlib import Path
from typing import Final

from perdure.adapters.discord.cursors import Cursors
from perdure.adapters.discord.payloads import GatewayEvent
from perdure.domain.errors import Transient
from perdure.domain.inbound.arrivals import Sender

WAITING_MAX: Final = 10_000
SENDERS_MAX: Final = 5_000


class Line:
    """The events that wait to be taken, kept from one connection to the next."""

    def __init__(self) -> None:
        self._events: deque[GatewayEvent] = deque()
        self._is_any = asyncio.Event()

    def add(self, event: GatewayEvent) -> None:
        if len(self._events) >= WAITING_MAX:
            # The connection is given up; the session resumes at this very event.
            raise Transient(f"Discord: {WAITING_MAX:,} events wait to be taken; see to the store")
        self._events.append(event)
        self._is_any.set()

    async def head(self) -> GatewayEvent:
        await self._is_any.wait()
        return self._events[0]

    def drop_head(self) -> None:
        self._events.popleft()
        if not self._events:
            self._is_any.clear()


class Senders:
    """Who wrote the newest messages: Discord does not tell when one is deleted."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Sender] = OrderedDict()

    def add(self, message: str, sender: Sender) -> None:
        self._known[message] = sender
        if len(self._known) > SENDERS_MAX:
            self._known.popitem(last=False)

    def of(self, message: str) -> Sender:
        return self._known.get(message) or Sender(id="")


class ConnectionMemory:
    """All of it; only the cursors outlive the process."""

    def __init__(self, folder: Path) -> None:
        self.cursors = Cursors(folder / "cursors.json")
        self.line = Line()
        self.senders = Senders()
