"""Defines the port that remembers how often a platform was called lately, and the waits that it has
named."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a wait that a platform has named and that is not over. It is for one place, or for the
    whole account if `place` is empty."""

    place: str
    left_s: float


class PacedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Holds where a platform was called and how long ago; or where a bubble has been growing, and
    for how long."""

    address: Address
    ago_s: float


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what earlier processes have asked of a platform: the waits that are not over, the
    latest calls, and the bubbles that may have been growing when the process ended."""

    holds: tuple[Hold, ...] = ()
    calls: tuple[PacedCall, ...] = ()
    growing: tuple[PacedCall, ...] = ()


class Pacing(Protocol):
    """Keeps the pace of an account through a restart.

    Guarantees: a wait that was stored holds until it is over, whatever is done to the clock.
    Requires: nothing.
    Raises: `Transient` when nothing was written or read; `Ambiguous` when that is unknown.
    After a crash: stored waits still hold.
    """

    async def hold(self, *, adapter: str, place: str, wait_s: float) -> None:
        """Store a wait that the platform has named, for a place, or for the whole account if
        `place` is empty. A shorter wait never ends a longer one."""

    async def lately(self, *, adapter: str, within_s: float) -> Lately:
        """Return what a new process must know to keep the pace: the waits that are not over, the
        calls of the last `within_s` seconds that the outbox shows, and the bubbles of turns that
        are not over."""
