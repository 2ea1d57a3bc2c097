"""The running engine, as the surfaces see it."""

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from perdure.domain.ids import ConversationId, PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import ToolCall, Usage
from perdure.domain.journal.reach import AT_ONCE, Reach
from perdure.domain.outcomes import Outcome
from perdure.domain.turn.watching import Position, Told
from perdure.ports.people.places import OutgoingMessage, SentMessage


class Orders(Protocol):
    """What people may have done to the rows, whether a node runs or not. The contract is the
    `Door`'s; without a node there is nobody to wake, and the next start looks at the rows."""

    async def send(self, sending: OutgoingMessage) -> SentMessage: ...

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None: ...

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> None: ...


class Door(Orders, Protocol):
    """The one way in for every surface.

    Guarantees and errors are those of the `Inbox` port, and of `Places` for `send`; afterwards
    whoever has work is awake.
    Requires: text that passed `storable`.
    Raises: as `Inbox`.
    After a crash: as `Inbox`; the wake-up is not needed, the next start looks at the rows.
    """

    async def accept(self, update: Update) -> Accepted: ...


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's end, with what its last message asked of the caller's own tools. `reach` is what it
    took to get an answer from an agent."""

    outcome: Outcome
    reason: str
    detail: str
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    reach: Reach = AT_ONCE


class Grown(msgspec.Struct, frozen=True):
    """All that a reply has grown by since it was last told of; `ended` comes once, and last."""

    text: str = ""
    ended: Ended | None = None


class Watchers(Protocol):
    """Live views of what becomes durable.

    Guarantees: `conversation` tells everything after a position without gap or repetition, or the
    present state and then everything; `turn` gives the reply's text from its beginning, as it
    grows, and its end last. Only durable text is told. What is there at one time is told at one
    time; nothing for a while is told too (nothing in it, no growth), so that surfaces can keep
    connections alive. Those who hear the same live are given the same objects.
    Requires: the caller closes the generator when its client is gone; `is_fresh` only if nothing
    was awaited since the turn was accepted.
    After `close`, which may be called at any time, a conversation's stream ends where it is, and a
    turn's that has no end raises.
    Raises: `NotFound`; `Transient` (`interrupted`) for a turn whose end this node will not see.
    After a crash: the same position goes on where it was.
    """

    def conversation(
        self, conversation: ConversationId, *, after: Position | None
    ) -> AsyncGenerator[Sequence[Told], None]: ...

    def turn(self, accepted: Accepted, *, is_fresh: bool) -> AsyncGenerator[Grown, None]: ...

    def close(self) -> None: ...


class Report(msgspec.Struct, frozen=True):
    """What a look at everything stored has found."""

    sessions: int
    violations: list[str]


class Health(StrEnum):
    """How a platform is doing, by what comes from it. SERVING: it talks to us. DEGRADED: it is
    being connected. BLIND: it is lost, refuses us, or has said nothing for long."""

    SERVING = "serving"
    DEGRADED = "degraded"
    BLIND = "blind"


class PlatformView(msgspec.Struct, frozen=True, kw_only=True):
    """`silent_s`: how long nothing at all has come from it."""

    name: str
    account: str
    health: Health
    error: str = ""
    silent_s: int = 0


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str


class Overseer(Protocol):
    """Sees to what an operator's decision means for platforms and people.

    Guarantees: `platforms` are the configured ones. `take_again` offers a letter of that adapter's
    once more. `review_access` ends the turns of people who may not speak any more, before it
    returns.
    Requires: nothing.
    Raises: `take_again` raises `Rejected` where no node runs.
    After a crash: nothing is kept.
    """

    def platforms(self) -> list[PlatformView]: ...

    async def take_again(self, adapter: str, payload: str) -> None: ...

    async def review_access(self) -> None: ...


class Control(Overseer, Protocol):
    """The node as a whole.

    Guarantees: `request_drain` returns at once, the drain goes on by itself; with `then_restart`
    the process comes back after it, with `is_replaced` another one takes its place.
    Requires: nothing.
    Raises: `resolve_agent` raises `Rejected` for a name that is not configured.
    After a crash: nothing is kept.
    """

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_draining(self) -> bool: ...

    @property
    def running(self) -> int: ...

    def agents(self) -> list[AgentView]: ...

    def resolve_agent(self, name: str) -> str: ...

    def request_drain(self, *, then_restart: bool = False, is_replaced: bool = False) -> None: ...
