"""Who was let in, who asked to be, and who was turned away."""

from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import PrincipalId
from perdure.domain.inbound.arrivals import Arrival
from perdure.ports.people.principals import LONGEST
from perdure.ports.records.history import Page


class PlacedArrival(msgspec.Struct, frozen=True, kw_only=True):
    """An arrival, with where it came to."""

    address: Address
    arrival: Arrival


class CallerStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a caller. `is_refused`: this very arrival was, before. `is_engaged`: it
    speaks of a message that we took, or belongs to a thread in which we have a conversation.
    `author` has sent the message that it speaks of, in the conversation at `where`."""

    is_paired: bool
    is_engaged: bool
    is_refused: bool = False
    author: PrincipalId | None = None
    where: Address | None = None


class PairingView(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is asked, approved, revoked or, of a code nobody has used in time, expired."""

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


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """Something that came in and could not be taken, whole: an `Arrival` as JSON, or what the
    platform sent where not even that could be made of it."""

    address: Address
    external_id: str
    kind: str
    payload: str
    error: str


class AccessRecords(Protocol):
    """The memory of the decision who may speak.

    Guarantees: `standing` reads what is true now: a pairing that was revoked does not count from
    then on. `ask` gives a stranger a code, by the outbox, and says whether it did: not while an
    earlier code is fresh, nor more often than a few times an hour. `approve` lets in exactly the
    one who got the code, once, within its time. `refuse` records that something came, not what it
    said; with `told`, also says that to the people of the conversation. `park` keeps what broke us.
    The same arrival again changes nothing. `pairings` begins with the latest.
    Requires: the verdict of `domain/people/access.py`.
    Raises: `NotFound` for a code or pairing that is not there, or whose time is over; `Rejected`
    for any code after too many wrong ones.
    After a crash: either all of it is there or none; the platform offers the arrival again.
    """

    async def standing(self, caller: PlacedArrival) -> CallerStanding: ...

    async def ask(self, caller: PlacedArrival, code: str) -> bool: ...

    async def refuse(self, caller: PlacedArrival, reason: str, *, told: str = "") -> None: ...

    async def park(self, letter: Letter) -> None: ...

    async def pairings(self, page: Page = LONGEST) -> list[PairingView]: ...

    async def approve(self, code: str, *, by: str) -> PairingView: ...

    async def revoke(self, pairing: str, *, by: str) -> PairingView: ...
