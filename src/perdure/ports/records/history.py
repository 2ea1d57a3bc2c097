"""Defines the ports that read what is stored."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from perdure.domain.address import Address
from perdure.domain.ids import (
    ConversationId,
    MessageId,
    PrincipalId,
    SessionId,
    TurnId,
)
from perdure.domain.journal.events import AssistantSaid, LeftOut, Recorded
from perdure.domain.journal.open_calls import OpeningEvent
from perdure.domain.journal.records import (
    AnswerSoFar,
    EffectView,
    PartView,
    QuestionView,
    SessionRecord,
    SessionView,
    ToldTurn,
    TurnView,
)
from perdure.domain.journal.spoken import TurnVersions
from perdure.domain.journal.transcript import Entry, RunningText
from perdure.domain.turn.rebuilding import StoredRequest
from perdure.domain.turn.standing import SessionStanding
from perdure.domain.turn.watching import Move

# How much one read returns at most, in bytes as they are stored. A page ends before it would be
# longer, but holds one item at least.
PAGE_BYTES: Final = 1024 * 1024


class ConversationView(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a conversation. If it is linked to another one (`linked`), everything but its id,
    name, address and last activity is taken from that one. `agent` is the agent that was chosen
    there, or empty. `is_unread`: an answer has come since its person saw it last."""

    id: ConversationId
    name: str
    address: Address
    principal: PrincipalId
    generation: int
    standing: SessionStanding
    title: str
    at: int
    linked: ConversationId | None = None
    linked_name: str = ""
    agent: str = ""
    is_pinned: bool = False
    is_archived: bool = False
    is_hidden: bool = False
    is_unread: bool = False


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a conversation at one instant: the last seq of its live journal, the message that is
    being written, and what later news of the turn at work refers to: its final messages with their
    calls, and its questions."""

    view: ConversationView
    last_seq: int
    running: RunningText | None
    opened: tuple[OpeningEvent, ...] = ()

    @property
    def said(self) -> tuple[MessageId, ...]:
        """Return the messages of the turn at work that are final already."""
        return tuple(each.message for each in self.opened if isinstance(each, AssistantSaid))


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """Says what was chosen in a conversation (empty: nothing), how many tokens its model reads to
    know everything, and which summary stands for how many of its older turns."""

    agent: str = ""
    persona: str = ""
    effort: str = ""
    tokens: int = 0
    summary: str = ""
    summarized_turns: int = 0


class Shelf(StrEnum):
    """Names a list of conversations: those in sight, the pinned ones of these, or those that were
    put away. Hidden ones are in no list."""

    SHOWN = "shown"
    PINNED = "pinned"
    ARCHIVED = "archived"


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a message that a search has found. `cursor` is where the next page begins. Of a long
    text only the part around the first word is given. `archived` and `hidden` say what its person
    did with the conversation. `person` is told to operators: whose the conversation is, if it is
    one over HTTP."""

    cursor: int
    conversation: str
    session: SessionId
    turn: TurnId | None
    message: MessageId
    role: str
    text: str
    at: int
    archived: bool = False
    hidden: bool = False
    person: str = ""


class NoticedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a page of a transcript that has notices, and tells whether there are entries before
    it."""

    entries: tuple[Entry, ...]
    has_more: bool


class ArrivalRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how and when an update came in."""

    adapter: str
    account: str
    external_id: str
    kind: str
    at: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Holds everything that became of one message: update, turn, attempts, calls, parts and
    receipts. Without a turn, it is a command with its `reply`, or was `refused` for that reason, or
    is among the parts as a letter that could not be taken. `partial` is what was shown of the
    message that is being written. `left` says why a turn that has begun is not on its session's
    chain any more. `questions` are what people were asked about its calls, and `effects` are its
    calls whose effect is or was unknown. Long texts are cut, with a mark that says where the whole
    text is (`domain/journal/in_short.py`)."""

    turn: TurnView | None
    conversation: str
    updates: tuple[ArrivalRecord, ...]
    events: tuple[Recorded, ...] = ()
    parts: tuple[PartView, ...] = ()
    command: str = ""
    reply: str = ""
    refused: str = ""
    partial: RunningText | None = None
    left: str = ""
    questions: tuple[QuestionView, ...] = ()
    effects: tuple[EffectView, ...] = ()


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Holds how many turns and parts wait, are at work, or are parked. Turns that are `waiting`
    need an answer from a person."""

    queued: int
    running: int
    waiting: int
    interrupted: int
    outbox_pending: int
    outbox_parked: int
    # How many parts of each adapter wait to be sent or are being sent.
    outbox_depths: tuple[tuple[str, int], ...] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Names a page of a list. `after` is the cursor with which the previous page ended; None names
    the first page. `with_hidden` also shows sessions of conversations that their person has hidden,
    `with_errands` those of errands, and `with_unlisted` all of these and the sessions of single
    calls without a conversation."""

    after: tuple[int, str] | None = None
    limit: int = 50
    with_hidden: bool = False
    with_unlisted: bool = False
    with_errands: bool = False


class Conversations(Protocol):
    """Reads conversations as people see them.

    Guarantees: each answer is one snapshot.
    Requires: the caller has decided whether its client may read a conversation that it names by id;
    only `find` and `recent` are limited to a principal.
    Raises: `NotFound` for what does not exist or is not the principal's; `Transient` when nothing
    can be read now.
    After a crash: nothing is kept.
    """

    async def find(self, name: str, *, principal: PrincipalId, sees_all: bool = False) -> Snapshot:
        """Return a conversation of the principal over HTTP, by its name; or one on a platform, by
        its address. With `sees_all`, a conversation on a platform may be anybody's, and
        `http:PERSON:NAME` is another person's over HTTP, which has this name in the answer."""

    async def snapshot(self, conversation: ConversationId) -> Snapshot:
        """Return a conversation as it is now."""

    async def anybodys(self, name: str) -> Snapshot:
        """Return the conversation of one person over HTTP, by its name, whoever that is. Raises
        `Conflict` if several people have one of that name."""

    async def moves(
        self, conversation: ConversationId, *, after: int, upto: int, limit: int
    ) -> list[Move]:
        """Return the moves to the generations after `after`, up to `upto`, in order."""

    async def recent(
        self, *, principal: PrincipalId, page: Page, shelf: Shelf = Shelf.SHOWN
    ) -> list[ConversationView]:
        """Return a page of the principal's conversations on this shelf, the last active first."""

    async def chain(
        self, head: TurnId, *, limit: int, until: TurnId | None = None
    ) -> list[list[Recorded]]:
        """Return the events of the turns from `head` back through their parents, oldest turn first.

        Returns at most `limit` turns, none from `until` back, and no more than `PAGE_BYTES` hold
        (but one turn at least). If the oldest turn has a parent, there may be more.
        """

    async def window(self, head: TurnId, *, limit: int) -> list[list[Recorded]]:
        """Return the chain as the model is told it: it begins with the newest summary on it."""

    async def left_out(self, head: TurnId) -> tuple[LeftOut, ...]:
        """Return what turns on the chain of `head` leave out of the requests after them."""

    async def turn_on_chain(self, head: TurnId, entry: str) -> TurnId:
        """Return the turn on the chain of `head` that a transcript's entry belongs to."""

    async def exchange(self, turn: TurnId) -> list[Recorded]:
        """Return what a turn was asked and what it has answered, without what was said to it while
        it ran and without the results of its calls. Empty if there is no such turn."""


