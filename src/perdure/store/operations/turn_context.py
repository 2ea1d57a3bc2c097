"""Holds the values that operations on an update pass around: who writes, and where it arrived."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from perdure.domain.ids import ConversationId, MessageId, NodeId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.events import Recorded, ToolFinished
from perdure.domain.outcomes import Busy
from perdure.domain.people.menu import AgentOffer, Menu
from perdure.domain.people.quotas import NO_QUOTA, Quota
from perdure.domain.sayings.saying import ReaderLanguage, language_of
from perdure.store.drivers.dialect import Dialect


class Stamp(NamedTuple):
    """Holds who writes (`node`), when (`at`), and the function that makes new ids."""

    node: NodeId
    at: int
    mint: Callable[[str], str]


class Fresh(NamedTuple):
    """Holds ids for what every update creates. They are made before the transaction, so that
    running it again uses the same ids."""

    turn: TurnId
    message: MessageId


# What is stored where people have chosen to have no persona.
NO_PERSONA: Final = "none"


class LiveSession(NamedTuple):
    """Holds the live session of a conversation as it stood when its row was locked. `language` is
    the tag of the language in which people are spoken to there. `is_successor`
    means that it was just opened in place of a suspended one. `via` is the conversation that the
    update came in, if that is another one, linked to this. `effort` is how much a model is to
    reason here. `label` and `kind` are what its platform says about the place that it came in.
    `marks` counts calls that a person has marked as happened or not, and that the agent was not
    told of. `opened` is the event by which the session was opened just now. `agent` and
    `persona` were chosen by people; `place_agent` and `place_persona` are what the configuration
    says about the place in which the update came."""

    conversation: ConversationId
    session: SessionId
    principal: PrincipalId
    last_seq: int
    epoch: int
    head: TurnId | None
    agent: str = ""
    persona: str = ""
    effort: str = ""
    language: str = ""
    view: str = ""
    title: str = ""
    hold_until: int | None = None
    active_at: int = 0
    is_successor: bool = False
    via: ConversationId | None = None
    label: str = ""
    kind: str = ""
    marks: int = 0
    opened: tuple[Recorded, ...] = ()
    place_agent: str = ""
    place_persona: str = ""

    @property
    def answering(self) -> str:
        """Return the agent that answers here: the chosen one, or else that of the place."""
        return self.agent or self.place_agent

    @property
    def speaking_as(self) -> str:
        """Return the persona that counts here: the chosen one, or else that of the place."""
        chosen = self.persona or self.place_persona
        return "" if chosen == NO_PERSONA else chosen


class LockedTurn(NamedTuple):
    """Holds an unfinished turn of the live session, as it stood when the session was locked."""

    id: TurnId
    state: str
    attempts: int
    asked_at: int | None
    kind: str
    alive_at: int
    album: str
    sender: PrincipalId


class TurnContext(NamedTuple):
    """Holds an update and the locked session it arrived in. `continues` is the turn whose cut-off
    answer it continues; `quota` is what a member may have; `may_begin` says whether its turn may
    start in this transaction. `results` are those of the caller's own calls that it brings."""

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
    results: tuple[ToolFinished, ...] = ()

    @property
    def conversation(self) -> ConversationId:
        return self.place.conversation

    @property
    def agent(self) -> AgentOffer:
        """Return what is offered by the agent that this update is meant for."""
        return self.menu.offer(self.update.agent or self.place.answering)

    @property
    def session(self) -> SessionId:
        return self.place.session

    @property
    def language(self) -> ReaderLanguage:
        """Return the language in which whoever has sent the update is answered."""
        return language_of(self.update.traits.language or self.place.language)

    def saying(self, text: str, busy: Busy) -> "TurnContext":
        """Return the same context with another text and another way to treat a running turn. What a
        command says is whole, so nothing more is waited for."""
        said = msgspec.structs.replace(self.update, text=text, busy=busy, collect_ms=0)
        return self._replace(update=said)
