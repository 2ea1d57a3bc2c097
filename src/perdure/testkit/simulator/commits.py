"""Strikes inside the database's driver, and counts how often each port call commits.

A port call that writes must be one transaction. If it were two, a death between them would leave
half of it behind, and strikes around the call would not show that. So `FusedDriver` strikes before
and after every commit, and `Commits` names the calls that committed more than once.
"""

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final

import msgspec

from perdure.domain.errors import Transient
from perdure.testkit.simulator.crash import Fuse, SimulatedCrash

# Calls that may commit more than once. A search first brings the index up to date, in several
# steps, and a death between two of them leaves nothing half done.
IN_STEPS: Final = frozenset({"StoredArchive.search"})


class _Call(msgspec.Struct):
    """Holds a port call under way. Commits of tasks that it starts count for it."""

    name: str
    commits: int = 0


_CALL: ContextVar[_Call | None] = ContextVar("call", default=None)


class Commits:
    """Records what the port calls of some stores have committed. `split` names the calls that
    committed more than once, and `written` all calls that have written."""

    def __init__(self) -> None:
        self.split: list[str] = []
        self.written: set[str] = set()

    def count_in(self, store: object) -> None:
        """Wrap every port of a store, so that its commits are counted. The store's driver must be a
        `CountedDriver` with this object."""
        for name, port in list(vars(store).items()):
            if type(port).__name__.startswith("Stored"):
                setattr(store, name, CountedPort(port))

    def add(self) -> None:
        """Count one commit for the port call under way."""
        call = _CALL.get()
        if call is None:
            return  # the test itself uses the database, outside of any port call
        call.commits += 1
        self.written.add(call.name)
        if call.commits > 1 and call.name not in IN_STEPS:
            self.split.append(call.name)


class CountedPort:
    """Wraps a port, so that each commit is counted for the call that made it."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        method: Callable[..., Awaitable[object]] = found
        label = f"{type(self._inner).__name__}.{name}"

        @wraps(method)
        async def call(*args: object, **kwargs: object) -> object:
            token = _CALL.set(_Call(label))
            try:
                return await method(*args, **kwargs)
            finally:
                _CALL.reset(token)

        return call


class CountedDriver:
    """Wraps a driver, and reports each write to `Commits`."""

    def __init__(self, inner: Any, commits: Commits) -> None:
        self._inner = inner
        self._commits = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, make: Any) -> Any:
        """Report a write, and make it."""
        self._commits.add()
        return await self._inner.write(make)


class _CutOff(Exception):
    """Ends a transaction without a commit."""


def _cut_off(make: Callable[[], Generator[Any, Any, Any]]) -> Generator[Any, Any, None]:
    """Run all statements of an operation, and then raise `_CutOff` instead of returning."""
    yield from make()
    raise _CutOff


class FusedDriver:
    """Wraps a driver, so that it can be struck at two points of each transaction: after all its
    statements but before the commit, and after the commit."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, make: Any) -> Any:
        """Make a write, unless the fuse strikes before its commit or after it."""
        operation = make.func if isinstance(make, partial) else make
        name = f"commit of {operation.__qualname__}"
        if await self._fuse.inside(f"before {name}"):
            await self._break_off(make, name)
        result = await self._inner.write(make)
        await self._fuse.after(name)
        return result

    async def _break_off(self, make: Any, name: str) -> None:
        """Make all statements of a write without the commit, and then fail as the fuse says."""
        try:
            await self._inner.write(partial(_cut_off, make))
        except Exception:  # noqa: BLE001 - it was cut off, or would have failed anyway
            if self._fuse.is_deadly:
                raise SimulatedCrash(name) from None
            raise Transient(f"refused: {name}") from None
        raise AssertionError(f"a transaction that failed was committed: {name}")
