"""Lets a process of the simulator die, lose an answer, be refused or stand still at any instant.

Anything durable happens only in a call of a port. So wrapping the ports gives a name to every
instant at which something can go wrong, and production code needs no hooks for it.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from enum import StrEnum
from functools import partial, wraps
from typing import Any, Final

from perdure.domain.errors import Ambiguous, Transient


class SimulatedCrash(BaseException):
    """Ends a simulated process. It is not an `Exception`, so that no handler of production code
    survives it."""


class Nemesis(StrEnum):
    """Names what a fuse does when it strikes."""

    DIE = "die"
    LOSE_REPLY = "lose_reply"  # the call took effect, and the caller gets `Ambiguous`
    REFUSE = "refuse"  # the call did not take effect, and the caller gets `Transient`
    PAUSE = "pause"  # the process stands still for longer than its lease
    SET_BACK = "set_back"  # the wall clock is set back, for good
    SET_ASTRAY = "set_astray"  # the wall clock goes ahead, and a few points later it is right again
    DIE_AND_SET_BACK = "die_and_set_back"  # the next process finds the wall clock behind


# It is longer than a scenario waits until everything is at rest, and shorter than the time for
# which a part may be on its way.
BACK_S: Final = 86_400
ASTRAY_S: Final = 72_000
ASTRAY_POINTS: Final = 7


async def _no_pause() -> None:
    """Do nothing while the process stands still."""


class Fuse:
    """Counts the points that a process passes, and strikes at one of them.

    After a death every later point raises `SimulatedCrash`, so that a dead process writes nothing
    more. During a pause everyone who reaches a point waits there until `meanwhile` is over.
    `is_killed` says that the process was ended from outside; the next one begins with the same
    fuse. `set_clock` moves the wall clock of the world by so many seconds.
    """

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
        self.set_clock: Callable[[float], None] = lambda _: None
        self._awake = asyncio.Event()
        self._awake.set()
        self.passed: list[str] = []
        self.has_struck = False
        self.is_killed = False

    @property
    def is_dead(self) -> bool:
        """Tell whether it has struck and ended the process."""
        return self.has_struck and self.is_deadly

    @property
    def is_deadly(self) -> bool:
        """Tell whether its strike ends the process."""
        return self.nemesis in (Nemesis.DIE, Nemesis.DIE_AND_SET_BACK)

    @property
    def struck(self) -> str:
        """Return the point at which it struck, in words."""
        at = self._strikes_at
        return self.passed[at] if at is not None and self.has_struck else "nowhere"

    async def before(self, name: str) -> None:
        """Pass the point before a call. A refusal is raised here: the call is not made."""
        if await self._is_struck(f"before {name}") and self.nemesis is Nemesis.REFUSE:
            raise Transient(f"refused: {name}")

    async def after(self, name: str) -> None:
        """Pass the point after a call. A lost answer is raised here: the call took effect."""
        if await self._is_struck(f"after {name}") and self.nemesis is Nemesis.LOSE_REPLY:
            raise Ambiguous(f"answer lost: {name}")

    async def leaving(self, name: str) -> bool:
        """Pass the point before a call that leaves the process. Returns True if the process is to
        stand still right after the call."""
        if not await self._reaches(f"before {name}"):
            return False
        if self.nemesis is Nemesis.PAUSE:
            return True
        await self._strike(name)
        if self.nemesis is Nemesis.REFUSE:
            raise Transient(f"refused: {name}")
        return False

    async def stand_still(self) -> None:
        """Run `meanwhile` while nothing of this process goes on."""
        self._awake.clear()
        try:
            await self.meanwhile()
        finally:
            self._awake.set()

    async def instant(self, name: str) -> None:
        """Pass a point between calls, where nothing can be refused and no answer can be lost."""
        await self._is_struck(name)

    async def inside(self, name: str) -> bool:
        """Pass the point before a commit. Returns True if the transaction must break off; the
        caller then raises what the nemesis asks for."""
        if not await self._reaches(name):
            return False
        if self.nemesis is Nemesis.PAUSE:
            await self._strike(name)
        if self.nemesis in (Nemesis.SET_BACK, Nemesis.SET_ASTRAY):
            await self._strike(name)
        return self.is_deadly or self.nemesis is Nemesis.REFUSE

    async def _is_struck(self, point: str) -> bool:
        """Pass a point, and strike if it is the chosen one. Tells whether it struck."""
        is_struck = await self._reaches(point)
        if is_struck:
            await self._strike(point)
        return is_struck

    async def _reaches(self, point: str) -> bool:
        """Pass a point. Tells whether it is the chosen one."""
        await self._awake.wait()
        if self.is_dead or self.is_killed:
            raise SimulatedCrash(point)
        is_struck = self._strikes_at is not None and len(self.passed) == self._strikes_at
        self.passed.append(point)
        self.has_struck |= is_struck
        if self.nemesis is Nemesis.SET_ASTRAY and self._passed_since() == ASTRAY_POINTS:
            self.set_clock(-ASTRAY_S)
        return is_struck

    def _passed_since(self) -> int:
        """Return how many points were passed since it struck, the struck one included."""
        at = self._strikes_at
        return len(self.passed) - at if at is not None and self.has_struck else 0

    async def _strike(self, point: str) -> None:
        """Do what the nemesis does by itself: kill the process, set the clock or stand still."""
        if self.is_deadly:
            raise SimulatedCrash(point)
        if self.nemesis is Nemesis.SET_BACK:
            self.set_clock(-BACK_S)
        if self.nemesis is Nemesis.SET_ASTRAY:
            self.set_clock(ASTRAY_S)
        if self.nemesis is Nemesis.PAUSE:
            await self.stand_still()


class Fused:
    """Wraps any port: each of its async methods gets a point before and one after it. Everything
    else passes through."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
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
            return await self._call(label, partial(method, *args, **kwargs))

        return call

    async def _call(self, label: str, method: "partial[Awaitable[object]]") -> object:
        await self._fuse.before(label)
        result = await method()
        await self._fuse.after(label)
        return result


