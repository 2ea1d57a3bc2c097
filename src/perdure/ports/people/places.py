"""Where people can be reached, and sending something there from elsewhere."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from perdure.domain.address import AddressForm
from perdure.domain.ids import ConversationId, PrincipalId
from perdure.domain.inbound.updates import Accepted
from perdure.ports.people.principals import Principal
from perdure.ports.records.history import Page


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`to` as it was typed: an address such as `telegram:123`, `home`, or the name of one of the
    sender's own conversations over HTTP. `accounts` are the configured platforms with the account
    of each, which is empty as long as nobody knows it; `forms` is what their places are called.
    `external_id` is the sender's own."""

    to: str
    text: str
    external_id: str
    by: Principal
    accounts: Mapping[str, str]
    forms: Mapping[str, AddressForm] = MappingProxyType({})


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is the name of the place."""

    accepted: Accepted
    address: str


class PlaceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`kind` is private, group, or empty where nobody knows; `linked` names the conversation that
    goes on there, if it is another one."""

    id: ConversationId
    adapter: str
    address: str
    label: str
    kind: str
    active_at: int
    linked: str = ""


class Places(Protocol):
    """The directory, and the way to write into it.

    Guarantees: `send` puts the text into the line of the place's live session, as a turn that is
    said without asking a model: it is said in order, delivered by the outbox, kept in the history,
    and the same id again changes nothing. A place nobody has written from yet is opened. `known` is
    the places that have been seen, those active last first.
    Requires: text that passed `storable`.
    Raises: `Rejected` where the sender may not write there, the platform is not configured, or no
    place there can be called so;
    `NotFound` for a name that stands for nothing; `Transient` while the platform's account is not
    known; `Conflict` for another text under a known id.
    After a crash: it was accepted whole or not at all; the same id tells which.
    """

    async def send(self, sending: OutgoingMessage, *, queue_max: int) -> SentMessage: ...

    async def known(self, *, principal: PrincipalId | None, page: Page) -> list[PlaceView]: ...
