"""Strikes inside the database's driver, and counts what a port call commits.

A port call that writes is one transaction. Were it two, a death between them would leave half of
it behind, and no strike around the call would show that. So `FusedDriver` strikes before and after
every commit, and `Commits` names the calls that made more than one.
"""

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final

import msgspec

from perdure.domain.errors import Transient
from perdure.testkit.crash import Fuse, SimulatedCrash

# Searching brings the index up to date first, in steps of which each is whole.
IN_STEPS: Final = frozenset({"StoredArchive.search"})


class _Call(msgspec.Struct):
    """A port call under way; tasks that it starts belong to it."""

    name: str
    commits: int = 0


_CALL: ContextVar[_Call | None] = ContextVar("call", default=None)


class Commits:
    """What the port calls of some stores have committed. `split` names those that did so twice,
    and `written` all that have written."""

    def __init__(self) -> None:
        self.split: list[str] = []
        self.written: set[str] = set()

    def count_in(self, store: object) -> None:
        """Count in every port of a store whose driver is a `CountedDriver` of these."""
        for name, port in list(vars(store).items()):
            if type(port).__name__.startswith("Stored"):
                setattr(store, name, CountedPort(port))

    def add(self) -> None:
        call = _CALL.get()
        if call is None:
            return  # a test looks into the database by itself
        call.commits += 1
        self.written.add(call.name)
        if call.commits > 1 and call.name not in IN_STEPS:
            self.split.append(call.name)


class CountedPort:
    """A port whose calls know what they have committed."""

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
    """A driver that tells `Commits` of each write."""

    def __init__(self, inner: Any, commits: Commits) -> None:
        self._inner = inner
        self._commits = commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, make: Any) -> Any:
        self._commits.add()
        return await self._inner.write(make)


class _CutOff(Exception):
    """The transaction ends here, without a commit."""


def _cut_off(make: Callable[[], Generator[Any, Any, Any]]) -> Generator[Any, Any, None]:
    yield from make()
    raise _CutOff


class FusedDriver:
    """A driver that can be struck when a transaction has made all its statements and is not yet
    committed, and when it is."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, make: Any) -> Any:
        operation = make.func if isinstance(make, partial) else make
        name = f"commit of {operation.__qualname__}"
        if await self._fuse.inside(f"before {name}"):
            await self._break_off(make, name)
        result = await self._inner.write(make)
        await self._fuse.after(name)
        return result

    async def _break_off(self, make: Any, name: str) -> None:
        try:
            await self._inner.write(partial(_cut_off, make))
        except Exception:  # noqa: BLE001 - it was cut off, or would have failed anyway
            if self._fuse.is_deadly:
                raise SimulatedCrash(name) from None
            raise Transient(f"refused: {name}") from None
        raise AssertionError(f"a transaction that failed was committed: {name}")
