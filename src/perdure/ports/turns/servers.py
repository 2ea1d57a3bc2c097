"""Defines the port through which people look at the tool servers of a node."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol

import msgspec

from perdure.domain.errors import NotFound


class ServerState(StrEnum):
    """Says how a tool server is doing. NOT_STARTED: nobody has needed it yet. STARTING: it is being
    reached for the first time, or again. READY: it can be called. DOWN: the last attempt to reach
    it has failed."""

    NOT_STARTED = "not_started"
    STARTING = "starting"
    READY = "ready"
    DOWN = "down"


class ToolServerView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a configured tool server: a program that we start, or an address. `why` says what
    is wrong, if it is down, and when or how it is tried again. `tools` counts what it offers, as
    far as that is known, `links` the open connections to it, `calls` the calls made since the start
    of the node, and `failures` those calls whose answer did not come. `version` is what the server
    calls itself, with its version. `is_shared`: all people use it over one connection."""

    name: str
    kind: Literal["program", "address"]
    state: ServerState
    is_shared: bool
    why: str = ""
    tools: int = 0
    links: int = 0
    calls: int = 0
    failures: int = 0
    version: str = ""


class ToolServers(Protocol):
    """Shows the tool servers of a node to its operators.

    Guarantees: both methods return at once, and start nothing.
    Requires: nothing.
    Raises: `NotFound` for a server that is not configured.
    After a crash: nothing is kept; what is counted begins anew.
    """

    def views(self) -> Sequence[ToolServerView]:
        """Return the configured servers, in the order of the configuration."""

    def log(self, name: str) -> str:
        """Return the end of what a server has written to its standard error, or of what is known of
        its failures. Empty if there is nothing."""


class NoToolServers:
    """Stands for a node without tool servers."""

    def views(self) -> Sequence[ToolServerView]:
        """Return nothing."""
        return ()

    def log(self, name: str) -> str:
        """Raise `NotFound`, because no server is configured."""
        raise unknown_server(name)


def unknown_server(name: str) -> NotFound:
    """Return the error for a server that is not configured."""
    return NotFound(f"no tool server is called {name}; `perdure mcp list` shows those that are")
