"""What operations on an update need: who writes, what it may create, and where it arrives."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from perdure.domain.ids import ConversationId, MessageId, NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.outcomes import Busy
from perdure.domain.people.menu import Menu
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.store.drivers.dialect import Dialect


class Stamp(NamedTuple):
    """Who writes, when, and how ids are made."""

    node: NodeId
    at: int
    mint: Callable[[str], str]


class Fresh(NamedTuple):
    """Ids for what every update creates, minted before the transaction."""

    turn: TurnId
    message: MessageId


class LiveSession(NamedTuple):
    """The live session of a conversation, whose row is locked, as it stood then. `is_successor`:
    it was just opened in the place of a suspended one. `via` is the conversation that the update
    came in, where that is linked to this one."""

    conversation: ConversationId
    session: SessionId
    principal: PrincipalId
    last_seq: int
    epoch: int
    head: TurnId | None
    agent: str = ""
    persona: str = ""
    view: str = ""
    title: str = ""
    hold_until: int | None = None
    active_at: int = 0
    is_successor: bool = False
    via: ConversationId | None = None


class LockedTurn(NamedTuple):
    """A turn of the live session that is not over, as it stood when the session was locked."""

    id: TurnId
    state: str
    attempts: int
    asked_at: int | None
    kind: str
    alive_at: int
    album: str
    sender: PrincipalId


class TurnContext(NamedTuple):
    """An update and where it has come to. `continues` is the cut answer that it goes on with,
    `quota` what a member may have."""

    dialect: Dialect
    stamp: Stamp
    fresh: Fresh
    update: Update
    place: LiveSession
    open_turns: Sequence[LockedTurn]
    menu: Menu
    queue_max: int
    may_begin: bool
    continues: TurnId | None = None
    quota: Quota = NO_QUOTA

    @property
    def conversation(self) -> ConversationId:
        return self.place.conversation

    @property
    def session(self) -> SessionId:
        return self.place.session

    def saying(self, text: str, busy: Busy) -> "TurnContext":
        """Return the same, with other words and another way to take them."""
        return self._replace(update=msgspec.structs.replace(self.update, text=text, busy=busy))
