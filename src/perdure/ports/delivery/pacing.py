"""What a platform was asked for lately, and until when it wants nothing of us."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that a platform has named and that is not over: in a place, or where none is named, of
    the whole account."""

    place: str
    left_s: float


class PacedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was asked of a platform, or has grown there since then."""

    address: Address
    ago_s: float


class Lately(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier process has asked of a platform: the waits it was given, its latest calls,
    and the bubbles that may have been growing when it ended."""

    holds: tuple[Hold, ...] = ()
    calls: tuple[PacedCall, ...] = ()
    growing: tuple[PacedCall, ...] = ()


class Pacing(Protocol):
    """Keeps the pace of an account through a restart.

    Guarantees: `hold` keeps a wait that the platform has named, for a place, or where that is
    empty, for the whole account; a shorter one never ends a longer one. `lately` returns what a new
    process must know: the waits that are not over, whatever was done to the clock, the calls of the
    last `within_s` seconds that stand in the outbox, and the bubbles of turns that are not over.
    Raises: `Transient`, `Ambiguous`.
    After a crash: what was held before is still held.
    """

    async def hold(self, *, adapter: str, place: str, wait_s: float) -> None: ...

    async def lately(self, *, adapter: str, within_s: float) -> Lately: ...
