"""Defines the ports between what happens and the hooks that are told of it."""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from perdure.domain.hooks.occasions import HookCall, Occasion


class Occasions(Protocol):
    """Keeps the occasions that hooks must not miss until they have heard of them.

    Guarantees: a settled turn or a delivered part has its row in the transaction that settles or
    delivers it, while somebody listens. Two nodes never take the same row at the same time.
    Requires: nothing.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: what a dead node has taken and not ended is taken again.
    """

    async def listen(self, to: Collection[Occasion]) -> None:
        """Let rows be written for these occasions from now on, and for no others that only this
        node has listened to."""

    async def take(self, of: Collection[Occasion], *, limit: int) -> Sequence[HookCall]:
        """Take the oldest occasions of these kinds that no other living node has taken. Call it
        again only when the last ones were heard."""

    async def heard(self, call: HookCall) -> None:
        """Delete an occasion that was taken, because its hooks have heard of it. To do it twice
        changes nothing."""

    async def named(self, call: HookCall) -> HookCall | None:
        """Return the call with the name of its session's conversation, or None if the session is an
        errand's, of which no hook is told."""


class HookFailures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Says how many calls of hooks have failed since the start, and how the last one did: which
    hook, on which occasion, why, and when. `dropped` is how many occasions no hook was told of,
    because hooks are too slow."""

    count: int = 0
    dropped: int = 0
    hook: str = ""
    event: str = ""
    problem: str = ""
    at: int = 0


class Hooks(Protocol):
    """Runs the hooks of the operator.

    Guarantees: a hook ends within a time limit, and its failure reaches neither the caller nor
    another hook.
    Requires: `find` was called.
    Raises: nothing; failures are logged and counted.
    After a crash: no hook outlives the gateway.
    """

    async def find(self) -> frozenset[Occasion]:
        """Look for hooks, and return the occasions for which there are any. Called once."""

    @property
    def failures(self) -> HookFailures:
        """Return how many hooks have failed, and the last failure."""

    async def call(self, call: HookCall) -> None:
        """Tell every hook of this occasion, side by side, and wait until all have ended."""

    def dropped(self, call: HookCall) -> None:
        """Note that no hook is told of this occasion, because too many wait."""


class NoHooks:
    """Implements `Hooks` where the operator has none."""

    failures: HookFailures = HookFailures()

    async def find(self) -> frozenset[Occasion]:
        """Return no occasion."""
        return frozenset()

    async def call(self, call: HookCall) -> None:
        """Do nothing."""

    def dropped(self, call: HookCall) -> None:
        """Do nothing."""