class FusedPlatform(Fused):
    """Wraps a chat platform, whose calls leave the process.

    What was asked for in the instant of a death may still be done, later. A process that stands
    still has either made its call or not begun it: production code checks its lease and then acts,
    without an await in between, so there is no pause between the two.
    """

    async def _call(self, label: str, method: "partial[Awaitable[object]]") -> object:
        was_dead = self._fuse.is_dead
        try:
            stands_still = await self._fuse.leaving(label)
        except SimulatedCrash:
            # Only the call that was struck may have left the process, not those after the death.
            if not was_dead:
                self._inner.left_hanging(*method.args)
            raise
        result = await method()
        if stands_still:
            await self._fuse.stand_still()
        await self._fuse.after(label)
        return result


PORTS: Final = (
    "inbox", "overhearing", "places", "turns", "nodes", "errands", "outbox", "conversations",
    "archive", "media", "fetches", "stickers", "pacing", "room", "questions", "grants", "effects",
    "schedule", "delegations",
    "occasions", "pushes",
)  # fmt: skip


class FusedStore:
    """Wraps the named ports of a store in a fuse. The rest passes through."""

    def __init__(self, store: object, fuse: Fuse, ports: Sequence[str] = PORTS) -> None:
        self._store = store
        for port in ports:
            setattr(self, port, Fused(getattr(store, port), fuse))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FusedAgent:
    """Wraps an agent, so that its stream can be struck before each event is handed over."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def run(self, request: Any, work: Any) -> AsyncGenerator[Any, None]:
        async for event in self._inner.run(request, work):
            await self._fuse.instant("agent event")
            yield event


class FusedPrompts:
    """Wraps the prompts of tool servers, so that the process can be struck before and after a
    prompt is fetched."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def expand(self, text: Any, principal: Any) -> Any:
        await self._fuse.instant("before a prompt")
        found = await self._inner.expand(text, principal)
        await self._fuse.instant("after a prompt")
        return found


class FusedFetcher:
    """Wraps a source of files, so that it can be struck before it begins, before each piece and
    after the last."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def fetch(self, reference: str) -> AsyncGenerator[bytes, None]:
        await self._fuse.before("fetch")
        async for piece in self._inner.fetch(reference):
            await self._fuse.instant("piece of a file")
            yield piece
        await self._fuse.after("fetch")
