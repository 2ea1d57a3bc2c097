"""Knows whether the store takes writes, by watching every call and by probing.

A database that is down refuses every call. A full disk is harder to notice: it still serves reads
and may still take a small write into free space of the log file, while it refuses every message. So
trouble begins with the first call that the database refuses, and ends only when a write as large as
a message has succeeded.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from perdure.domain.errors import Ambiguous, PerdureError, Transient
from perdure.domain.ids import NodeId
from perdure.ports.system.clock import Clock
from perdure.store.drivers.dialect import Dialect
from perdure.store.drivers.driver import Driver
from perdure.store.migrations import Applied
from perdure.store.operations import nodes
from perdure.store.statement import MakeOp, NotRun

T = TypeVar("T")
# How often the store is probed while it is in trouble, however many callers ask.
LOOK_EVERY_S: Final = 1.0
# How long a successful probe is trusted.
BELIEVED_S: Final = 0.05
# A database silent for this long counts as being in trouble.
PATIENCE_S: Final = 2.0
# The code of a `Transient` error that an operation raises for a reason of its own; it says nothing
# about the database.
_NOT_CONNECTED: Final = "not_connected"
_SILENT: Final = f"the database has not answered for {PATIENCE_S:g} s; is it running?"


class StoredCondition:
    """Knows the condition of one store. `trouble` is the reason for the present trouble, or an
    empty string; `refusals` counts refused calls."""

    def __init__(self, driver: Driver, clock: Clock, node: NodeId) -> None:
        self._driver = driver
        self._clock = clock
        self._node = node
        self._tell: list[Callable[[str, float | None], None]] = []
        self._asking: asyncio.Task[None] | None = None
        self._in_trouble = asyncio.Event()
        self._looked_s = -math.inf
        self._began_s = 0.0
        self.trouble = ""
        self.refusals = 0

    def when_changed(self, tell: Callable[[str, float | None], None]) -> None:
        """Call `tell` when trouble begins or ends, with its text and, at the end, its duration."""
        self._tell.append(tell)

    def refused(self, error: PerdureError) -> None:
        """Note that the database refused a call."""
        if not isinstance(error, NotRun) and error.code != _NOT_CONNECTED:
            self.refusals += 1
            self._note(error.message)

    async def look(self, *, within_s: float = PATIENCE_S) -> str:
        """Return the present trouble or an empty string. Probes the store unless the last probe is
        recent; callers at the same time share one probe."""
        now_s = self._clock.monotonic_s()
        pause_s = LOOK_EVERY_S if self.trouble else BELIEVED_S
        if self._asking is not None or now_s - self._looked_s >= pause_s:
            # The probe is not cancelled at the timeout: its write goes on, and the next caller
            # shares it.
            await asyncio.wait({self._ask()}, timeout=within_s)
        return self.trouble

    async def watch(self) -> None:
        """Probe while there is trouble, so that its end is noticed even if nobody asks. Never
        returns."""
        while True:
            await self._in_trouble.wait()
            await self.look()
            await self._clock.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """Cancel a probe that is under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    def _ask(self) -> "asyncio.Task[None]":
        """Start a probe, or return the one under way."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._probe())  # noqa: TID251 - `close` ends it
            self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, asking: "asyncio.Task[None]") -> None:
        """Forget a finished probe. Reads its exception, so that asyncio does not report it as
        unread."""
        self._asking = None
        if not asking.cancelled():
            asking.exception()

    async def _probe(self) -> None:
        """Write to this node's own row and note the result."""
        silence = asyncio.get_running_loop().call_later(PATIENCE_S, self._note, _SILENT)
        try:
            # A small write may succeed on a full disk, so where room may be short the probe writes
            # as much as a message would.
            is_whole = bool(self.trouble) or not await self._driver.has_room()
            await self._driver.write(partial(nodes.probe, self._node, is_whole=is_whole))
        except PerdureError as error:
            told = error.message
        else:
            told = ""
        finally:
            silence.cancel()
        self._looked_s = self._clock.monotonic_s()
        self._note(told)

    def _note(self, trouble: str) -> None:
        """Set the present trouble, and tell listeners if it began or ended."""
        before, self.trouble = self.trouble, trouble
        if bool(before) == bool(trouble):
            return
        now_s = self._clock.monotonic_s()
        lasted_s = None
        if trouble:
            self._began_s = now_s
            self._in_trouble.set()
        else:
            lasted_s = now_s - self._began_s
            self._in_trouble.clear()
        for tell in self._tell:
            tell(trouble or before, lasted_s)


class WatchedDriver:
    """Passes calls on to a driver, and reports refused ones to the condition."""

    def __init__(self, inner: Driver, condition: StoredCondition) -> None:
        self._inner = inner
        self._condition = condition

    @property
    def dialect(self) -> Dialect:
        return self._inner.dialect

    async def open(self, *, now_ms: int) -> list[Applied]:
        return await self._inner.open(now_ms=now_ms)

    async def close(self) -> None:
        await self._inner.close()

    async def has_room(self) -> bool:
        return await self._inner.has_room()

    async def shrink(self) -> None:
        await self._inner.shrink()

    async def write(self, make: MakeOp[T]) -> T:
        try:
            return await self._inner.write(make)
        except (Transient, Ambiguous) as error:
            self._condition.refused(error)
            raise

    async def read(self, make: MakeOp[T]) -> T:
        try:
            return await self._inner.read(make)
        except (Transient, Ambiguous) as error:
            self._condition.refused(error)
            raise

    async def read_afresh(self, make: MakeOp[T]) -> T:
        try:
            return await self._inner.read_afresh(make)
        except (Transient, Ambiguous) as error:
            self._condition.refused(error)
            raise
