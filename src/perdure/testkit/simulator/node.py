"""Describes a node of the real gateway as the crash simulator sees it.

The testkit imports neither app nor engine nor store. `tests/sim/conftest.py` puts the real ones
together, and the protocols here describe the parts of them that a test drives and reads.
"""

from typing import Protocol

import msgspec

from perdure.ports.agents.delegations import Delegations
from perdure.ports.delivery.outbox import Outbox
from perdure.ports.delivery.pushes import Pushes
from perdure.ports.gateway import Door
from perdure.ports.people.overhearing import Overhearing
from perdure.ports.people.places import Places
from perdure.ports.people.principals import Principals
from perdure.ports.records.history import Archive, Conversations, Diagnostics
from perdure.ports.records.media import Fetches
from perdure.ports.schedule.schedule import Schedule
from perdure.ports.turns.inbox import Inbox
from perdure.ports.turns.questions import Effects, Grants, Questions
from perdure.ports.turns.room import ContextRoom
from perdure.ports.turns.turns import Nodes, Turns
from perdure.ports.turns.wakes import Wakes


class Pump(Protocol):
    """Does its work in steps, as any pump of the engine."""

    async def step(self) -> bool:
        """Do one unit of work. Returns whether there was any."""


class HooksPump(Protocol):
    """Tells hooks what has happened, as the engine's pump does."""

    async def run(self) -> None:
        """Tell hooks what happens, until `stop`."""

    def stop(self) -> None:
        """End soon."""

    async def begin(self) -> bool:
        """Look for hooks. Returns whether there are any."""

    async def step(self) -> bool:
        """Tell hooks of some occasions. Returns whether there were any."""


class TurnsPump(Protocol):
    """Runs turns, as the engine's turn pump does."""

    @property
    def running(self) -> int:
        """Return how many turns run now."""

    async def step(self) -> bool:
        """Begin turns that are ready. Returns whether there were any."""

    async def finished(self) -> None:
        """Wait until no turn runs."""


class _OutboxPump(Protocol):
    """Sends parts, as the engine's outbox pump does."""

    async def recall(self) -> None: ...

    async def recover(self) -> None: ...

    async def step(self) -> bool: ...


class Engine(Protocol):
    """Starts a node's pumps and drains them."""

    async def begin(self, *, name: str) -> None: ...

    async def drain(self) -> None: ...


class _EngineParts(Protocol):
    """Holds the parts of the real engine, put together and not yet started."""

    @property
    def wakes(self) -> Wakes: ...

    @property
    def door(self) -> Door: ...

    @property
    def turns(self) -> TurnsPump: ...

    @property
    def outbox(self) -> _OutboxPump: ...

    @property
    def schedule(self) -> Pump: ...

    @property
    def boot(self) -> Pump: ...

    @property
    def fetching(self) -> Pump: ...

    @property
    def hooks(self) -> HooksPump: ...

    @property
    def pushes(self) -> Pump: ...

    @property
    def reaper(self) -> Pump: ...

    @property
    def gateway(self) -> Engine: ...


class StorePorts(Protocol):
    """Holds the ports of the real store. They are not wrapped, so the simulator does not strike the
    test's own reads."""

    @property
    def inbox(self) -> Inbox: ...

    @property
    def turns(self) -> Turns: ...

    @property
    def room(self) -> ContextRoom: ...

    @property
    def nodes(self) -> Nodes: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def fetches(self) -> Fetches: ...

    @property
    def principals(self) -> Principals: ...

    @property
    def overhearing(self) -> Overhearing: ...

    @property
    def places(self) -> Places: ...

    @property
    def conversations(self) -> Conversations: ...

    @property
    def archive(self) -> Archive: ...

    @property
    def diagnostics(self) -> Diagnostics: ...

    @property
    def questions(self) -> Questions: ...

    @property
    def delegations(self) -> Delegations: ...

    @property
    def grants(self) -> Grants: ...

    @property
    def effects(self) -> Effects: ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def pushes(self) -> Pushes: ...


class Process(msgspec.Struct, frozen=True):
    """Holds one process of the gateway: its store, its engine, the wrapped `Nodes` port, which the
    simulator can strike, and the pump that closes questions whose deadline has passed."""

    store: StorePorts
    parts: _EngineParts
    struck_nodes: Nodes
    deadlines: Pump
