"""Defines the port that knows where people can be reached, and sends something there."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from perdure.domain.address import Address, AddressForm
from perdure.domain.ids import CallId, ConversationId, PrincipalId, TurnId
from perdure.domain.inbound.updates import Accepted
from perdure.domain.journal.events import NO_TRAITS, Attachment, Recorded, SenderTraits
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Page


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a text that somebody sends to a place. `to` is what they typed: an address such as
    `telegram:123`, `home`, or the name of one of their own conversations over HTTP. `accounts` are
    the configured platforms with the account of each, which is empty until it is known; `forms` is
    the form of their addresses. `external_id` was chosen by the sender. If an agent sends it,
    `origin` is the turn in which it does, `traits` are those of the person of that turn, and
    `files` come with the text."""

    to: str
    text: str
    external_id: str
    by: Principal
    accounts: Mapping[str, str]
    forms: Mapping[str, AddressForm] = MappingProxyType({})
    origin: TurnId | None = None
    traits: SenderTraits = NO_TRAITS
    files: tuple[Attachment, ...] = ()


class Reachable(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the platforms that can be reached: the account of each, and the form of its
    addresses."""

    accounts: Mapping[str, str] = MappingProxyType({})
    forms: Mapping[str, AddressForm] = MappingProxyType({})


class TurnPosting(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what an agent sends into another conversation, in a turn of `principal`. `to`, `text`,
    `traits` and `files` are those of an `OutgoingMessage`."""

    to: str
    text: str
    call: CallId
    turn: TurnId
    principal: PrincipalId
    reach: Reachable
    traits: SenderTraits = NO_TRAITS
    files: tuple[Attachment, ...] = ()


class PostedCall(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a call that sends something has become: the events of its own turn, and what was
    accepted in the other conversation."""

    recorded: list[Recorded]
    accepted: Accepted


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what a sent message became. `address` is the name of the place."""

    accepted: Accepted
    address: str


class PlaceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Describes a place that has been seen. `kind` is private, group, or empty if it is unknown;
    `linked` is the address of the conversation that the place is linked to, if it is linked."""

    id: ConversationId
    adapter: str
    address: str
    label: str
    kind: str
    active_at: int
    linked: str = ""


class Places(Protocol):
    """Lists the places where people talk, sends messages into them, and moves them.

    Guarantees: each method is one transaction or one snapshot.
    Requires: text that passed `storable`.
    Raises: `Transient` when nothing was written or read; `Ambiguous` when that is unknown.
    After a crash: a message was accepted whole or not at all; sending the same id again tells
    which.
    """

    async def send(self, sending: OutgoingMessage, *, queue_max: int) -> SentMessage:
        """Queue a text in the line of the place's live session, as a turn that asks no model.

        So it is said in order, delivered by the outbox and kept in the history. The same id again
        changes nothing and returns the first result. Opens the place if nobody has written from
        there yet. Raises `Rejected` if the sender may not write there, the line is full, the
        platform is not configured, or no place there can have this address; `NotFound` for a name
        that is unknown; `Transient` while the platform's account is not known; `Conflict` for
        another text under a known id.
        """

    async def open(self, sending: OutgoingMessage) -> ConversationId:
        """Return the conversation that a sender means, and open it if nobody has written from there
        yet. Nothing is sent. Raises like `send`."""

    async def relocate(self, place: Address, *, to: str) -> None:
        """Move everything that is known of a place to the id that it has now: its conversations
        with their history, grants and jobs, and what was overheard. Whoever names the old id means
        the new one from then on. Doing it again changes nothing. Where people have written under
        the new id already, their conversation stays, and gets the jobs, and is home in place of the
        other one."""

    async def find(self, posting: TurnPosting) -> str:
        """Return the name of the address at which an agent's message would arrive. Raises
        `Rejected`, `NotFound` or `Transient` as `send` does: also if the person of the turn is a
        member and takes no part in that conversation, or if the turn itself is answered there."""

    async def known(self, *, principal: PrincipalId | None, page: Page) -> list[PlaceView]:
        """Return a page of the places of a principal, or of everybody, the last active first."""
