"""Follows a request on its way to a tool server, and says what a failure means for it.

The package runs what it sends over HTTP in the context of whoever asked. So the one variable here
tells the transport whose request it sends, and a question of the server which call it belongs to.
"""

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import anyio
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR
from pydantic import ValidationError

from perdure.domain.errors import Ambiguous, PerdureError, Permanent, Rejected, Transient
from perdure.domain.turn.errands import plain_line

# How much of a server's complaint is told.
_COMPLAINT_MAX: Final = 500
# What the package says itself by the code of lost connections. Servers use that code for anything.
_CLOSED: Final = "Connection closed"
_STREAM: Final = "SSE stream "


class LinkEnd:
    """Holds why a link has ended, and wakes who waits for it. The first reason stays."""

    def __init__(self) -> None:
        self.words = ""
        self._has_come = asyncio.Event()

    def tell(self, words: str) -> None:
        """End the link."""
        self.words = self.words or words
        self._has_come.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait for the end, but not for longer than this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_come.wait()


class GoingRequest:
    """Holds how far a request has come. `failure` is what the transport knows of its failure.
    `changes` tells whether the server may do something that cannot be taken back."""

    changes = False

    def __init__(self) -> None:
        self.is_sent = False
        self.failure: PerdureError | None = None
        self.is_over = False
        self._stop: Callable[[], None] | None = None

    def stop_by(self, stop: Callable[[], None] | None) -> None:
        """Say how to stop what the transport does for the request, once nobody waits for it."""
        self._stop = stop
        if self.is_over and stop is not None:
            stop()

    def finish(self) -> None:
        """Say that nobody waits for the answer any more. A server may never end its stream."""
        self.is_over = True
        if self._stop is not None:
            self._stop()

    def lost(self, words: str) -> PerdureError:
        """Return the error of a request whose answer will never come."""
        if self.failure is not None:
            return self.harmless(self.failure)
        return self.harmless(Ambiguous(words) if self.is_sent else Transient(words))

    def harmless(self, error: PerdureError) -> PerdureError:
        """Return an error as it is, unless nothing can have happened and it says the opposite."""
        if isinstance(error, Ambiguous) and not self.changes:
            return Transient(error.message, retry_after_s=error.retry_after_s)
        return error


GOING: Final[ContextVar[GoingRequest | None]] = ContextVar("going_request", default=None)


def quoted(words: object) -> str:
    """Return what a server says as one short line."""
    line = plain_line(str(words)[: 2 * _COMPLAINT_MAX])
    return line if len(line) <= _COMPLAINT_MAX else f"{line[: _COMPLAINT_MAX - 1]}…"


def error_words(error: BaseException) -> str:
    """Return what an error says, with its kind if that is all it says."""
    return f"{type(error).__name__}: {quoted(error)}".removesuffix(": ")


def translated_failure(error: BaseException, going: GoingRequest, end: LinkEnd) -> PerdureError:
    """Return the error of this project for one that the package raised."""
    match error:
        case PerdureError():
            return error
        case MCPError():
            return _told_failure(error, going, end)
        case ValidationError():
            return Permanent(f"what the server sends is no answer: {_first_problem(error)}")
        case anyio.ClosedResourceError() | anyio.BrokenResourceError() | OSError():
            return going.lost(f"the server is gone: it {end.words or error_words(error)}")
        case BaseExceptionGroup():
            return translated_failure(error.exceptions[0], going, end)
        case _:
            return Permanent(f"the server cannot be understood: {error_words(error)}")


def _told_failure(error: MCPError, going: GoingRequest, end: LinkEnd) -> PerdureError:
    """Return the error for one that the server has sent, or that the package says in its place."""
    words = quoted(error.message) or f"error {error.code}"
    if going.failure is not None:
        return going.lost("")
    if error.code == CONNECTION_CLOSED and error.message == _CLOSED:
        # What follows must find the link ended, also where nothing else has noticed yet.
        end.tell("has closed the connection")
        return going.lost(f"the server is gone: it {end.words}")
    if error.code == CONNECTION_CLOSED and error.message.startswith(_STREAM):
        return going.lost(f"the server's answer is lost: {words}")
    if error.code == PARSE_ERROR:
        return Permanent(f"what the server sends is no answer: {words}")
    return Rejected(f"the server refuses: {words}")


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return quoted(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
