"""A node of the real gateway as the crash simulator sees it.

The testkit knows neither app, engine nor store: `tests/sim/conftest.py` puts the real ones
together, and these are the parts of them that acts drive and read.
"""

from typing import Protocol

import msgspec

from perdure.ports.delivery.outbox import Outbox
from perdure.ports.gateway import Door
from perdure.ports.people.principals import Principals
from perdure.ports.records.history import Archive, Conversations, Diagnostics
from perdure.ports.records.media import Fetches
from perdure.ports.turns.inbox import Inbox
from perdure.ports.turns.turns import Nodes, Turns
from perdure.ports.turns.wakes import Wakes


class Pump(Protocol):
    """Any part of the engine that works in steps."""

    async def step(self) -> bool: ...


class TurnsPump(Protocol):
    """The pump of turns."""

    @property
    def running(self) -> int: ...

    async def step(self) -> bool: ...

    async def finished(self) -> None: ...


class _OutboxPump(Protocol):
    """The pump of what goes out."""

    async def recall(self) -> None: ...

    async def recover(self) -> None: ...

    async def step(self) -> bool: ...


class Engine(Protocol):
    """The life cycle of a node: starts its pumps and drains them."""

    async def begin(self, *, name: str) -> None: ...

    async def drain(self) -> None: ...


class _EngineParts(Protocol):
    """The real gateway's engine, put together and not begun."""

    @property
    def wakes(self) -> Wakes: ...

    @property
    def door(self) -> Door: ...

    @property
    def turns(self) -> TurnsPump: ...

    @property
    def outbox(self) -> _OutboxPump: ...

    @property
    def fetching(self) -> Pump: ...

    @property
    def reaper(self) -> Pump: ...

    @property
    def gateway(self) -> Engine: ...


class StorePorts(Protocol):
    """The real store. Nothing strikes who reads it here."""

    @property
    def inbox(self) -> Inbox: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def nodes(self) -> Nodes: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def fetches(self) -> Fetches: ...

    @property
    def principals(self) -> Principals: ...

    @property
    def conversations(self) -> Conversations: ...

    @property
    def archive(self) -> Archive: ...

    @property
    def diagnostics(self) -> Diagnostics: ...


class Process(msgspec.Struct, frozen=True):
    """One process of the gateway: its store, its engine, and what can be struck of the first."""

    store: StorePorts
    parts: _EngineParts
    struck_nodes: Nodes
