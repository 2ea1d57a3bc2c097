"""Defines the ports through which the surfaces (HTTP, the console, platforms) use the running
engine."""

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from perdure.domain.ids import CallId, ConversationId, PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted, Update
from perdure.domain.journal.events import ToolCall
from perdure.domain.journal.model.reach import AT_ONCE, Reach
from perdure.domain.journal.model.usage import Usage
from perdure.domain.journal.records import EffectView
from perdure.domain.outcomes import Outcome
from perdure.domain.people.menu import OfferedTool
from perdure.domain.turn.watching import Position, Told
from perdure.ports.people.places import OutgoingMessage, SentMessage
from perdure.ports.records.history import ConversationView
from perdure.ports.turns.questions import QuestionReply, QuestionTaken


class Orders(Protocol):
    """Takes what people order besides messages. It works on the rows, whether a node runs or not.

    Guarantees: those of `Inbox`, and of `Places` for `send`. With a node, the parts that have work
    by it are woken; without one, the next start looks at the rows.
    Requires: text that passed `storable`. `by` None may touch any turn (operators), a principal
    only its own.
    Raises: as `Inbox`, and as `Places` for `send`.
    After a crash: as `Inbox`.
    """

    async def send(self, sending: OutgoingMessage) -> SentMessage:
        """Queue a text for a place, to be said there without asking a model. See `Places.send`."""

    async def stop(self, turn: TurnId, *, by: PrincipalId | None) -> None:
        """Settle a turn as stopped. See `Inbox.stop`."""

    async def amend(self, turn: TurnId, text: str, *, by: PrincipalId | None) -> None:
        """Replace the text of a message that still waits. See `Inbox.amend`."""

    async def answer(self, reply: QuestionReply) -> QuestionTaken:
        """Answer a question of an agent. See `Questions.answer`."""

    async def mark_effect(
        self, call: CallId, *, has_happened: bool, by: PrincipalId, principal: PrincipalId | None
    ) -> EffectView:
        """Record whether a call has happened. See `Effects.mark`."""


class Door(Orders, Protocol):
    """Takes everything that comes in, from every surface.

    Guarantees: those of `Inbox`, and of `Places` for `send`; afterwards the parts that have work
    are awake.
    Requires: text that passed `storable`.
    Raises: as `Inbox`, and as `Places` for `send`.
    After a crash: as `Inbox`; the wake-up is not needed, because the next start looks at the rows.
    """

    async def accept(self, update: Update) -> Accepted:
        """Accept an update, and begin its turn if it can run now. See `Inbox.accept`."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how a turn has ended. `calls` are the calls that have no result: those of the caller's
    own tools, if the turn is done. `reach` says what it took to get an answer from an agent."""

    outcome: Outcome
    reason: str
    detail: str
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    reach: Reach = AT_ONCE


class Grown(msgspec.Struct, frozen=True):
    """Holds the text by which a reply has grown since the last one; `ended` comes once, and last.
    `is_waiting`: from here on the turn waits until a person has answered."""

    text: str = ""
    ended: Ended | None = None
    is_waiting: bool = False


class Watchers(Protocol):
    """Shows live what becomes durable.

    Guarantees: only durable text is told, without gap or repetition. What is known at one time is
    told in one piece. If nothing happens for a while, an empty piece is told, so that surfaces can
    keep connections alive. Watchers that are told the same get the same objects.
    Requires: the caller closes the generator when its client is gone.
    Raises: `NotFound` for a conversation or a turn that does not exist; `Transient` when the store
    cannot be read now.
    After a crash: the stream of a conversation continues from the same position.
    """

    def conversation(
        self, conversation: ConversationId, *, after: Position | None
    ) -> AsyncGenerator[Sequence[Told], None]:
        """Tell everything after a position; with None, the present state and then everything. After
        `close` the stream ends where it is."""

    def turn(self, accepted: Accepted, *, is_fresh: bool) -> AsyncGenerator[Grown, None]:
        """Tell a reply's text from its beginning, as it grows, and its end last. When the turn
        begins or ends to wait for a person, that is told too.

        Requires `is_fresh` only if nothing was awaited since the turn was accepted. Raises
        `Transient` with the code `interrupted` after `close`, if the turn has not ended.
        """

    def lists(self, principal: PrincipalId) -> AsyncGenerator[Sequence[ConversationView], None]:
        """Tell a person's newest conversations, and then those that change, a moment after they
        did. After `close` the stream ends where it is."""

    def touched(self, conversation: ConversationId) -> None:
        """Note that its person has put a conversation to another place in the list, or seen it."""

    def close(self) -> None:
        """End all streams. May be called at any time."""


class Report(msgspec.Struct, frozen=True):
    """Holds what a check of everything stored has found."""

    sessions: int
    violations: list[str]


class Health(StrEnum):
    """Says how a platform is doing, judged by what comes from it. SERVING: something came lately.
    DEGRADED: it is being connected for the first time. BLIND: the connection is lost or refused, or
    nothing has come for long."""

    SERVING = "serving"
    DEGRADED = "degraded"
    BLIND = "blind"


class PlatformView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a configured platform. `silent_s` is for how long nothing at all has come from
    it."""

    name: str
    account: str
    health: Health
    error: str = ""
    silent_s: int = 0


class AgentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a configured agent. `window` is the size of its model's window, in tokens, if the
    model's server has named it, else 0."""

    name: str
    kind: str
    model: str = ""
    window: int = 0


class Overseer(Protocol):
    """Carries out what an operator's decision means for platforms and people.

    Guarantees: when a method returns, what it was asked for has happened and is durable.
    Requires: nothing.
    Raises: `Transient` or `Ambiguous` when the store cannot take it now.
    After a crash: nothing is kept; a turn whose person may not speak is refused before it begins.
    """

    def platforms(self) -> list[PlatformView]:
        """Return the configured platforms."""

    async def take_again(self, adapter: str, payload: str) -> None:
        """Take a letter of this adapter once more. Raises `Rejected` if no node runs or the
        platform is not configured, and otherwise whatever keeps the letter from being taken."""

    async def review_access(self) -> None:
        """End the turns of people who may not speak any more. Returns after they have ended."""

    def tools(self, agent: str) -> list[OfferedTool]:
        """Return what the agent that answers under this name may do, and why not the rest. Raises
        `Rejected` if no node runs."""


class Control(Overseer, Protocol):
    """Represents the node as a whole.

    Guarantees: those of `Overseer`; the methods added here return at once.
    Requires: nothing.
    Raises: as `Overseer`; `resolve_agent` raises `Rejected`.
    After a crash: nothing is kept; a drain that was under way is not continued.
    """

    @property
    def is_ready(self) -> bool:
        """Tell whether the node serves: not before its start is done, nor during a drain, nor while
        one of its pumps fails."""

    @property
    def is_draining(self) -> bool:
        """Tell whether a drain has begun."""

    @property
    def running(self) -> int:
        """Return how many turns run now."""

    def agents(self) -> list[AgentView]:
        """Return the configured agents."""

    def resolve_agent(self, name: str) -> str:
        """Return the name of a configured agent; an empty name means the default one. Raises
        `Rejected` for a name that is not configured."""

    def request_drain(self, *, then_restart: bool = False, is_replaced: bool = False) -> None:
        """Ask for a drain, and return at once. With `then_restart` the process comes back after it;
        with `is_replaced` another process takes its place."""
