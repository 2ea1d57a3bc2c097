"""Defines the port of the bridge over which external agents call the gateway's tools.

An agent that runs as a program of its own takes tools from a server. The bridge is that server. A
binding is what one session of an agent sees of it: its own tools, under its own secret. A call
comes to the binding whose secret it carries, and to no other.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import msgspec

# How many calls of one binding may wait for their answers, and how long the arguments of one may
# be. What exceeds this is refused in words that the agent's model reads.
CALLS_MAX: Final = 64
ARGUMENTS_MAX: Final = 2_000_000


class BridgeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Says how an agent reaches the tools of one binding: at `url` with the bearer `token`, or
    through the program `argv` with `env`. `connected` is set when the agent has asked for the list
    of its tools: agents are silent about tools that they cannot reach."""

    name: str = "perdure"
    url: str = ""
    token: str = ""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    connected: asyncio.Event


class BridgeCall(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a call of an agent. `arguments` is JSON text. The agent waits until the binding's
    `answer` is called with the `key`."""

    key: int
    name: str
    arguments: str


class BridgeBinding(Protocol):
    """Serves one session of an agent.

    Guarantees: calls and answers of different bindings never meet, also where sessions share a
    process. Whoever has no valid secret learns nothing, not even that a binding exists.
    Requires: nothing.
    Raises: nothing.
    After a crash: the binding is gone, and its secret opens nothing any more.
    """

    @property
    def address(self) -> BridgeAddress:
        """Return how the agent reaches this binding."""

    def publish(self, tools: str) -> None:
        """Replace the tools: JSON text in OpenAI's format, or empty for none. Agents that listen
        are told. Calls in flight are not affected."""

    def answer(self, key: int, text: str, *, is_error: bool) -> None:
        """Answer a call. Does nothing if nobody waits for it any more."""

    def close(self) -> None:
        """End the binding: calls that wait are answered with an error, and so is every later
        one. May be called twice."""


class Bridge(Protocol):
    """Makes bindings.

    Guarantees: nothing listens before the first binding is made, and then on loopback only.
    Requires: a running event loop.
    Raises: `bind` raises `Transient` if nothing can be listened on.
    After a crash: all bindings are gone.
    """

    async def bind(
        self,
        tools: str,
        *,
        hear: Callable[[BridgeCall], None],
        is_cancelled: Callable[[int], None],
    ) -> BridgeBinding:
        """Make a binding with these tools. `hear` is told of each call, and `is_cancelled` of each
        one that the agent does not wait for any more."""

    async def close(self) -> None:
        """End all bindings, and listen no more. May be called twice."""
