"""Dying at any instant, on purpose.

A port call is the only place where anything durable happens, so wrapping the ports names every
instant at which a process can die, lose an answer or be refused. Production code carries no hooks.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import StrEnum
from functools import wraps
from typing import Any, Final

from perdure.domain.errors import Ambiguous, Transient


class SimulatedCrash(BaseException):
    """The process is gone. Not an `Exception`, so that nothing can survive it."""


class Nemesis(StrEnum):
    DIE = "die"
    LOSE_REPLY = "lose_reply"  # it happened, and the caller is not told
    REFUSE = "refuse"  # it did not happen, and the caller is told


class Fuse:
    """Counts points and strikes at one of them. After a death everything is dead: the dead do not
    write."""

    def __init__(self, strikes_at: int | None = None, nemesis: Nemesis = Nemesis.DIE) -> None:
        self._strikes_at = strikes_at
        self._nemesis = nemesis
        self.passed: list[str] = []
        self.has_struck = False

    @property
    def is_dead(self) -> bool:
        return self.has_struck and self._nemesis is Nemesis.DIE

    def before(self, name: str) -> None:
        """The call is about to be made."""
        if self._is_struck(f"before {name}"):
            if self._nemesis is Nemesis.DIE:
                raise SimulatedCrash(name)
            if self._nemesis is Nemesis.REFUSE:
                raise Transient(f"refused: {name}")

    def after(self, name: str) -> None:
        """The call took effect; its answer is on the way."""
        if self._is_struck(f"after {name}"):
            if self._nemesis is Nemesis.DIE:
                raise SimulatedCrash(name)
            if self._nemesis is Nemesis.LOSE_REPLY:
                raise Ambiguous(f"answer lost: {name}")

    def instant(self, name: str) -> None:
        """A moment between calls: only death can come here."""
        if self._is_struck(name) and self._nemesis is Nemesis.DIE:
            raise SimulatedCrash(name)

    def _is_struck(self, point: str) -> bool:
        if self.is_dead:
            raise SimulatedCrash(point)
        is_struck = self._strikes_at is not None and len(self.passed) == self._strikes_at
        self.passed.append(point)
        self.has_struck = self.has_struck or is_struck
        return is_struck


class Fused:
    """Wraps any port of async methods; everything else passes through."""

    def __init__(self, inner: object, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        method: Callable[..., Awaitable[object]] = found
        label = f"{type(self._inner).__name__}.{name}"

        @wraps(method)
        async def call(*args: object, **kwargs: object) -> object:
            self._fuse.before(label)
            result = await method(*args, **kwargs)
            self._fuse.after(label)
            return result

        return call


PORTS: Final = ("inbox", "turns", "nodes", "outbox", "conversations", "archive", "media")


class FusedStore:
    """A store whose every port is fused; what is not a port passes through."""

    def __init__(self, store: object, fuse: Fuse) -> None:
        self._store = store
        for port in PORTS:
            setattr(self, port, Fused(getattr(store, port), fuse))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FusedAgent:
    """An agent whose stream can be cut by death between any two events."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def run(self, request: Any) -> AsyncGenerator[Any, None]:
        async for event in self._inner.run(request):
            self._fuse.instant("agent event")
            yield event
