"""Finds the conversation at an address and its live session, and opens them if needed."""

from typing import NamedTuple

import msgspec

from perdure.domain.address import GROUP, Address
from perdure.domain.ids import ConversationId, PrincipalId, SessionId, TurnId
from perdure.domain.inbound.updates import Update
from perdure.domain.journal.session_events import SessionOpened
from perdure.store.operations.sessions import relocating
from perdure.store.operations.sessions.sessions import (
    make_live,
    open_conversation,
    open_session,
    open_successor,
)
from perdure.store.operations.turn_context import LiveSession, Stamp
from perdure.store.statement import Op, one, run

# Locks the conversation at an address.
_FIND_CONVERSATION = """
    SELECT id, session_id, agent, persona, effort, principal_id, linked_id, kind, label,
           language
    FROM conversations
    WHERE adapter = $1 AND account = $2 AND place = $3 AND thread = $4 AND person = $5
    FOR NO KEY UPDATE"""
# Locks the conversation that another one is linked to.
_CONVERSATION = """
    SELECT id, session_id, agent, persona, effort, principal_id, linked_id, kind, label,
           language
    FROM conversations
    WHERE id = $1 FOR NO KEY UPDATE"""
# Locks a conversation's live session.
_SESSION = """
    SELECT state, principal_id, last_seq, epoch, head_turn, view, hold_until, active_at,
           title, (SELECT COUNT(*) FROM effects e
                   WHERE e.session_id = sessions.id AND e.marked_at IS NOT NULL
                     AND e.told_turn_id IS NULL)
    FROM sessions WHERE id = $1 FOR UPDATE"""
# Gives a conversation to the first person who speaks in it.
_ADOPT = "UPDATE conversations SET kind = $1, principal_id = $2 WHERE id = $3"
# Gives them the sessions of that conversation too.
_ADOPT_SESSIONS = "UPDATE sessions SET principal_id = $1 WHERE conversation_id = $2"


class _Conversation(NamedTuple):
    id: ConversationId
    session: SessionId
    agent: str
    persona: str
    effort: str
    principal: PrincipalId
    linked: ConversationId | None
    kind: str
    label: str
    language: str


class _Session(NamedTuple):
    state: str
    principal: PrincipalId
    last_seq: int
    epoch: int
    head: TurnId | None
    view: str
    hold_until: int | None
    active_at: int
    title: str
    marks: int


def resolve(update: Update, stamp: Stamp) -> Op[LiveSession]:
    """Lock and return the live session for an update's address. Opens a conversation if there is
    none, and a new session if the live one was suspended. Follows a link to another
    conversation."""
    found = yield from _find(update.address)
    if found is None:
        # Whoever names the id that a place had before means the place.
        moved = yield from relocating.now(update.address)
        if moved is not None:
            return (yield from resolve(msgspec.structs.replace(update, address=moved), stamp))
        place = yield from _open(update, stamp)
        if place is not None:
            return place
        found = yield from _find(update.address)
        assert found is not None
    if update.place_kind and not found.kind:
        yield from _adopt(found.id, update)
    via, kind = None, update.place_kind or found.kind
    label = update.label or found.label
    # A link is for the person who made it: once others read in that place, it is ignored.
    if found.linked is not None and update.place_kind != GROUP:
        via = found.id
        found = yield from one(_Conversation, _CONVERSATION, found.linked)
        assert found is not None
    held = yield from one(_Session, _SESSION, found.session)
    assert held is not None
    place = _standing(found, held)
    if held.state != "open":
        place = yield from _succeed(found, update, stamp)
    owner = found.principal if via else place.principal
    return place._replace(via=via, principal=owner, label=label, kind=kind)


def _standing(found: _Conversation, held: _Session) -> LiveSession:
    """Return the state of a conversation and its live session."""
    return LiveSession(
        conversation=found.id,
        session=found.session,
        principal=held.principal,
        last_seq=held.last_seq,
        epoch=held.epoch,
        head=held.head,
        agent=found.agent,
        persona=found.persona,
        effort=found.effort,
        language=found.language,
        view=held.view,
        title=held.title,
        hold_until=held.hold_until,
        active_at=held.active_at,
        marks=held.marks,
    )


def _succeed(found: _Conversation, update: Update, stamp: Stamp) -> Op[LiveSession]:
    """Open a session in place of the suspended one, and make it the live one."""
    by = update.principal
    opened = yield from open_successor(found.session, found.id, stamp, by=by)
    yield from make_live(found.id, opened.session)
    place = new(found.id, opened.session, update)
    return place._replace(
        agent=found.agent,
        persona=found.persona,
        effort=found.effort,
        language=found.language,
        is_successor=True,
        opened=(opened,),
    )


def _adopt(conversation: ConversationId, update: Update) -> Op[None]:
    """Give a conversation, opened because something was sent there, to the first person who speaks
    in it."""
    yield from run(_ADOPT, update.place_kind, update.principal, conversation)
    yield from run(_ADOPT_SESSIONS, update.principal, conversation)


def new(conversation: ConversationId, session: SessionId, update: Update) -> LiveSession:
    """Return the state of a session whose journal holds only that it was opened."""
    return LiveSession(
        conversation,
        session,
        update.principal,
        last_seq=1,
        epoch=0,
        head=None,
        label=update.label,
        kind=update.place_kind,
    )


def _find(address: Address) -> Op[_Conversation | None]:
    """Lock the conversation at this address. Returns None if there is none."""
    return (
        yield from one(
            _Conversation, _FIND_CONVERSATION,
            address.adapter, address.account, address.place, address.thread, address.person,
        )
    )  # fmt: skip


def _open(update: Update, stamp: Stamp) -> Op[LiveSession | None]:
    """Open a conversation and its first session. Returns None if another transaction did so
    first."""
    conversation = ConversationId(stamp.mint("cnv"))
    session = SessionId(stamp.mint("ses"))
    principal = update.principal
    is_opened = yield from open_conversation(
        conversation,
        session,
        update.address,
        stamp,
        principal=principal,
        kind=update.place_kind,
        label=update.label,
        is_listed=update.is_listed,
    )
    if not is_opened:
        return None
    event = SessionOpened(by=principal, reason="first message")
    opened = yield from open_session(session, conversation, event, stamp, principal=principal)
    return new(conversation, session, update)._replace(opened=tuple(opened))
