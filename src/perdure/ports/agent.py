"""A backend that can run a turn's model calls."""

from collections.abc import AsyncGenerator
from typing import Protocol

from perdure.domain.prompt import Message, Request
from perdure.domain.stream import AgentEvent


class Agent(Protocol):
    """One agent, shared by any number of turns at once.

    Guarantees: `run` makes one model call and yields its events; the last is exactly one `Stopped`,
    and a finish reason in it means that the provider's finish marker was seen. A `Call` is whole.
    `encode` is pure: the same message always gives the same bytes, one or more JSON values joined
    by commas.
    Requires: a request whose `prefix` came from this agent's own `encode`.
    Raises: `run` never raises: failures are its last event. Closing the generator ends the call and
    frees its connection.
    After a crash: nothing is kept; the journal rebuilds any request.
    """

    def encode(self, message: Message) -> bytes: ...

    def run(self, request: Request) -> AsyncGenerator[AgentEvent, None]: ...

    async def close(self) -> None: ...
