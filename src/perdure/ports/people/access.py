"""Defines the port that remembers who was let in, who asked for it, and who was refused."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.people.principals import LONGEST
from perdure.ports.records.history import Page


class PlacedArrival(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an arrival and the address that it came to."""

    address: Address
    arrival: Arrival


class CallerStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of the sender of an arrival. `is_refused`: this arrival was refused
    before. `is_engaged`: it is about a message that was accepted, or in a thread that has a
    conversation. If it is about a message, `author` has sent that message, in the conversation at
    `where`; None if it is in another place. `former_place` is the id that the place had before, or
    empty."""

    is_paired: bool
    is_engaged: bool
    is_refused: bool = False
    author: PrincipalId | None = None
    where: Address | None = None
    former_place: str = ""


class PairingView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a stranger who was given a code. `state` is asked, approved, revoked, or expired
    for a code that nobody has used in time."""

    id: str
    adapter: str
    account: str
    sender: str
    name: str
    place: str
    state: str
    asked_at: int
    expires_at: int
    decided_at: int | None = None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Holds something that came in and could not be taken. `payload` is the whole `Arrival` as
    JSON, or what the platform sent if no arrival could be made of it."""

    address: Address
    external_id: str
    kind: str
    payload: str
    error: str


class AccessRecords(Protocol):
    """Remembers what the decision who may speak depends on, and what was decided.

    Guarantees: each method is one transaction or one snapshot. The same arrival again changes
    nothing.
    Requires: the verdict of `domain/people/access.py`.
    Raises: `Transient` when nothing was written or read; `Ambiguous` when that is unknown.
    After a crash: either all of a change is stored or none; the platform offers the arrival again.
    """

    async def standing(self, caller: PlacedArrival) -> CallerStanding:
        """Return what is known of a caller now. A revoked pairing does not count any more."""

    async def ask(self, caller: PlacedArrival, code: str) -> bool:
        """Give a stranger a code, by the outbox. Returns whether it did: not while an earlier code
        is fresh, and not more often than a few times an hour."""

    async def refuse(self, caller: PlacedArrival, reason: str, *, told: str = "") -> None:
        """Record that an arrival was refused, but not what it said. `told` is posted, once, in the
        conversation it came to, if there is one."""

    async def park(self, letter: DeadLetter) -> None:
        """Store an arrival that could not be taken, for a person to look at."""

    async def pairings(self, page: Page = LONGEST) -> list[PairingView]:
        """Return a page of the pairings, latest first."""

    async def approve(self, code: str, *, by: str) -> PairingView:
        """Let in the person who got this code, once and within its time. Raises `NotFound` for a
        wrong or expired code, and `Rejected` for any code after too many wrong ones."""

    async def revoke(self, pairing: str, *, by: str) -> PairingView:
        """Make the person of a pairing a stranger again. Raises `NotFound` for an unknown
        pairing."""
