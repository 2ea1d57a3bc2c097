"""Holds the bindings of the bridge: whose secret opens which tools, and which calls wait."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

import msgspec
import structlog

from perdure.ports.agents.bridge import ARGUMENTS_MAX, CALLS_MAX, BridgeAddress, BridgeCall

GONE: Final = "The conversation that this call belongs to is over, so the call was not made."
_TOO_MANY: Final = f"More than {CALLS_MAX} calls wait already, so this one was not made."
_TOO_LONG: Final = f"The arguments are longer than {ARGUMENTS_MAX:,} bytes; call again with less."
_STRANGE: Final = "There is no such tool here, so nothing was called."
log = structlog.get_logger("bridge")


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})


class _OpenAiTool(msgspec.Struct, frozen=True):
    function: _Function


class CallAnswer(msgspec.Struct, frozen=True):
    """Holds the answer to a call, as the agent's model reads it."""

    text: str
    is_error: bool


class LiveBinding:
    """Implements the `BridgeBinding` port."""

    def __init__(
        self,
        *,
        hear: Callable[[BridgeCall], None],
        is_cancelled: Callable[[int], None],
        forget: "Callable[[LiveBinding], None]",
    ) -> None:
        self._hear = hear
        self._is_cancelled = is_cancelled
        self._forget = forget
        self._waiting: dict[int, asyncio.Future[CallAnswer]] = {}
        self._keys = count(1)
        self._is_closed = False
        self.token = secrets.token_urlsafe(32)
        self.connected = asyncio.Event()
        self.when_changed: Callable[[LiveBinding], None] = lambda _: None
        self.tools: tuple[_Function, ...] = ()
        self.address = BridgeAddress(connected=self.connected)

    def publish(self, tools: str) -> None:
        listed = msgspec.json.decode(tools, type=list[_OpenAiTool]) if tools else []
        self.tools = tuple(each.function for each in listed)
        self.when_changed(self)

    def answer(self, key: int, text: str, *, is_error: bool) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(CallAnswer(text, is_error))

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._forget(self)
        for key in tuple(self._waiting):
            self.answer(key, GONE, is_error=True)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> CallAnswer:
        """Pass a call of the agent on, and wait for its answer."""
        text = msgspec.json.encode(arguments)
        if problem := self._problem(name, text):
            return CallAnswer(problem, is_error=True)
        key = next(self._keys)
        waiting: asyncio.Future[CallAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[key] = waiting
        try:
            self._hear(BridgeCall(key=key, name=name, arguments=text.decode()))
            return await waiting
        except asyncio.CancelledError:
            log.debug("an agent does not wait for a call any more", tool=name)
            self._is_cancelled(key)
            raise
        finally:
            del self._waiting[key]

    def _problem(self, name: str, arguments: bytes) -> str:
        """Return why a call cannot be passed on, or an empty string."""
        if self._is_closed:
            return GONE
        if all(tool.name != name for tool in self.tools):
            return _STRANGE
        if len(self._waiting) >= CALLS_MAX:
            return _TOO_MANY
        return _TOO_LONG if len(arguments) > ARGUMENTS_MAX else ""


class BindingBook:
    """Finds bindings by their secrets. Only digests are compared, so how long it takes says nothing
    about a secret."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, LiveBinding] = {}

    def add(self, binding: LiveBinding) -> None:
        """Let a binding be found."""
        self._by_digest[_digest(binding.token)] = binding

    def remove(self, binding: LiveBinding) -> None:
        """Let a binding be found no more."""
        self._by_digest.pop(_digest(binding.token), None)

    def find(self, token: str) -> LiveBinding | None:
        """Return the binding that a secret opens, or None."""
        return self._by_digest.get(_digest(token))

    def all(self) -> list[LiveBinding]:
        """Return all bindings."""
        return list(self._by_digest.values())


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
