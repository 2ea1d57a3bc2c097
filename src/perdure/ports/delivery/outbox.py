"""The one way out."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import AHEAD, DeliveryStep, PartState
from perdure.domain.ids import MediaId, MessageId, PartId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.ports.turns.turns import TurnLease


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """`receipt` is of what is to be edited or taken away; empty where nothing has arrived.
    `reply_to` is the external id of the message that it answers, or that is to be marked. `after`
    is the receipt of the last part before it in the same message that has arrived."""

    id: PartId
    message: MessageId
    index: int
    turn: TurnId | None
    address: Address
    text: str
    attempts: int
    changed_at: int = 0
    created_at: int = 0
    step: DeliveryStep = DeliveryStep.POST
    receipt: str = ""
    reply_to: str = ""
    after: str = ""
    choices: tuple[str, ...] = ()
    media: MediaId | None = None

    @property
    def is_of_turn(self) -> bool:
        """Whether it is what a turn says, rather than what is said about it."""
        return self.turn is not None and self.message.startswith(self.turn)

    @property
    def is_ahead(self) -> bool:
        """Whether it went out before its turn was over."""
        return self.message == f"{self.turn}{AHEAD}"


class Bubble(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running turn's text is shown. With a receipt it is there already; `is_lost` where
    nobody knows whether it is."""

    part: Part
    receipt: str = ""
    is_lost: bool = False


class Rivals(msgspec.Struct, frozen=True, kw_only=True):
    """The other parts of a place at the time of one whose fate is unknown: their receipts, and
    whether one with the same text is being sent right now."""

    receipts: frozenset[str] = frozenset()
    has_twin: bool = False


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """How many parts were given up just now, and what was journalled to tell people."""

    parts: int
    recorded: list[Recorded]


class Outbox(Protocol):
    """Parts of replies on their way to a platform.

    Guarantees: `take` marks due parts as attempting, in order within a conversation (a part waits
    for the ones before it; marks wait for marks alone) and in order of arrival among conversations,
    whatever the clock says, and gives each to one caller; `next_due_ms` says from when on there is
    one, or one in doubt to ask about, 0 if there is one now; an edit whose bubble never got a
    receipt is taken as a post. `bubble` puts down the next bubble of a running turn, or returns the
    one that is there; None as long as something before it in its line is on its way. `may_show`
    tells the same of what leaves no row. `forget_bubble` says that this one, if it is ours, was
    never shown. `go_ahead` puts down the leading parts of a running turn's reply, but for those
    that are there. `record` moves a part along the states of `domain/delivery.py`, and may be
    repeated, except that what was withdrawn meanwhile expires where it would become pending, and
    what is sent under the receipt of another part is unknown; of a final part that cannot be
    delivered its person is told elsewhere, if they can be reached, and the operators: what was
    journalled for that is returned by `record` and `expire`. `post_instead` makes a pending post
    of an edit whose bubble is gone; `defer` gives back a part that was not tried, until its time
    comes; `divide` makes several parts of a text that is too long for its platform; `release` gives
    back what this node has taken but for `keep`. `stranded` lists parts that an owner who is gone
    left attempting, and those in doubt whose time has come; `doubt` leaves a part in doubt until
    then, and `rivals` tells what is known of the other parts of its place.
    With `attempt`, only that try may say how it went.
    Requires: the effect is performed only between `take` or `bubble`, and `record`.
    Raises: `Conflict` when the part is no longer attempting; `Fenced` when the turn is not ours.
    After a crash: parts left attempting are reconciled where the platform can be asked, else they
    become unknown and are shown.
    """

    async def take(self, *, adapter: str, limit: int) -> list[Part]: ...

    async def record(
        self,
        part: PartId,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
        attempt: int = 0,
    ) -> list[Recorded]: ...

    async def bubble(self, lease: TurnLease, index: int, text: str) -> Bubble | None: ...

    async def may_show(self, lease: TurnLease) -> bool: ...

    async def forget_bubble(self, turn: TurnId, index: int) -> None: ...

    async def go_ahead(self, lease: TurnLease, parts: Sequence[str]) -> None: ...

    async def post_instead(self, part: PartId, *, error: str, attempt: int = 0) -> None: ...

    async def defer(self, part: PartId, *, due_in_s: float, attempt: int) -> None: ...

    async def divide(self, part: PartId, texts: Sequence[str], *, attempt: int = 0) -> None: ...

    async def release(self, *, adapter: str, keep: Sequence[PartId] = ()) -> int: ...

    async def stranded(self, *, adapter: str) -> list[Part]: ...

    async def doubt(self, part: PartId, *, error: str, due_in_s: float, attempt: int) -> None: ...

    async def rivals(self, part: Part) -> Rivals: ...

    async def expire(self, *, older_than_s: int) -> Expired: ...

    async def next_due_ms(self) -> int | None: ...
