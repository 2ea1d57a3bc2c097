"""A backend that can run a turn's model calls."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.turn.stream import AgentEvent


class Work(Protocol):
    """Shows an agent which turn a model call is part of, and what the journal holds of it.

    An agent that keeps a session of its own compares it with this: the turns that it has seen must
    be those that the turn stands on, else its session is not this conversation's any more.

    Guarantees: `events` are the turn's own so far, as they stand in the journal; `chain` returns
    the last `limit` turns that it stands on, oldest first, each with its events; it is empty where
    the turn is the first. Both say the same until the turn is over, but for what is added to
    `events`.
    Requires: nothing; an agent that needs none of it may leave it alone.
    Raises: `chain` raises `Transient` when the store cannot be read now.
    After a crash: the next attempt shows the same chain, and the events with how they were left.
    """

    @property
    def session(self) -> SessionId: ...

    @property
    def turn(self) -> TurnId: ...

    @property
    def attempt(self) -> int: ...

    @property
    def conversation(self) -> ConversationId: ...

    @property
    def principal(self) -> PrincipalId: ...

    @property
    def parent(self) -> TurnId | None: ...

    @property
    def events(self) -> Sequence[Recorded]: ...

    async def chain(self, *, limit: int) -> list[list[Recorded]]: ...


class Agent(Protocol):
    """One agent, shared by any number of turns at once.

    Guarantees: `run` makes one model call for a piece of `work` and yields its events; the last is
    exactly one `Stopped`, and a finish reason in it means that the provider's finish marker was
    seen. A `Call` is whole. An answer that outgrows the request's `room` is ended while it comes,
    with ANSWER_EXCEEDED: its text so far was yielded, its calls were not.
    `encode` is pure: the same message always gives the same bytes, one or more JSON values joined
    by commas.
    Requires: a request whose `prefix` came from this agent's own `encode`.
    Raises: `run` never raises: failures are its last event. Closing the generator ends the call and
    frees its connection.
    After a crash: nothing is kept; the journal rebuilds any request.
    """

    def encode(self, message: PromptMessage) -> bytes: ...

    def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]: ...

    async def close(self) -> None: ...
