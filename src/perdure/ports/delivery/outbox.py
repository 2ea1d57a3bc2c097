"""Defines the port of the outbox, through which everything is sent to platforms."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.delivery import AHEAD, DeliveryStep, PartState
from perdure.domain.ids import MediaId, MessageId, PartId, QuestionId, TurnId
from perdure.domain.journal.events import Recorded
from perdure.ports.turns.turns import TurnLease


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one part that was taken from the outbox.

    `attempts` counts the present attempt too; `changed_at` is when it began. `receipt` belongs to
    the message that is to be edited or deleted; it is empty if that message never arrived.
    `reply_to` is the external id of the message that the part answers, or that a reaction marks.
    `after` is the receipt of the last part before this one in the same message that has arrived.
    `question` is the question that the `choices` answer.
    """

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
    question: QuestionId | None = None

    @property
    def is_of_turn(self) -> bool:
        """Tell whether the part is what a turn says, and not a notice about a turn."""
        return self.turn is not None and self.message.startswith(self.turn)

    @property
    def is_spoken(self) -> bool:
        """Tell whether the part is a recording in which its text is read aloud."""
        return self.step is DeliveryStep.UPLOAD and self.media is None

    @property
    def is_ahead(self) -> bool:
        """Tell whether the part was added before its turn was over."""
        return self.message == f"{self.turn}{AHEAD}"


class Bubble(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the part in which a running turn's text is shown. With a `receipt` its message exists
    already; `is_lost`: nobody knows whether the message exists."""

    part: Part
    receipt: str = ""
    is_lost: bool = False


class Rivals(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what is known of the other parts in the place of a part of unknown fate: their
    receipts, and whether one with the same text is being sent right now."""

    receipts: frozenset[str] = frozenset()
    has_twin: bool = False


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how many parts were given up just now, and what was journalled to tell people."""

    parts: int
    recorded: list[Recorded]


class Outbox(Protocol):
    """Keeps the parts of replies on their way to a platform.

    Guarantees: each method that writes is one transaction. After a lost answer it may be repeated
    with the same arguments, except `take`. Within a conversation a part is sent only after those
    before it; a reaction waits only for other reactions. A part moves along the states of
    `domain/delivery.py`.
    Requires: the platform is called for a part only between `take` or `bubble` and `record`.
    Raises: `Conflict` when the part is not attempting any more, or when `attempt` names an earlier
    attempt; `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: parts left attempting are found by `stranded`, and reconciled where the platform
    can be asked; else they become unknown and are shown to the operators.
    """

    async def take(self, *, adapter: str, limit: int) -> list[Part]:
        """Mark parts that are due as attempting, and return them.

        Gives each part to one caller: the first part in the line of each conversation, and among
        conversations in order of arrival, whatever the clock says. An edit whose bubble never got
        a receipt is returned as a post. If the answer is lost, `release` gives the parts back.
        """

    async def record(  # noqa: PLR0913 - all that is known of a try
        self,
        part: PartId,
        state: PartState,
        *,
        receipt: str = "",
        error: str = "",
        due_in_s: float = 0,
        attempt: int = 0,
        moved_to: str = "",
    ) -> list[Recorded]:
        """Record the result of an attempt. Returns what was journalled for it. With `moved_to` the
        part's place is moved to that id in the same transaction (`Places.relocate`).

        With `attempt`, only that attempt may record. If the part's words were taken back meanwhile,
        a part that would become pending expires. If another part has this receipt already, the part
        becomes unknown. If final words are lost for good, their person is told in another place, if
        there is one, and the operators are told, in the same transaction.
        """

    async def bubble(self, lease: TurnLease, index: int, text: str) -> Bubble | None:
        """Return the running turn's bubble with this number, and add it as attempting if needed.

        Returns None while something before it in its line is on its way. Raises `Fenced` if the
        lease is stale: no bubble is added after the final words. If the process dies after this,
        the bubble is found attempting, whether or not it was shown.
        """

    async def may_show(self, lease: TurnLease) -> bool:
        """Tell whether nothing before the running turn's next words is on its way in their line.
        Also asked for previews that leave no row."""

    async def forget_bubble(self, turn: TurnId, index: int) -> None:
        """Record that this bubble was never shown, if it is attempting and this node has added
        it."""

    async def go_ahead(self, lease: TurnLease, parts: Sequence[str]) -> None:
        """Add the leading parts of a running turn's reply, except those that were added before.
        Raises `Fenced` if the lease is stale."""

    async def post_instead(self, part: PartId, *, error: str, attempt: int = 0) -> None:
        """Turn an edit whose bubble is gone into a pending post."""

    async def defer(self, part: PartId, *, due_in_s: float, attempt: int) -> None:
        """Give back a part that was not tried; it becomes due again after `due_in_s`. The attempt
        does not count."""

    async def divide(self, part: PartId, texts: Sequence[str], *, attempt: int = 0) -> None:
        """Replace a part that is too long for its platform by one part for each text. They stand
        before everything that was added to the line behind the part. A part that is pending already
        stays as it is."""

    async def release(self, *, adapter: str, keep: Sequence[PartId] = ()) -> int:
        """Give back what this node has taken, except bubbles and the parts in `keep`. Returns how
        many parts that were."""

    async def stranded(self, *, adapter: str) -> list[Part]:
        """Return the parts that an owner who is gone has left attempting, and the parts in doubt
        whose time has come."""

    async def doubt(self, part: PartId, *, error: str, due_in_s: float, attempt: int) -> None:
        """Leave a part in doubt: it stays attempting without an owner, and `stranded` returns it
        after `due_in_s`. Until its fate is known nothing behind it in its line is sent."""

    async def rivals(self, part: Part) -> Rivals:
        """Return what is known of the other parts in the place of this part."""

    async def expire(self, *, older_than_s: int) -> Expired:
        """Give up pending parts that are older than this, and tell people as `record` does."""

    async def next_due_ms(self) -> int | None:
        """Return when the next part can be taken, or the platform asked about one in doubt; 0 if
        that is now, None if there is none."""
