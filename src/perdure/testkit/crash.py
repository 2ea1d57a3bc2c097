"""Dying at any instant, on purpose.

A port call is the only place where anything durable happens, so wrapping the ports names every
instant at which a process can die, lose an answer, be refused or stand still. Production
code carries no hooks.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
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
    PAUSE = "pause"  # the process stands still for longer than its lease


async def _no_pause() -> None:
    """Nothing happens meanwhile."""


class Fuse:
    """Counts points and strikes at one of them. After a death everything is dead: the dead do not
    write. During a pause everything stands still: whoever reaches a point waits there until
    `meanwhile` is over. `is_killed`: the process was ended from outside; the next one begins with
    the same fuse."""

    def __init__(
        self,
        strikes_at: int | None = None,
        nemesis: Nemesis = Nemesis.DIE,
        *,
        meanwhile: Callable[[], Awaitable[None]] = _no_pause,
    ) -> None:
        self._strikes_at = strikes_at
        self.nemesis = nemesis
        self.meanwhile = meanwhile
        self._awake = asyncio.Event()
        self._awake.set()
        self.passed: list[str] = []
        self.has_struck = False
        self.is_killed = False

    @property
    def is_dead(self) -> bool:
        return self.has_struck and self.nemesis is Nemesis.DIE

    @property
    def struck(self) -> str:
        """The point at which it struck, in words."""
        at = self._strikes_at
        return self.passed[at] if at is not None and self.has_struck else "nowhere"

    async def before(self, name: str) -> None:
        """The call is about to be made."""
        if await self._is_struck(f"before {name}") and self.nemesis is Nemesis.REFUSE:
            raise Transient(f"refused: {name}")

    async def after(self, name: str) -> None:
        """The call took effect; its answer is on the way."""
        if await self._is_struck(f"after {name}") and self.nemesis is Nemesis.LOSE_REPLY:
            raise Ambiguous(f"answer lost: {name}")

    async def instant(self, name: str) -> None:
        """A moment between calls: there is nothing to refuse and no answer to lose."""
        await self._is_struck(name)

    async def inside(self, name: str) -> bool:
        """The moment before a commit. True: the transaction must break off, and the caller tells
        of it as the nemesis says."""
        if not await self._reaches(name):
            return False
        if self.nemesis is Nemesis.PAUSE:
            await self._strike(name)
        return self.nemesis in (Nemesis.DIE, Nemesis.REFUSE)

    async def _is_struck(self, point: str) -> bool:
        is_struck = await self._reaches(point)
        if is_struck:
            await self._strike(point)
        return is_struck

    async def _reaches(self, point: str) -> bool:
        await self._awake.wait()
        if self.is_dead or self.is_killed:
            raise SimulatedCrash(point)
        is_struck = self._strikes_at is not None and len(self.passed) == self._strikes_at
        self.passed.append(point)
        self.has_struck |= is_struck
        return is_struck

    async def _strike(self, point: str) -> None:
        if self.nemesis is Nemesis.DIE:
            raise SimulatedCrash(point)
        if self.nemesis is Nemesis.PAUSE:
            self._awake.clear()
            try:
                await self.meanwhile()
            finally:
                self._awake.set()


class Fused:
    """Wraps any port of async methods; everything else passes through."""

    def __init__(self, inner: object, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        method: Callable[..., Awaitable[object]] = found
        label = f"{type(self._inner).__name__}.{name}"

        @wraps(method)
        async def call(*args: object, **kwargs: object) -> object:
            await self._fuse.before(label)
            result = await method(*args, **kwargs)
            await self._fuse.after(label)
            return result

        return call


PORTS: Final = (
    "inbox", "places", "turns", "nodes", "errands", "outbox", "conversations", "archive", "media",
    "fetches", "stickers",
)  # fmt: skip


class FusedStore:
    """A store whose every port is fused, or those that are named; the rest passes through."""

    def __init__(self, store: object, fuse: Fuse, ports: Sequence[str] = PORTS) -> None:
        self._store = store
        for port in ports:
            setattr(self, port, Fused(getattr(store, port), fuse))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FusedAgent:
    """An agent whose stream can be struck between any two events."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def run(self, request: Any) -> AsyncGenerator[Any, None]:
        async for event in self._inner.run(request):
            await self._fuse.instant("agent event")
            yield event


class FusedFetcher:
    """A source of files that can be struck before it begins and between any two pieces."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        await self._fuse.before("fetch")
        async for piece in self._inner.fetch(reference):
            await self._fuse.instant("piece of a file")
            yield piece
        await self._fuse.after("fetch")
