"""Defines the port of an agent, which runs the model calls of turns."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.domain.prompt.prompt import ModelRequest, PromptMessage
from perdure.domain.turn.stream import AgentEvent


class Work(Protocol):
    """Shows an agent which turn a model call is part of, and what the journal holds of it.

    An agent that keeps a session of its own compares it with this: the turns that it has seen must
    be those that the turn stands on, else its session does not match this conversation any more.

    Guarantees: everything stays the same until the turn is over, except that `events` grows.
    Requires: nothing; an agent may ignore all of it.
    Raises: `chain` raises `Transient` when the store cannot be read now.
    After a crash: the next attempt shows the same chain, and the events of all attempts.
    """

    @property
    def session(self) -> SessionId:
        """Return the turn's session."""

    @property
    def turn(self) -> TurnId:
        """Return the turn."""

    @property
    def attempt(self) -> int:
        """Return the number of the turn's present attempt."""

    @property
    def conversation(self) -> ConversationId:
        """Return the turn's conversation."""

    @property
    def principal(self) -> PrincipalId:
        """Return the person that the turn is for."""

    @property
    def parent(self) -> TurnId | None:
        """Return the turn that this one stands on, or None if it is the first."""

    @property
    def events(self) -> Sequence[Recorded]:
        """Return the turn's own events so far, as the journal holds them."""

    async def chain(self, *, limit: int) -> list[list[Recorded]]:
        """Return the events of the last `limit` turns that the turn stands on, oldest turn first.
        Empty if it is the first."""


class Agent(Protocol):
    """Answers turns. Any number of turns use one agent at the same time.

    Guarantees: calls for different turns do not disturb each other.
    Requires: a request whose `prefix` was made with this agent's own `encode`.
    Raises: `run` never raises: a failure is its last event.
    After a crash: nothing is kept; the journal rebuilds any request.
    """

    def encode(self, message: PromptMessage) -> bytes:
        """Return a message in the agent's wire format: one or more JSON values joined by commas.
        The same message always gives the same bytes."""

    def run(self, request: ModelRequest, work: Work) -> AsyncGenerator[AgentEvent, None]:
        """Make one model call, and yield its events. The last one is always a `Stopped`, and there
        is only one.

        A finish reason in it means that the provider's finish marker was seen. A `Call` is whole.
        An answer that grows beyond the request's `room` is ended with ANSWER_EXCEEDED: its text so
        far was yielded, its calls were not. Closing the generator ends the call and frees its
        connection.
        """

    def let_go(self, turn: TurnId) -> None:
        """Note that nobody waits for a turn any more. An answer may stay under way after `run` has
        ended with calls of tools, and `run` for the same turn then goes on with it; from here on it
        is cancelled. Called for every turn that does not wait for a person, and never awaited."""

    async def lost(self, turn: TurnId) -> bool:
        """Wait until nothing of the turn's answer stays under way. Returns whether the agent was
        lost while it waited: then whatever it waits for has no use any more. Called for a turn that
        waits for a person."""

    async def close(self) -> None:
        """Close the agent's connections."""