class Archive(Protocol):
    """Reads sessions, turns and journals, live and closed, and searches them.

    Guarantees: each answer is one snapshot. With a `principal`, only what belongs to that principal
    is found. What is said in a shared place belongs to nobody; None finds everything (operators).
    Requires: the caller has decided whether its client may read a session that it names without a
    principal.
    Raises: `NotFound` for what does not exist or is not the principal's; `Transient` when nothing
    can be read now.
    After a crash: nothing is kept.
    """

    async def turn(self, turn: TurnId, *, principal: PrincipalId | None) -> TurnView:
        """Return a turn."""

    async def versions(self, turns: Sequence[TurnId]) -> Mapping[TurnId, TurnVersions]:
        """Return the other versions of some turns, for those that have any: the turns that ask
        their message again, in the same words or in others."""

    async def sessions(self, *, principal: PrincipalId | None, page: Page) -> list[SessionView]:
        """Return a page of the sessions, newest first."""

    async def context(self, conversation: ConversationId) -> ContextView:
        """Return what was chosen in a conversation, and what its model reads."""

    async def sessions_of(
        self, conversation: ConversationId, *, limit: int, after: int | None = None
    ) -> list[SessionView]:
        """Return sessions in which people talked in a conversation, the last opened first: the
        newest, or the newest that were opened before the instant `after`."""

    async def session(self, session: SessionId, *, principal: PrincipalId | None) -> SessionView:
        """Return a session."""

    async def journal(self, session: SessionId, *, after: int, limit: int) -> list[Recorded]:
        """Return the entries of a journal after the seq `after`: at most `limit`, and no more than
        `PAGE_BYTES` hold (but one at least). Empty at the end."""

    async def running(self, session: SessionId) -> RunningText | None:
        """Return what was shown of the message that is being written in a session, or was when its
        process died. None if nothing was."""

    async def told(
        self,
        session: SessionId,
        *,
        before: TurnId | None = None,
        before_seq: int = 0,
        limit: int,
        with_left: bool = False,
    ) -> list[ToldTurn]:
        """Return the newest turns of a session, or the newest before the turn `before`, oldest
        first, bounded like `journal`.

        These are the turns on the session's chain; with `with_left` also its own turns that were
        undone or asked again. A turn that is longer than a page comes alone and in pieces, the last
        piece first: for the piece before, give the turn as `before`, and the piece's `begins_at` as
        `before_seq`.
        """

    async def noticed(
        self,
        session: SessionId,
        *,
        before: str | None = None,
        limit: int,
        is_whole: bool = False,
    ) -> NoticedPage:
        """Return the newest entries of a session with its notices and the replies to commands, or
        the newest before the entry `before`, oldest first, bounded like `journal`.

        These are the turns up to the session's head, and the notices in the sessions on the way
        there. If `is_whole`, they are all turns that the session has begun, and its own notices.
        """

    async def answer(self, external_id: str, *, adapter: str) -> AnswerSoFar | None:
        """Return what came of the message that this adapter took or refused under an id. None if it
        never came."""

    async def search(
        self,
        query: str,
        *,
        principal: PrincipalId | None,
        before: int | None,
        limit: int,
        with_hidden: bool = False,
    ) -> list[Hit]:
        """Return the newest messages that contain all words of the query. It first indexes what
        waits, so it misses no turn that is over. Conversations that their person has hidden are
        searched only `with_hidden`. Raises `Ambiguous` if that write was lost."""


class Index(Protocol):
    """Keeps the full-text index of what was said.

    Guarantees: no turn that is over stays without its index for good.
    Requires: nothing.
    Raises: `Transient` when nothing was written; `Ambiguous` when that is unknown.
    After a crash: what was not indexed still waits.
    """

    async def catch_up(self) -> bool:
        """Index some of the turns that are over and wait for it, in one transaction of bounded
        length. Returns whether there may be more."""


class Diagnostics(Protocol):
    """Tells operators what happened to a message, how much waits, and whether everything is sound.

    Guarantees: each answer is one snapshot, except `integrity`.
    Requires: nothing.
    Raises: `NotFound` for what does not exist or is not the principal's; `Transient` when nothing
    can be read now.
    After a crash: nothing is kept.
    """

    async def explain(self, any_id: str, *, principal: PrincipalId | None) -> Explanation:
        """Return everything that became of a message. It is named by the id of a turn, a message,
        a part, a question or a tool call, or by the id that its sender gave. With a principal, only
        their own are found."""

    async def asked(self, turn: TurnId) -> StoredRequest:
        """Return what is stored of the last request of a turn. Raises `NotFound` with the reason if
        nothing is."""

    async def counts(self) -> Counts:
        """Return how much waits, is at work, or is parked."""

    async def record(self, session: SessionId) -> SessionRecord:
        """Return everything stored of a session, for the checker."""

    async def parked(self, *, limit: int) -> list[PartView]:
        """Return what is parked, newest first."""

    async def integrity(self) -> list[str]:
        """Return what the database's own check finds in all tables. See `Audit.integrity`."""
